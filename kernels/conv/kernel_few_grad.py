"""Triton kernel of input gradients of convolutions with few channels: all classes of a stride in one launch.

With a stride, input positions form *classes*: positions with equal remainders modulo the stride, which the same taps
read. Each program sums up a tile of one class over only these taps. The K dimension is the taps of a class
and, within each tap, the channels of the output's gradient in vectors of 8, as in `kernel_few`.
"""

import triton
import triton.language as tl
from nojit.kernels.conv.kernel_few import OUTSIDE, VECTOR, _is_below
from nojit.kernels.kernel_functions import (
    divide_by,
    divide_small,
    let_next_start,
    reciprocal,
    small_reciprocal,
)
from nojit.kernels.products.kernel_tiles import place_piece


@triton.jit
def _class_of(piece, size, taps, mul, pad):
    """Return, for one dimension, the rest of `piece` and its class: remainder, size, first tap, number of taps, first source position.

    Consecutive pieces are of different classes. Last comes the size of the largest class.
    """
    # a division takes far longer than the product with a reciprocal
    inverse = reciprocal(mul)
    piece, remainder = divide_by(piece, mul, inverse)
    its_size, _ = divide_by(size - remainder + mul - 1, mul, inverse)
    largest, _ = divide_by(size + mul - 1, mul, inverse)
    base, first = divide_by(remainder + pad, mul, inverse)
    count, _ = divide_by(taps - first + mul - 1, mul, inverse)
    return piece, remainder, its_size, first, count, base, largest


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
    out_d,
    grad_d,
    taps_d,
    mul_d,
    step_d,
    pad_d,
    splits,
    width,
    stride_gn,
    stride_gd,
    stride_gh,
    stride_gw,
    stride_on,
    stride_od,
    stride_oh,
    stride_ow,
    UNIT: tl.constexpr,
    DEEP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write the gradient by the input, [batch, out_h, out_w, UNIT * units], from grad [batch, grad_h, grad_w, 8 * vectors].

    Position p of grad and tap t of the weight meet input position ``p * mul + t * step - pad``; in each dimension, `mul`
    or `step` is 1. The weight is contiguous: [8 * vectors, taps_h, taps_w, UNIT * units] if UNIT is 8, and if it is 1,
    [units, taps_h, taps_w, 8 * vectors]. Strides of grad count in vectors of 8, those of the result in units of `UNIT`
    elements. With `DEEP`, grad, weight and result have a depth before the height; without it, nothing reads the params
    of depth. With `splits` > 1 (split-K), a program sums up one part of K and writes it to `partial_ptr`, fp32 [splits,
    positions of the result, width]. Grid: classes * splits * cdiv(positions of the largest class, BLOCK_M) *
    cdiv(channels of the result, BLOCK_N).
    """
    # bmm_merge_kernel may start early: it waits for the sums itself
    if splits > 1:
        let_next_start()
    piece, rest_w, size_w, first_w, count_w, base_w, most_w = _class_of(tl.program_id(0), out_w, taps_w, mul_w, pad_w)
    piece, rest_h, size_h, first_h, count_h, base_h, most_h = _class_of(piece, out_h, taps_h, mul_h, pad_h)
    if DEEP:
        piece, rest_d, size_d, first_d, count_d, base_d, most_d = _class_of(piece, out_d, taps_d, mul_d, pad_d)
    else:
        # images are volumes of one slice
        rest_d, size_d, first_d, count_d, base_d, most_d = 0, 1, 0, 1, 0, 1
        out_d, grad_d, taps_d, mul_d, step_d = 1, 1, 1, 1, 1
    n_len = units * UNIT
    m_len = batch * size_d * size_h * size_w
    largest = batch * most_d * most_h * most_w
    depth = count_d * count_h * count_w * vectors
    steps = tl.cdiv(depth, BLOCK_K // VECTOR)
    _, split, row, col, first, last = place_piece(piece, largest, n_len, steps, splits, BLOCK_M, BLOCK_N, GROUP)
    # the last tiles of smaller classes are empty
    last = tl.where(row < m_len, last, first)
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = rows < m_len
    in_cols = cols < n_len
    # where the stride is longer than the image, a class may be empty
    deep, high, wide = tl.maximum(size_d, 1), tl.maximum(size_h, 1), tl.maximum(size_w, 1)
    line, w = divide_by(rows, wide, reciprocal(wide))
    line, h = divide_by(line, high, reciprocal(high))
    index, d = line, line * 0
    if DEEP:
        index, d = divide_by(line, deep, reciprocal(deep))
    from_d, from_h, from_w = d + base_d, h + base_h, w + base_w
    # with a stride, neighbouring taps of a class read neighbouring positions
    ptrs = index.to(tl.int64) * stride_gn + from_d.to(tl.int64) * stride_gd
    ptrs = grad_ptr + (ptrs + from_h.to(tl.int64) * stride_gh + from_w.to(tl.int64) * stride_gw) * VECTOR
    from_h = tl.where(in_rows, from_h, OUTSIDE)
    lanes = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    # a class without taps has no steps
    taps_in_h, taps_in_w = tl.maximum(count_h, 1), tl.maximum(count_w, 1)
    # divisions would be half of the loop
    across_vectors, across_w, across_h = (
        small_reciprocal(vectors),
        small_reciprocal(taps_in_w),
        small_reciprocal(taps_in_h),
    )
    for step in range(first, last):
        vector = step * (BLOCK_K // VECTOR) + lanes // VECTOR
        tap, channel = divide_small(vector, vectors, across_vectors)
        tap_h, tap_w = divide_small(tap, taps_in_w, across_w)
        tap_d = tap * 0
        if DEEP:
            tap_d, tap_h = divide_small(tap_h, taps_in_h, across_h)
        # a vector past the end counts as outside of grad
        there = vector < depth
        # lanes of a vector are equal: the compiler cannot see it through divisions, and copies take whole vectors
        down, across = tl.max_constancy(tap_h * step_h, VECTOR), tl.max_constancy(tap_w * step_w, VECTOR)
        away = tl.max_constancy(tap_d * step_d, VECTOR)
        off = channel - away * stride_gd - down * stride_gh - across * stride_gw
        off = tl.max_constancy(off, VECTOR) * VECTOR + lanes % VECTOR
        at_d = from_d[:, None] - away[None, :]
        at_h = from_h[:, None] - tl.where(there, down, -OUTSIDE)[None, :]
        at_w = from_w[:, None] - across[None, :]
        inside = _is_below(at_d, grad_d) & _is_below(at_h, grad_h) & _is_below(at_w, grad_w)
        weight_tap = ((first_d + tap_d * mul_d) * taps_h + first_h + tap_h * mul_h) * taps_w + first_w + tap_w * mul_w
        taps = taps_d * taps_h * taps_w
        grad = tl.load(ptrs[:, None] + off[None, :], mask=inside, other=0.0)
        if UNIT == 1:
            w_off = tl.max_constancy(weight_tap * vectors + channel, VECTOR) * VECTOR + lanes % VECTOR
            w_ptrs = w_ptr + w_off[:, None] + (cols.to(tl.int64) * taps * vectors * VECTOR)[None, :]
        else:
            w_row = (channel * VECTOR + lanes % VECTOR) * taps + weight_tap
            w_ptrs = w_ptr + (w_row.to(tl.int64) * units * UNIT)[:, None] + cols[None, :]
        taken = tl.load(w_ptrs, mask=there[:, None] & in_cols[None, :], other=0.0)
        acc = tl.dot(grad, taken, acc)
    # divided in another order than above: values that lived through the loop would take registers
    line, place = divide_by(rows, high * wide, reciprocal(high * wide))
    h, w = divide_by(place, wide, reciprocal(wide))
    index, d = line, line * 0
    if DEEP:
        index, d = divide_by(line, deep, reciprocal(deep))
    index, z = index.to(tl.int64), (d * mul_d + rest_d).to(tl.int64)
    y, x = (h * mul_h + rest_h).to(tl.int64), (w * mul_w + rest_w).to(tl.int64)
    inside = in_rows[:, None] & in_cols[None, :]
    if splits == 1:
        places = (index * stride_on + z * stride_od + y * stride_oh + x * stride_ow) * UNIT
        tl.store((out_ptr + places)[:, None] + cols[None, :], acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        positions = (((split.to(tl.int64) * batch + index) * out_d + z) * out_h + y) * out_w + x
        tl.store((partial_ptr + positions * width)[:, None] + cols[None, :], acc, mask=inside)
