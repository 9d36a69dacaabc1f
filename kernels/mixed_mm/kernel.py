"""Triton kernel of products with 4-bit weights, for any strides and any architecture."""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_tiles import place_piece, spread


@triton.jit
def _unpack(packed, dtype: tl.constexpr):
    """Return the 4-bit weights of bytes [rows, columns], minus 8, as [2 * rows, columns]: low nibbles are even rows."""
    narrow = packed.to(tl.uint8)
    low = (narrow & 15).to(tl.int8) - 8
    high = (narrow >> 4).to(tl.int8) - 8
    both = tl.join(low.to(tl.float32), high.to(tl.float32)).permute(0, 2, 1)
    return both.reshape(2 * packed.shape[0], packed.shape[1]).to(dtype)


@triton.jit
def _scale(weights, groups, depth, cols, in_depth, in_cols, GROUPS: tl.constexpr):
    """Return ``(weight + 8 - zero) * scale``, rounded once, for weights (minus 8) whose first row of w is `depth`."""
    scales_ptr, zeros_ptr, has_zeros, group_size, stride_sk, stride_sn, stride_zk, stride_zn = groups
    if GROUPS == "whole":
        # all rows of this step belong to one quantization group
        rows = depth // group_size + tl.zeros((1,), tl.int32)
        inside = in_cols
    else:
        rows = (depth + tl.arange(0, weights.shape[0])) // group_size
        inside = in_depth[:, None] & in_cols
    wide = weights.to(tl.float32)
    if has_zeros:
        zeros = tl.load(spread(zeros_ptr, rows, cols, stride_zk, stride_zn), mask=inside, other=0.0)
        wide += 8.0 - zeros.to(tl.float32)
    scales = tl.load(spread(scales_ptr, rows, cols, stride_sk, stride_sn), mask=inside, other=0.0)
    return (wide * scales.to(tl.float32)).to(weights.dtype)


@triton.jit
def mixed_mm_kernel(
    a_ptr,
    b_ptr,
    scales_ptr,
    zeros_ptr,
    out_ptr,
    partial_ptr,
    m_len,
    n_len,
    k_len,
    group_size,
    has_zeros,
    splits,
    width,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_sk,
    stride_sn,
    stride_zk,
    stride_zn,
    stride_om,
    stride_on,
    GROUPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``a @ w``: a [m_len, k_len], w [k_len, n_len] from the nibbles of b [k_len / 2, n_len]; any strides.

    With `GROUPS`, each column has a scale for every `group_size` rows of w and, if `has_zeros`, a zero point;
    ``"whole"`` states that `BLOCK_K` divides the group size. With `splits` > 1 (split-K), a program writes the sums of
    one part of K to `partial_ptr`, fp32 [splits, m_len, width]. Grid: splits * cdiv(m_len, BLOCK_M) * cdiv(n_len,
    BLOCK_N).
    """
    steps = tl.cdiv(k_len, BLOCK_K)
    _, split, row, col, first, last = place_piece(
        tl.program_id(0), m_len, n_len, steps, splits, BLOCK_M, BLOCK_N, GROUP
    )
    dtype: tl.constexpr = a_ptr.dtype.element_ty
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = (rows < m_len)[:, None]
    in_cols = (cols < n_len)[None, :]
    lanes = tl.arange(0, BLOCK_K)
    bytes_down = tl.arange(0, BLOCK_K // 2)
    start = first * BLOCK_K
    a_ptrs = spread(a_ptr + start.to(tl.int64) * stride_ak, rows, lanes, stride_am, stride_ak)
    b_ptrs = spread(b_ptr + (start // 2).to(tl.int64) * stride_bk, bytes_down, cols, stride_bk, stride_bn)
    groups = (scales_ptr, zeros_ptr, has_zeros, group_size, stride_sk, stride_sn, stride_zk, stride_zn)
    depth = tl.minimum(last * BLOCK_K, k_len) - start
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(depth // BLOCK_K):
        a = tl.load(a_ptrs, mask=in_rows, other=0)
        weights = _unpack(tl.load(b_ptrs, mask=in_cols, other=0), dtype)
        if GROUPS != "none":
            weights = _scale(weights, groups, start + step * BLOCK_K, cols, lanes >= 0, in_cols, GROUPS)
        acc = tl.dot(a, weights, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K // 2 * stride_bk
    left = depth % BLOCK_K
    if left > 0:
        # a is 0 past the end, so the weights there do not matter if they are finite
        a = tl.load(a_ptrs, mask=in_rows & (lanes < left)[None, :], other=0)
        packed = tl.load(b_ptrs, mask=in_cols & (2 * bytes_down < left)[:, None], other=0)
        weights = _unpack(packed, dtype)
        if GROUPS != "none":
            weights = _scale(weights, groups, start + depth - left, cols, lanes < left, in_cols, GROUPS)
        acc = tl.dot(a, weights, acc)
    inside = in_rows & in_cols
    if splits == 1:
        out_ptrs = spread(out_ptr, rows, cols, stride_om, stride_on)
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        partial_ptr += split.to(tl.int64) * m_len * width
        tl.store(spread(partial_ptr, rows, cols, width, 1), acc, mask=inside)
