"""Kernels of `record_serve.py` beside those of the launch benchmark: one with an autotuner, and one of any duration."""

# ruff: noqa: ANN001, ANN201, N803 - as in kernels of Triton
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 512}, num_warps=2)], key=["n"])
@triton.jit
def tuned_4(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """4 arguments: the sum of 2 vectors, with an autotuner."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    total = tl.load(x_ptr + lanes, mask=mask)
    total += tl.load(y_ptr + lanes, mask=mask)
    tl.store(out_ptr + lanes, total, mask=mask)


@triton.jit
def spin(out_ptr, count):
    """Take `count` steps, one after the other."""
    total = tl.load(out_ptr)
    for _ in range(count):
        total = total * 1.000001 + 0.5
    tl.store(out_ptr, total)
