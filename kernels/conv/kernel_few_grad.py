"""Triton kernel of input gradients of convolutions of images with few channels: all classes of a stride in one launch.

A convolution with a stride meets input positions in *classes*: positions with equal remainders modulo the stride are met
by the same taps. Each program sums up a tile of one class over only these taps. The K dimension is the taps of a class
and, within each tap, the channels of the output's gradient in vectors of 8, as in `kernel_few`.
"""

import triton
import triton.language as tl
from nojit.kernels.conv.kernel_few import OUTSIDE, VECTOR, _is_below
from nojit.kernels.kernel_functions import let_next_start
from nojit.kernels.products.kernel_tiles import place_piece


@triton.jit
def _class_of(remainder, size, taps, mul, pad):
    """Return size, first tap, number of taps and first source position of the class with a `remainder`, in one dimension."""
    first = (remainder + pad) % mul
    return (size - remainder + mul - 1) // mul, first, (taps - first + mul - 1) // mul, (remainder + pad) // mul


@triton.jit
def conv_few_grad_kernel(
    grad_ptr,
    w_ptr,
    out_ptr,
    partial_ptr,
    batch,
    vectors,
    units,
    out_h,
    out_w,
    grad_h,
    grad_w,
    taps_h,
    taps_w,
    mul_h,
    mul_w,
    step_h,
    step_w,
    pad_h,
    pad_w,
    splits,
    width,
    stride_gn,
    stride_gh,
    stride_gw,
    stride_on,
    stride_oh,
    stride_ow,
    UNIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write the gradient by the input, [batch, out_h, out_w, UNIT * units], from grad [batch, grad_h, grad_w, 8 * vectors].

    Position p of grad and tap t of the weight meet input position ``p * mul + t * step - pad``; in each dimension, `mul`
    or `step` is 1. The weight is contiguous: [8 * vectors, taps_h, taps_w, UNIT * units] if UNIT is 8, and if it is 1,
    [units, taps_h, taps_w, 8 * vectors]. Strides of grad count in vectors of 8, those of the result in units of `UNIT`
    elements. With `splits` > 1 (split-K), a program sums up one part of K and writes it to `partial_ptr`, fp32 [splits,
    positions of the result, width]. Grid: mul_h * mul_w * splits * cdiv(positions of the largest class, BLOCK_M) *
    cdiv(channels of the result, BLOCK_N).
    """
    # bmm_merge_kernel may start early: it waits for the sums itself
    if splits > 1:
        let_next_start()
    number = tl.program_id(0)
    piece = number // (mul_h * mul_w)
    remainder = number - piece * (mul_h * mul_w)
    rest_h = remainder // mul_w
    rest_w = remainder - rest_h * mul_w
    size_h, first_h, count_h, base_h = _class_of(rest_h, out_h, taps_h, mul_h, pad_h)
    size_w, first_w, count_w, base_w = _class_of(rest_w, out_w, taps_w, mul_w, pad_w)
    n_len = units * UNIT
    m_len = batch * size_h * size_w
    largest = batch * ((out_h + mul_h - 1) // mul_h) * ((out_w + mul_w - 1) // mul_w)
    depth = count_h * count_w * vectors
    steps = tl.cdiv(depth, BLOCK_K // VECTOR)
    _, split, row, col, first, last = place_piece(piece, largest, n_len, steps, splits, BLOCK_M, BLOCK_N, GROUP)
    # the last tiles of smaller classes are empty
    last = tl.where(row < m_len, last, first)
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = rows < m_len
    in_cols = cols < n_len
    # where the stride is longer than the image, a class may be empty
    high, wide = tl.maximum(size_h, 1), tl.maximum(size_w, 1)
    line = rows // wide
    index = (line // high).to(tl.int64)
    h, w = line % high, rows % wide
    from_h, from_w = h + base_h, w + base_w
    # with a stride, neighbouring taps of a class read neighbouring positions
    ptrs = grad_ptr + (index * stride_gn + from_h.to(tl.int64) * stride_gh + from_w.to(tl.int64) * stride_gw) * VECTOR
    from_h = tl.where(in_rows, from_h, OUTSIDE)
    lanes = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(first, last):
        vector = step * (BLOCK_K // VECTOR) + lanes // VECTOR
        tap = vector // vectors
        tap_h = tap // count_w
        tap_w = tap - tap_h * count_w
        # a vector past the end counts as outside of grad
        there = vector < depth
        down, across = tap_h * step_h, tap_w * step_w
        channel = vector - tap * vectors
        off = (channel - down * stride_gh - across * stride_gw) * VECTOR + lanes % VECTOR
        at_h = from_h[:, None] - tl.where(there, down, -OUTSIDE)[None, :]
        at_w = from_w[:, None] - across[None, :]
        inside = _is_below(at_h, grad_h) & _is_below(at_w, grad_w)
        grad = tl.load(ptrs[:, None] + off[None, :], mask=inside, other=0.0)
        weight_tap = (first_h + tap_h * mul_h) * taps_w + first_w + tap_w * mul_w
        if UNIT == 1:
            w_off = (weight_tap * vectors + channel) * VECTOR + lanes % VECTOR
            w_ptrs = w_ptr + w_off[:, None] + (cols.to(tl.int64) * taps_h * taps_w * vectors * VECTOR)[None, :]
        else:
            w_row = (channel * VECTOR + lanes % VECTOR) * (taps_h * taps_w) + weight_tap
            w_ptrs = w_ptr + (w_row.to(tl.int64) * units * UNIT)[:, None] + cols[None, :]
        taken = tl.load(w_ptrs, mask=there[:, None] & in_cols[None, :], other=0.0)
        acc = tl.dot(grad, taken, acc)
    y, x = (h * mul_h + rest_h).to(tl.int64), (w * mul_w + rest_w).to(tl.int64)
    inside = in_rows[:, None] & in_cols[None, :]
    if splits == 1:
        places = (index * stride_on + y * stride_oh + x * stride_ow) * UNIT
        tl.store((out_ptr + places)[:, None] + cols[None, :], acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        positions = (split.to(tl.int64) * batch + index) * out_h * out_w + y * out_w + x
        tl.store((partial_ptr + positions * width)[:, None] + cols[None, :], acc, mask=inside)
