"""Triton kernels of matrix products with few rows: they read the right operand once, at the bandwidth of memory.

The right operand b [k_len, n_len] is stored by columns, as the weight of a linear layer is. Rows of a and columns of b start at
multiples of 16 bytes, and k_len is a multiple of `VECTOR`.
"""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_few import VECTOR, row_sums
from nojit.kernels.products.kernel_tiles import apply_epilogue, spread


@triton.jit
def _store(
    sums,
    rows,
    cols,
    m_len,
    n_len,
    out_ptr,
    input_ptr,
    activation,
    alpha,
    beta,
    stride_cm,
    stride_cn,
    stride_om,
    stride_on,
    EPILOGUE: tl.constexpr,
):
    """Store sums [columns of b, rows of a], or with `EPILOGUE` ``activation(alpha * sums + beta * input)``."""
    inside = (cols < n_len)[:, None] & (rows < m_len)[None, :]
    if EPILOGUE:
        input_ptrs = spread(input_ptr, cols, rows, stride_cn, stride_cm)
        sums = apply_epilogue(sums, input_ptrs, inside, alpha, beta, activation)
    tl.store(spread(out_ptr, cols, rows, stride_on, stride_om), sums.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def bmm_few_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    input_ptr,
    m_len,
    n_len,
    k_len,
    activation,
    alpha,
    beta,
    stride_am,
    stride_bn,
    stride_cm,
    stride_cn,
    stride_om,
    stride_on,
    EPILOGUE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Write ``a @ b``, or with `EPILOGUE` ``activation(alpha * a @ b + beta * input)``; a has at most `ROWS` rows.

    Each of `PARTS` warps multiplies its own `BLOCK_K` of a step, so that narrow tiles keep all warps busy. The product is
    computed transposed: columns of b are the rows of the tensor cores' tiles, which few rows of a would not fill. Grid:
    cdiv(n_len, BLOCK_N).
    """
    end = k_len // VECTOR * VECTOR
    rows = tl.arange(0, ROWS)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    lanes = tl.arange(0, PARTS)[:, None] * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    pitch_a = stride_am // VECTOR * VECTOR
    pitch_b = stride_bn // VECTOR * VECTOR
    wide = cols.to(tl.int64)[None, :, None]
    acc = tl.zeros((PARTS, BLOCK_N, ROWS), tl.float32)
    for start in range(0, end, BLOCK_K * PARTS):
        k = start + lanes
        inside = k < end
        a_ptrs = a_ptr + (k[:, :, None] + rows[None, None, :] * pitch_a)
        a = tl.load(a_ptrs, mask=inside[:, :, None] & (rows < m_len)[None, None, :], other=0.0)
        b_ptrs = b_ptr + (wide * pitch_b + k[:, None, :])
        b_inside = inside[:, None, :] & (cols < n_len)[None, :, None]
        b = tl.load(b_ptrs, mask=b_inside, other=0.0, eviction_policy="evict_first")
        acc = tl.dot(b, a, acc)
    _store(
        tl.sum(acc, 0), rows, cols, m_len, n_len, out_ptr, input_ptr, activation, alpha, beta,
        stride_cm, stride_cn, stride_om, stride_on, EPILOGUE,
    )  # fmt: skip


@triton.jit
def bmm_row_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    input_ptr,
    m_len,
    n_len,
    k_len,
    activation,
    alpha,
    beta,
    stride_am,
    stride_bn,
    stride_cm,
    stride_cn,
    stride_om,
    stride_on,
    EPILOGUE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the same as `bmm_few_kernel` for `ROWS` rows of a, one or two, with multiply-adds in place of tensor cores.

    Grid: cdiv(n_len, BLOCK_N).
    """
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = row_sums(a_ptr, b_ptr, cols, cols < n_len, k_len, stride_am, stride_bn, ROWS, BLOCK_N, BLOCK_K, STAGES)
    _store(
        sums, tl.arange(0, ROWS), cols, m_len, n_len, out_ptr, input_ptr, activation, alpha, beta,
        stride_cm, stride_cn, stride_om, stride_on, EPILOGUE,
    )  # fmt: skip
