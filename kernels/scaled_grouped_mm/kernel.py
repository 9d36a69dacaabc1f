"""Triton kernel of grouped fp8 products, for any row alignment and any architecture."""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_groups import READ, first_cursor, next_cursor, place_in
from nojit.kernels.products.kernel_scales import add_steps
from nojit.kernels.products.kernel_tiles import spread


@triton.jit
def scaled_grouped_mm_kernel(
    a_ptr,
    b_ptr,
    offs_ptr,
    scale_a_ptr,
    scale_b_ptr,
    out_ptr,
    groups,
    m_len,
    n_len,
    k_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    stride_am,
    stride_bz,
    stride_bn,
    stride_sam,
    stride_sak,
    stride_sbz,
    stride_sbk,
    stride_sbn,
    stride_om,
    stride_on,
    BLOCK_SCALES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``(scale_a * a) @ (scale_b[g] * b[g])`` for the rows of each group g: a [m_len, k_len], b [groups, k_len, n_len].

    Both factors are e4m3, or bytes of it, with K contiguous. Scales are fp32: per row, and per column of each matrix;
    with `BLOCK_SCALES`, per row and 128 of K, and per 128 by 128 elements of each matrix. `offs_ptr` has the end of each
    group in rows; rows past the last end are not written. BLOCK_K divides 128. Programs are persistent: program p
    computes tiles p, p + programs, and so on. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    ahead = tl.arange(0, READ)
    cursor = first_cursor(offs_ptr, groups, m_len, n_len, ahead, BLOCK_M, BLOCK_N)
    span: tl.constexpr = 128 if BLOCK_SCALES else 1
    while cursor[1] < groups:
        group = cursor[1]
        row, col, left = place_in(cursor, n_len, BLOCK_M, BLOCK_N, GROUP)
        index_z = group.to(tl.int64)
        lines = tl.arange(0, BLOCK_M)
        lanes = tl.arange(0, BLOCK_K)
        rows = row + lines
        cols = col + tl.arange(0, BLOCK_N)
        in_rows = lines < left
        in_cols = cols < n_len
        a_ptrs = spread(a_ptr, rows, lanes, stride_am, 1)
        b_ptrs = spread(b_ptr + index_z * stride_bz, lanes, cols, 1, stride_bn)
        row_ptrs = scale_a_ptr + rows.to(tl.int64) * stride_sam
        column_ptrs = scale_b_ptr + index_z * stride_sbz + (cols // span).to(tl.int64) * stride_sbn
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        acc = add_steps(
            acc, a_ptrs, b_ptrs, row_ptrs, column_ptrs, in_rows, in_cols, group * 0, k_len, stride_sak, stride_sbk, False, False,
            BLOCK_SCALES, BLOCK_K,
        )  # fmt: skip
        if not BLOCK_SCALES:
            acc *= tl.load(row_ptrs, mask=in_rows, other=0.0)[:, None]
            acc *= tl.load(column_ptrs, mask=in_cols, other=0.0)[None, :]
        out_ptrs = spread(out_ptr, rows, cols, stride_om, stride_on)
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=in_rows[:, None] & in_cols[None, :])
        cursor = next_cursor(cursor, offs_ptr, groups, m_len, n_len, ahead, BLOCK_M, BLOCK_N)
