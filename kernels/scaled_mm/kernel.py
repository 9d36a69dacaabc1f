"""Triton kernels of fp8 matrix products, for any row alignment and any architecture, and the sum over split-K parts."""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import wait_for_last
from nojit.kernels.products.kernel_scales import add_steps
from nojit.kernels.products.kernel_tiles import place_piece, spread


@triton.jit
def scaled_mm_kernel(
    a_ptr,
    b_ptr,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    out_ptr,
    partial_ptr,
    m_len,
    n_len,
    k_len,
    splits,
    width,
    has_bias,
    a_span,
    b_span,
    stride_am,
    stride_bn,
    stride_sam,
    stride_sak,
    stride_sbk,
    stride_sbn,
    stride_bias,
    stride_om,
    stride_on,
    A_E5M2: tl.constexpr,
    B_E5M2: tl.constexpr,
    BLOCK_SCALES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``scale_a * scale_b * (a @ b) + bias``: a [m_len, k_len] row-major, b [k_len, n_len] column-major, fp8 or bytes.

    `A_E5M2` and `B_E5M2` give the format of bytes: e5m2, or else e4m3. Scales are fp32: per row and column or, with
    strides of 0, per tensor; with `BLOCK_SCALES`, per 128 of K and per `a_span` rows and `b_span` columns. With
    `splits` > 1 (split-K), a program multiplies one part of K and writes its sums to `partial_ptr`, fp32 [splits,
    m_len, width]; `scaled_mm_merge_kernel` adds up the parts, scales them and adds the bias. BLOCK_K divides 128. Grid:
    splits * cdiv(m_len, BLOCK_M) * cdiv(n_len, BLOCK_N).
    """
    steps = tl.cdiv(k_len, BLOCK_K)
    _, split, row, col, first, last = place_piece(
        tl.program_id(0), m_len, n_len, steps, splits, BLOCK_M, BLOCK_N, GROUP
    )
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    lanes = tl.arange(0, BLOCK_K)
    in_rows = rows < m_len
    in_cols = cols < n_len
    start = first * BLOCK_K
    a_ptrs = spread(a_ptr + start, rows, lanes, stride_am, 1)
    b_ptrs = spread(b_ptr + start, lanes, cols, 1, stride_bn)
    row_ptrs = scale_a_ptr + (rows // a_span).to(tl.int64) * stride_sam
    column_ptrs = scale_b_ptr + (cols // b_span).to(tl.int64) * stride_sbn
    depth = tl.minimum(last * BLOCK_K, k_len) - start
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    acc = add_steps(
        acc, a_ptrs, b_ptrs, row_ptrs, column_ptrs, in_rows, in_cols, start, depth, stride_sak, stride_sbk, A_E5M2, B_E5M2,
        BLOCK_SCALES, BLOCK_K,
    )  # fmt: skip
    inside = in_rows[:, None] & in_cols[None, :]
    if splits == 1:
        if not BLOCK_SCALES:
            acc *= tl.load(row_ptrs, mask=in_rows, other=0.0)[:, None]
            acc *= tl.load(column_ptrs, mask=in_cols, other=0.0)[None, :]
        if has_bias != 0:
            acc += tl.load(bias_ptr + cols.to(tl.int64) * stride_bias, mask=in_cols, other=0.0).to(tl.float32)[None, :]
        out_ptrs = spread(out_ptr, rows, cols, stride_om, stride_on)
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        partial_ptr += split.to(tl.int64) * m_len * width
        tl.store(spread(partial_ptr, rows, cols, width, 1), acc, mask=inside)


@triton.jit
def scaled_mm_merge_kernel(
    partial_ptr,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    out_ptr,
    m_len,
    n_len,
    splits,
    width,
    scaled,
    has_bias,
    stride_sam,
    stride_sbn,
    stride_bias,
    stride_om,
    stride_on,
    BLOCK: tl.constexpr,
):
    """Add up split-K parts, fp32 [splits, m_len, width], in order, scale them unless `scaled` is 1, and add the bias.

    Grid: m_len * cdiv(n_len, BLOCK).
    """
    wait_for_last()
    across = tl.cdiv(n_len, BLOCK)
    cols = tl.program_id(0) % across * BLOCK + tl.arange(0, BLOCK)
    row = (tl.program_id(0) // across).to(tl.int64)
    inside = cols < n_len
    wide = cols.to(tl.int64)
    size = m_len.to(tl.int64) * width
    partial_ptrs = partial_ptr + row * width + cols
    acc = tl.zeros((BLOCK,), tl.float32)
    for _ in range(splits):
        acc += tl.load(partial_ptrs, mask=inside, other=0.0)
        partial_ptrs += size
    if scaled == 0:
        acc *= tl.load(scale_a_ptr + row * stride_sam)
        acc *= tl.load(scale_b_ptr + wide * stride_sbn, mask=inside, other=0.0)
    if has_bias != 0:
        acc += tl.load(bias_ptr + wide * stride_bias, mask=inside, other=0.0).to(tl.float32)
    out_ptrs = out_ptr + row * stride_om + wide * stride_on
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
