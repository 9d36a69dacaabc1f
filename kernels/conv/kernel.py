"""Triton kernels of convolutions as implicit GEMM: matrix products whose operands are gathered on the fly.

A *position* is a point in three spatial dimensions; images have size 1 in the first. A *tap* is a position in the
weight. In each dimension, position p of a result and tap t of the weight read source position ``p * mul + t * step +
start``; positions outside the source count as 0. Offsets that grow with a tensor are 64-bit. The positions of a result,
and the length of each sum, must be less than 2^31.
"""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_tiles import add_product, place_piece


@triton.jit
def _position_of(number, size_d, size_h, size_w):
    """Return batch, depth, height and width of result position `number`, counted over the whole batch."""
    row = number // size_w
    plane = row // size_h
    return plane // size_d, plane % size_d, row % size_h, number % size_w


@triton.jit
def _offset_of(d, h, w, stride_d, stride_h, stride_w):
    """Return the memory offset of a position (d, h, w), int64."""
    return d.to(tl.int64) * stride_d + h.to(tl.int64) * stride_h + w.to(tl.int64) * stride_w


@triton.jit
def _tap_of(number, taps_h, taps_w):
    """Return the position (d, h, w) in the weight of tap `number`."""
    return number // (taps_h * taps_w), number // taps_w % taps_h, number % taps_w


@triton.jit
def _is_inside(d, h, w, size_d, size_h, size_w):
    """Return whether positions (d, h, w) lie inside a tensor of the given spatial sizes."""
    return (d >= 0) & (d < size_d) & (h >= 0) & (h < size_h) & (w >= 0) & (w < size_w)


