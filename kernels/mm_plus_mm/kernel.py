"""Triton kernel of ``a @ b + c @ d``, for any strides and any architecture."""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_tiles import multiply, place_tile, spread


@triton.jit
def mm_plus_mm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    d_ptr,
    out_ptr,
    m_len,
    n_len,
    k_len,
    more_len,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_ck,
    stride_dk,
    stride_dn,
    stride_om,
    stride_on,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``a @ b + c @ d``: a [m_len, k_len], b [k_len, n_len], c [m_len, more_len], d [more_len, n_len]; any strides.

    Grid: cdiv(m_len, BLOCK_M) * cdiv(n_len, BLOCK_N).
    """
    row, col = place_tile(tl.program_id(0), m_len, n_len, BLOCK_M, BLOCK_N, GROUP)
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = (rows < m_len)[:, None]
    in_cols = (cols < n_len)[None, :]
    lanes = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    a_ptrs = spread(a_ptr, rows, lanes, stride_am, stride_ak)
    b_ptrs = spread(b_ptr, lanes, cols, stride_bk, stride_bn)
    acc = multiply(acc, a_ptrs, b_ptrs, in_rows, in_cols, k_len, stride_ak, stride_bk, PRECISION, BLOCK_K)
    c_ptrs = spread(c_ptr, rows, lanes, stride_cm, stride_ck)
    d_ptrs = spread(d_ptr, lanes, cols, stride_dk, stride_dn)
    acc = multiply(acc, c_ptrs, d_ptrs, in_rows, in_cols, more_len, stride_ck, stride_dk, PRECISION, BLOCK_K)
    out_ptrs = spread(out_ptr, rows, cols, stride_om, stride_on)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=in_rows & in_cols)
