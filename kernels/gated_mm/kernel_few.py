"""Triton kernel of gated products with one row: it reads both weights once, at the bandwidth of memory."""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import silu
from nojit.kernels.products.kernel_few import row_sums


@triton.jit
def gated_mm_row_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    n_len,
    k_len,
    stride_bn,
    stride_on,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write ``silu(a @ b[:, :n_len]) * (a @ b[:, n_len:])``: a [1, k_len], b [k_len, 2 * n_len], by columns as for `bmm_row_kernel`.

    A program multiplies by `BLOCK_N` columns; half of them are the gate's. Grid: cdiv(2 * n_len, BLOCK_N).
    """
    HALF: tl.constexpr = BLOCK_N // 2
    first = tl.program_id(0) * HALF
    # each column of the gate has that of the other factor beside it
    lanes = tl.arange(0, BLOCK_N)
    pairs = first + lanes // 2
    cols = pairs + lanes % 2 * n_len
    sums = row_sums(a_ptr, b_ptr, cols, pairs < n_len, k_len, 0, stride_bn, 1, BLOCK_N, BLOCK_K, STAGES)
    # both factors are rounded as products that are stored
    factors = tl.reshape(sums, (HALF, 2)).to(out_ptr.dtype.element_ty).to(tl.float32)
    gate, up = tl.split(factors)
    out = first + tl.arange(0, HALF)
    tl.store(out_ptr + out.to(tl.int64) * stride_on, (silu(gate) * up).to(out_ptr.dtype.element_ty), mask=out < n_len)