@triton.jit
def conv_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    bias_ptr,
    partial_ptr,
    batch,
    groups,  # noqa: ARG001 - the manifest's grid reads it
    c_len,
    n_len,
    out_d,
    out_h,
    out_w,
    x_d,
    x_h,
    x_w,
    taps_d,
    taps_h,
    taps_w,
    mul_d,
    mul_h,
    mul_w,
    step_d,
    step_h,
    step_w,
    start_d,
    start_h,
    start_w,
    splits,
    width,
    has_bias,
    stride_xn,
    stride_xc,
    stride_xd,
    stride_xh,
    stride_xw,
    stride_wg,
    stride_wn,
    stride_wc,
    stride_wd,
    stride_wh,
    stride_ww,
    stride_on,
    stride_oc,
    stride_od,
    stride_oh,
    stride_ow,
    PRECISION: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``bias + sum over taps and channels of x * w``; x is [batch, groups * c_len, x_d, x_h, x_w].

    The result is [batch, groups * n_len, out_d, out_h, out_w]. The weight has `n_len` by `c_len` channels for each
    group and tap, with any strides. The K dimension of the product is the taps, and within each tap its channels;
    `WHOLE` states that `BLOCK_K` divides c_len, so that a step of K lies in one tap. With `splits` > 1 (split-K, one
    group only), a program sums up one part of K and writes it without the bias to `partial_ptr`, fp32 [splits,
    positions, width]; `bmm_merge_kernel` adds up the parts and the bias. Grid: groups * splits * cdiv(positions,
    BLOCK_M) * cdiv(n_len, BLOCK_N).
    """
    m_len = batch * out_d * out_h * out_w
    depth = taps_d * taps_h * taps_w * c_len
    steps = tl.cdiv(depth, BLOCK_K)
    group, split, row, col, first, last = place_piece(
        tl.program_id(0), m_len, n_len, steps, splits, BLOCK_M, BLOCK_N, GROUP
    )
    group = group.to(tl.int64)
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = rows < m_len
    in_cols = (cols < n_len)[None, :]
    index, d, h, w = _position_of(rows, out_d, out_h, out_w)
    from_d = d * mul_d + start_d
    from_h = h * mul_h + start_h
    from_w = w * mul_w + start_w
    x_ptrs = x_ptr + group * c_len * stride_xc + index.to(tl.int64) * stride_xn
    x_ptrs += _offset_of(from_d, from_h, from_w, stride_xd, stride_xh, stride_xw)
    w_ptrs = w_ptr + group * stride_wg + cols.to(tl.int64) * stride_wn
    lanes = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(first, last):
        if WHOLE:
            # the whole step is one tap, so only rows can be outside
            across = c_len // BLOCK_K
            t_d, t_h, t_w = _tap_of(step // across, taps_h, taps_w)
            c = step % across * BLOCK_K + lanes
            inside = in_rows & _is_inside(
                from_d + t_d * step_d, from_h + t_h * step_h, from_w + t_w * step_w, x_d, x_h, x_w
            )
            mask_x, mask_w = inside[:, None], in_cols
        else:
            k = step * BLOCK_K + lanes
            t_d, t_h, t_w = _tap_of(k // c_len, taps_h, taps_w)
            c = k % c_len
            mask_x = in_rows[:, None] & _is_inside(
                from_d[:, None] + (t_d * step_d)[None, :],
                from_h[:, None] + (t_h * step_h)[None, :],
                from_w[:, None] + (t_w * step_w)[None, :],
                x_d,
                x_h,
                x_w,
            )
            mask_x = mask_x & (k < depth)[None, :]
            mask_w = (k < depth)[:, None] & in_cols
        x_off = _offset_of(t_d * step_d, t_h * step_h, t_w * step_w, stride_xd, stride_xh, stride_xw)
        x_off += c.to(tl.int64) * stride_xc
        w_off = _offset_of(t_d, t_h, t_w, stride_wd, stride_wh, stride_ww) + c.to(tl.int64) * stride_wc
        x = tl.load(x_ptrs[:, None] + x_off[None, :], mask=mask_x, other=0.0)
        taken = tl.load(w_ptrs[None, :] + w_off[:, None], mask=mask_w, other=0.0)
        acc = add_product(acc, x, taken, PRECISION)
    inside = in_rows[:, None] & in_cols
    if splits == 1:
        if has_bias != 0:
            acc += tl.load(bias_ptr + group * n_len + cols, mask=cols < n_len, other=0.0).to(tl.float32)[None, :]
        out_ptrs = out_ptr + index.to(tl.int64) * stride_on + _offset_of(d, h, w, stride_od, stride_oh, stride_ow)
        out_off = (group * n_len + cols.to(tl.int64)) * stride_oc
        tl.store(out_ptrs[:, None] + out_off[None, :], acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        partial_ptrs = partial_ptr + (split * m_len.to(tl.int64) + rows) * width
        tl.store(partial_ptrs[:, None] + cols[None, :], acc, mask=inside)


@triton.jit
def conv_weight_grad_kernel(
    grad_ptr,
    x_ptr,
    out_ptr,
    partial_ptr,
    batch,
    groups,
    c_len,
    n_len,
    out_d,
    out_h,
    out_w,
    x_d,
    x_h,
    x_w,
    taps_d,
    taps_h,
    taps_w,
    mul_d,
    mul_h,
    mul_w,
    step_d,
    step_h,
    step_w,
    start_d,
    start_h,
    start_w,
    splits,
    width,
    summed,
    stride_gn,
    stride_gc,
    stride_gd,
    stride_gh,
    stride_gw,
    stride_xn,
    stride_xc,
    stride_xd,
    stride_xh,
    stride_xw,
    stride_on,
    stride_oc,
    stride_od,
    stride_oh,
    stride_ow,
    PRECISION: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``sum over positions of grad * x``, the gradient by the weight of `conv_kernel`.

    grad is [batch, groups * n_len, out_d, out_h, out_w], x [batch, groups * c_len, x_d, x_h, x_w]. The result is
    [groups * n_len, c_len, taps_d, taps_h, taps_w], where the channels and taps of a row fill contiguous memory.
    `WHOLE` states that `BLOCK_N` divides c_len, so that a tile's columns lie in one tap. With `summed` 1 the kernel
    writes the result. With 0 it writes sums over parts of the positions to `partial_ptr`, fp32 [splits, groups * n_len,
    width], in the result's order; `bmm_merge_kernel` adds them up. Grid: groups * splits * cdiv(n_len, BLOCK_M) *
    cdiv(taps_d * taps_h * taps_w * c_len, BLOCK_N).
    """
    across = taps_d * taps_h * taps_w * c_len
    m_len = batch * out_d * out_h * out_w
    steps = tl.cdiv(m_len, BLOCK_K)
    group, split, row, col, first, last = place_piece(
        tl.program_id(0), n_len, across, steps, splits, BLOCK_M, BLOCK_N, GROUP
    )
    group = group.to(tl.int64)
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = (rows < n_len)[:, None]
    in_cols = (cols < across)[None, :]
    if WHOLE:
        # one tap for the whole tile
        t_d, t_h, t_w = _tap_of(col // c_len, taps_h, taps_w)
        c = col % c_len + tl.arange(0, BLOCK_N)
    else:
        t_d, t_h, t_w = _tap_of(cols // c_len, taps_h, taps_w)
        c = cols % c_len
    from_d = t_d * step_d + start_d
    from_h = t_h * step_h + start_h
    from_w = t_w * step_w + start_w
    channels = group * n_len + rows
    grad_ptrs = grad_ptr + channels * stride_gc
    x_off = (group * c_len + c) * stride_xc + _offset_of(from_d, from_h, from_w, stride_xd, stride_xh, stride_xw)
    x_ptrs = x_ptr + x_off
    lanes = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(first, last):
        number = step * BLOCK_K + lanes
        there = number < m_len
        index, d, h, w = _position_of(number, out_d, out_h, out_w)
        grad_off = index.to(tl.int64) * stride_gn + _offset_of(d, h, w, stride_gd, stride_gh, stride_gw)
        at_d, at_h, at_w = d * mul_d, h * mul_h, w * mul_w
        off = index.to(tl.int64) * stride_xn + _offset_of(at_d, at_h, at_w, stride_xd, stride_xh, stride_xw)
        if WHOLE:
            inside = (there & _is_inside(at_d + from_d, at_h + from_h, at_w + from_w, x_d, x_h, x_w))[:, None]
        else:
            inside = there[:, None] & _is_inside(
                at_d[:, None] + from_d[None, :],
                at_h[:, None] + from_h[None, :],
                at_w[:, None] + from_w[None, :],
                x_d,
                x_h,
                x_w,
            )
        grad = tl.load(grad_ptrs[:, None] + grad_off[None, :], mask=in_rows & there[None, :], other=0.0)
        x = tl.load(x_ptrs[None, :] + off[:, None], mask=inside & in_cols, other=0.0)
        acc = add_product(acc, grad, x, PRECISION)
    inside = in_rows & in_cols
    out_off = _offset_of(t_d, t_h, t_w, stride_od, stride_oh, stride_ow) + c.to(tl.int64) * stride_oc
    if summed != 0:
        out_ptrs = out_ptr + channels * stride_on
        tl.store(out_ptrs[:, None] + out_off[None, :], acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        partial_ptrs = partial_ptr + (split * groups.to(tl.int64) * n_len + channels) * width
        tl.store(partial_ptrs[:, None] + out_off[None, :], acc, mask=inside)
