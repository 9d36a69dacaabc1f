"""Triton kernels of grouped products, for any strides and any architecture."""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_groups import READ, first_cursor, next_cursor, place_in, range_of
from nojit.kernels.products.kernel_tiles import multiply, place_piece, spread


@triton.jit
def grouped_mm_kernel(
    a_ptr,
    b_ptr,
    offs_ptr,
    bias_ptr,
    out_ptr,
    groups,
    m_len,
    n_len,
    k_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    has_bias,
    stride_am,
    stride_ak,
    stride_bz,
    stride_bk,
    stride_bn,
    stride_cz,
    stride_cn,
    stride_om,
    stride_on,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``a @ b[g] + bias[g]`` for the rows of each group g: a [m_len, k_len], b [groups, k_len, n_len], any strides.

    `offs_ptr` has the end of each group in rows; rows past the last end are not written. Programs are persistent:
    program p computes tiles p, p + programs, and so on. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads; `has_bias`: 1 if the bias is added, else 0.
    """
    ahead = tl.arange(0, READ)
    cursor = first_cursor(offs_ptr, groups, m_len, n_len, ahead, BLOCK_M, BLOCK_N)
    lanes = tl.arange(0, BLOCK_K)
    while cursor[1] < groups:
        group = cursor[1]
        row, col, left = place_in(cursor, n_len, BLOCK_M, BLOCK_N, GROUP)
        index_z = group.to(tl.int64)
        lines = tl.arange(0, BLOCK_M)
        rows = row + lines
        cols = col + tl.arange(0, BLOCK_N)
        in_rows = (lines < left)[:, None]
        in_cols = (cols < n_len)[None, :]
        a_ptrs = spread(a_ptr, rows, lanes, stride_am, stride_ak)
        b_ptrs = spread(b_ptr + index_z * stride_bz, lanes, cols, stride_bk, stride_bn)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        acc = multiply(acc, a_ptrs, b_ptrs, in_rows, in_cols, k_len, stride_ak, stride_bk, PRECISION, BLOCK_K)
        if has_bias != 0:
            bias_ptrs = bias_ptr + index_z * stride_cz + cols.to(tl.int64) * stride_cn
            acc += tl.load(bias_ptrs, mask=cols < n_len, other=0.0).to(tl.float32)[None, :]
        out_ptrs = spread(out_ptr, rows, cols, stride_om, stride_on)
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=in_rows & in_cols)
        cursor = next_cursor(cursor, offs_ptr, groups, m_len, n_len, ahead, BLOCK_M, BLOCK_N)


@triton.jit
def grouped_mm_depth_kernel(
    a_ptr,
    b_ptr,
    offs_ptr,
    out_ptr,
    groups,  # noqa: ARG001 - the manifest's grid reads it
    m_len,
    n_len,
    k_len,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_oz,
    stride_om,
    stride_on,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``a[:, g] @ b[g]`` for each group g, a range of K: a [m_len, k_len], b [k_len, n_len], any strides.

    The result is [groups, m_len, n_len]; that of an empty group is 0. `offs_ptr` has the end of each group in K; K past
    the last end is not read. Grid: groups * cdiv(m_len, BLOCK_M) * cdiv(n_len, BLOCK_N).

    `groups`: number of groups, which the manifest's grid reads.
    """
    group, _, row, col, _, _ = place_piece(tl.program_id(0), m_len, n_len, 0, 1, BLOCK_M, BLOCK_N, GROUP)
    start, end = range_of(group, offs_ptr, k_len)
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = (rows < m_len)[:, None]
    in_cols = (cols < n_len)[None, :]
    lanes = tl.arange(0, BLOCK_K)
    first = start.to(tl.int64)
    a_ptrs = spread(a_ptr + first * stride_ak, rows, lanes, stride_am, stride_ak)
    b_ptrs = spread(b_ptr + first * stride_bk, lanes, cols, stride_bk, stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    acc = multiply(acc, a_ptrs, b_ptrs, in_rows, in_cols, end - start, stride_ak, stride_bk, PRECISION, BLOCK_K)
    out_ptrs = spread(out_ptr + group.to(tl.int64) * stride_oz, rows, cols, stride_om, stride_on)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=in_rows & in_cols)
