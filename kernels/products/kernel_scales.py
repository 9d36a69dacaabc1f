"""Device functions that the Triton kernels of fp8 products share: K loops that add up in fp32, and scale blocks of K."""

import triton
import triton.language as tl
from nojit.kernels.products.agreed_sizes import SCALE_BLOCK

DEEP = tl.constexpr(SCALE_BLOCK)
"""Elements of K that share a scale."""


@triton.jit
def _decode(x, E5M2: tl.constexpr):
    """Return fp8 values for `tl.dot`; bytes become fp16, exactly, for devices without fp8 products."""
    if x.dtype == tl.uint8:
        bits = x.to(tl.uint16)
        if E5M2:
            x = (bits << 8).to(tl.float16, bitcast=True)
        else:
            # fp16 has one exponent bit more than e4m3, and a bias greater by 8; denormals are correct too
            number = ((bits & 0x80) << 8 | (bits & 0x7F) << 7).to(tl.float16, bitcast=True) * 256.0
            x = tl.where((bits & 0x7F) == 0x7F, float("nan"), number)
    return x


@triton.jit
def _add_step(
    acc, a_ptrs, b_ptrs, in_a, in_b, step_scales, A_E5M2: tl.constexpr, B_E5M2: tl.constexpr, BLOCK_SCALES: tl.constexpr
):
    """Add the product of one step of K to the fp32 sums `acc`; with `BLOCK_SCALES`, scale it by its block's scales first."""
    a = _decode(tl.load(a_ptrs, mask=in_a, other=0.0), A_E5M2)
    b = _decode(tl.load(b_ptrs, mask=in_b, other=0.0), B_E5M2)
    # adds up steps in fp32 even if tensor cores add up less precisely
    product = tl.dot(a, b) if a.dtype == tl.float16 else tl.dot(a, b, max_num_imprecise_acc=a.shape[1])
    if BLOCK_SCALES:
        row_ptrs, in_rows, column_ptrs, in_cols = step_scales
        row_scales = tl.load(row_ptrs, mask=in_rows, other=0.0)
        column_scales = tl.load(column_ptrs, mask=in_cols, other=0.0)
        product *= row_scales[:, None] * column_scales[None, :]
    return acc + product


@triton.jit
def add_steps(
    acc, a_ptrs, b_ptrs, row_ptrs, column_ptrs, in_rows, in_cols, start, depth, stride_sak, stride_sbk,
    A_E5M2: tl.constexpr, B_E5M2: tl.constexpr, BLOCK_SCALES: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Add the product over [start, start + depth) of K to the fp32 sums `acc`; with `BLOCK_SCALES`, scale each block's.

    `a_ptrs` and `b_ptrs` point to the first step, `row_ptrs` and `column_ptrs` to the scales of block 0. `start` is a
    multiple of BLOCK_K, which divides 128.
    """
    lanes = tl.arange(0, BLOCK_K)
    whole = depth // BLOCK_K * BLOCK_K
    # use offsets from the first step: pointers carried through the loop would take registers
    for place in range(0, whole, BLOCK_K):
        block = ((start + place) // DEEP).to(tl.int64)
        scales = (row_ptrs + block * stride_sak, in_rows, column_ptrs + block * stride_sbk, in_cols)
        acc = _add_step(
            acc, a_ptrs + place, b_ptrs + place, in_rows[:, None], in_cols[None, :], scales, A_E5M2, B_E5M2, BLOCK_SCALES
        )  # fmt: skip
    left = depth - whole
    if left > 0:
        block = ((start + whole) // DEEP).to(tl.int64)
        scales = (row_ptrs + block * stride_sak, in_rows, column_ptrs + block * stride_sbk, in_cols)
        in_a = in_rows[:, None] & (lanes < left)[None, :]
        in_b = in_cols[None, :] & (lanes < left)[:, None]
        acc = _add_step(acc, a_ptrs + whole, b_ptrs + whole, in_a, in_b, scales, A_E5M2, B_E5M2, BLOCK_SCALES)
    return acc
