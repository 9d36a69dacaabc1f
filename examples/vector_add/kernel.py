"""The kernel: plain Triton, nothing of nojit. Only the build imports this file."""

# ruff: noqa: ANN001, ANN201, N803 - types are the manifest's to say, and Triton's constexprs are written in capitals
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Write ``x + y``, `BLOCK` elements in each program."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    x = tl.load(x_ptr + lanes, mask=mask)
    y = tl.load(y_ptr + lanes, mask=mask)
    tl.store(out_ptr + lanes, x + y, mask=mask)
