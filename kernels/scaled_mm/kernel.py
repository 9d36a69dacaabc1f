"""Triton kernels of fp8 matrix products, for any row alignment and any architecture, and the sum over split-K parts."""

import triton
import triton.language as tl
from nojit.kernels.gemm.kernel_tiles import place_piece, spread
from nojit.kernels.kernel_functions import wait_for_last

DEEP = tl.constexpr(128)
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
