"""The kernel that `tests.support.triton_kernels` compiles; importing this imports Triton."""

import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):  # noqa: N803 - a constexpr
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * scale, mask=mask)


@triton.jit
def annotated_numbers(scale: tl.float32, n: tl.int32, flag: tl.int1):
    tl.device_print("numbers", scale, n, flag)
