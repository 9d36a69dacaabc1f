"""A kernel whose configs are right, wrong, or take the context down; `tuning.toml` builds it."""

# ruff: noqa: N803 - constexprs are upper case

import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    """Write ``2 * x``; with FAULT 1 something else, with FAULT 2 far beyond the end of `out`."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    x = tl.load(x_ptr + lanes, mask=mask)
    if FAULT == 1:
        x += 1.0
    elif FAULT == 2:
        out_ptr += 1 << 40
    tl.store(out_ptr + lanes, 2.0 * x, mask=mask)
