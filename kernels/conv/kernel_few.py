"""Triton kernels of convolutions with few channels, stored channels-last: implicit GEMM over vectors of 8 channels.

A *tap* is a position in the weight. The K dimension of the product is all taps and, within each tap, its channels; a
step of K may span several taps, so no lane is wasted. A lane vector of 8 channels lies in one tap, so each copy into
shared memory takes 16 bytes. Inputs whose channels are not a multiple of 8 are first *unfolded*: `conv_unfold_kernel`
writes, for each position of the result's width, the channels of all taps of a row of the weight, padded with zeros to a
multiple of 8, and the weight in the same order. Volumes are images whose rows are those of all slices, one slice after
the other; only the kernel with `DEEP` knows where a slice ends.
"""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import (
    divide,
    divide_by,
    divide_small,
    let_next_start,
    reciprocal,
    small_reciprocal,
    wait_for_last,
)
from nojit.kernels.products.kernel_tiles import place_piece

OUTSIDE = tl.constexpr(-(1 << 30))
"""A coordinate that stays outside of every image when another of these, or the reach of a weight, is added."""
VECTOR = tl.constexpr(8)
"""Channels per copy: 16 bytes."""


@triton.jit
def _is_below(value, size):
    """Return whether ``0 <= value < size``, in one comparison."""
    return tl.cast(value, tl.uint32) < tl.cast(size, tl.uint32)


@triton.jit
def conv_few_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    bias_ptr,
    partial_ptr,
    batch,
    vectors,
    units,
    out_h,
    out_w,
    x_h,
    x_w,
    taps_h,
    taps_w,
    mul_h,
    mul_w,
    step_h,
    step_w,
    start_h,
    start_w,
    high,
    x_d,
    taps_high,
    mul_d,
    step_d,
    start_d,
    splits,
    width,
    has_bias,
    stride_xn,
    stride_xd,
    stride_xh,
    stride_xw,
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
    """Write ``bias + sum over taps and channels of x * w``; x is [batch, x_h, x_w, 8 * vectors], out has `UNIT * units` channels.

    Position p of the result and tap t read position ``p * mul + t * step + start``; positions outside count as 0. The
    weight is contiguous, [channels of the result, taps_h, taps_w, 8 * vectors]. Strides of x count in vectors of 8,
    those of the result in units of `UNIT` elements. With `DEEP`, x is [batch, x_d, x_h, x_w, 8 * vectors]; `out_h` and
    `taps_h` are rows of all slices, `high` and `taps_high` those of one. Without it, nothing reads these two and the
    params of depth. With `splits` > 1 (split-K), a program sums up one part of K and writes it without the bias to
    `partial_ptr`, fp32 [splits, positions, width]. Grid: splits * cdiv(positions, BLOCK_M) * cdiv(channels of the
    result, BLOCK_N).
    """
    # bmm_merge_kernel may start early: it waits for the sums itself
    if splits > 1:
        let_next_start()
    n_len = units * UNIT
    m_len = batch * out_h * out_w
    depth = taps_h * taps_w * vectors
    steps = tl.cdiv(depth, BLOCK_K // VECTOR)
    _, split, row, col, first, last = place_piece(
        tl.program_id(0), m_len, n_len, steps, splits, BLOCK_M, BLOCK_N, GROUP
    )
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = rows < m_len
    in_cols = cols < n_len
    line, w = divide_by(rows, out_w, reciprocal(out_w))
    line, h = divide_by(line, out_h, reciprocal(out_h))
    x_index = line.to(tl.int64) * stride_xn
    if DEEP:
        d, h = divide_by(h, high, reciprocal(high))
        from_d = d * mul_d + start_d
        x_index += from_d.to(tl.int64) * stride_xd
    from_h, from_w = h * mul_h + start_h, w * mul_w + start_w
    x_ptrs = x_ptr + (x_index + from_h.to(tl.int64) * stride_xh + from_w.to(tl.int64) * stride_xw) * VECTOR
    from_h = tl.where(in_rows, from_h, OUTSIDE)
    lanes = tl.arange(0, BLOCK_K)
    w_ptrs = w_ptr + (cols.to(tl.int64) * depth * VECTOR)[None, :] + lanes[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    # conv_unfold_kernel may still write x and w
    wait_for_last()
    # divisions would be a quarter of the loop
    by_vectors, by_w, by_high = small_reciprocal(vectors), small_reciprocal(taps_w), small_reciprocal(taps_high)
    for step in range(first, last):
        vector = step * (BLOCK_K // VECTOR) + lanes // VECTOR
        tap, channel = divide_small(vector, vectors, by_vectors)
        tap_h, tap_w = divide_small(tap, taps_w, by_w)
        tap_d = tap * 0
        if DEEP:
            tap_d, tap_h = divide_small(tap_h, taps_high, by_high)
        # lanes of a vector are equal: the compiler cannot see it through divisions, and copies take whole vectors
        down, across = tl.max_constancy(tap_h * step_h, VECTOR), tl.max_constancy(tap_w * step_w, VECTOR)
        away = tl.max_constancy(tap_d * step_d, VECTOR)
        off = channel + away * stride_xd + down * stride_xh + across * stride_xw
        off = tl.max_constancy(off, VECTOR) * VECTOR + lanes % VECTOR
        there = vector < depth
        at_h = from_h[:, None] + tl.where(there, down, OUTSIDE)[None, :]
        at_w = from_w[:, None] + across[None, :]
        inside_x = _is_below(at_h, x_h) & _is_below(at_w, x_w)
        if DEEP:
            inside_x &= _is_below(from_d[:, None] + away[None, :], x_d)
        x = tl.load(x_ptrs[:, None] + off[None, :], mask=inside_x, other=0.0)
        taken = tl.load(w_ptrs + step * BLOCK_K, mask=there[:, None] & in_cols[None, :], other=0.0)
        acc = tl.dot(x, taken, acc)
    inside = in_rows[:, None] & in_cols[None, :]
    if splits == 1:
        if has_bias != 0:
            acc += tl.load(bias_ptr + cols, mask=in_cols, other=0.0).to(tl.float32)[None, :]
        # divided in another order than above: values that lived through the loop would take registers
        height = out_h
        if DEEP:
            height = high
        line, place = divide(rows, height * out_w)
        h, w = divide(place, out_w)
        places = h.to(tl.int64) * stride_oh + w.to(tl.int64) * stride_ow
        if DEEP:
            slices = out_h // high
            line, d = divide(line, slices)
            places += d.to(tl.int64) * stride_od
        places = (places + line.to(tl.int64) * stride_on) * UNIT
        tl.store((out_ptr + places)[:, None] + cols[None, :], acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        partial_ptrs = partial_ptr + (split * m_len.to(tl.int64) + rows) * width
        tl.store(partial_ptrs[:, None] + cols[None, :], acc, mask=inside)


@triton.jit
def _unfold(ptrs, out_ptrs, here, at, stride_c, stride_t, step, limit, channels, taps, wide, LANES: tl.constexpr):
    """Copy `taps` taps of `channels` channels of each row to a row of `wide` elements; the rest of the row becomes 0.

    `ptrs` point to the first channel of tap 0. `at` is the width coordinate of tap 0, which grows by `step` from tap to
    tap; coordinates outside of [0, limit) count as 0. `here` tells which rows exist.
    """
    for start in range(0, wide, LANES):
        lanes = start + tl.arange(0, LANES)
        tap = lanes // channels
        channel = lanes - tap * channels
        off = tap.to(tl.int64) * stride_t + channel.to(tl.int64) * stride_c
        inside = here[:, None] & (tap < taps)[None, :] & _is_below(at[:, None] + (tap * step)[None, :], limit)
        value = tl.load(ptrs[:, None] + off[None, :], mask=inside, other=0.0)
        tl.store(out_ptrs[:, None] + lanes[None, :], value, mask=here[:, None] & (lanes < wide)[None, :])


@triton.jit
def _unfold_joined(ptrs, out_ptrs, here, at, limit, channels, taps, wide, LANES: tl.constexpr):
    """Do what `_unfold` does where each tap follows the one before in memory: a row is read from consecutive elements."""
    first = tl.minimum(tl.maximum(-at, 0), taps) * channels
    last = tl.where(here, tl.maximum(tl.minimum(limit - at, taps), 0) * channels, 0)
    for start in range(0, wide, LANES):
        lanes = start + tl.arange(0, LANES)
        inside = (lanes[None, :] >= first[:, None]) & (lanes[None, :] < last[:, None])
        value = tl.load(ptrs[:, None] + lanes[None, :], mask=inside, other=0.0)
        tl.store(out_ptrs[:, None] + lanes[None, :], value, mask=here[:, None] & (lanes < wide)[None, :])


@triton.jit
def conv_unfold_kernel(
    x_ptr,
    w_ptr,
    x_out_ptr,
    w_out_ptr,
    batch,
    channels,
    results,
    x_h,
    x_w,
    out_w,
    taps_h,
    taps_w,
    together,
    vectors,
    mul_w,
    step_w,
    start_w,
    stride_xn,
    stride_xc,
    stride_xh,
    stride_xw,
    stride_wn,
    stride_wc,
    stride_wh,
    stride_ww,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    """Write x as [batch, x_h, out_w, 8 * vectors], and the weight as [results, taps_h, taps_w / together, 8 * vectors].

    A row has `together` taps, each with all `channels` channels, and then zeros. Row p of x's width has the taps at
    ``p * mul_w + t * step_w + start_w``, which count as 0 outside of x. Grid: cdiv(batch * x_h * out_w, BLOCK) +
    cdiv(results * taps_h * taps_w / together, BLOCK).
    """
    # the kernel that reads the copies may start early: it waits for them itself
    let_next_start()
    number = tl.program_id(0)
    count = batch * x_h * out_w
    programs = tl.cdiv(count, BLOCK)
    wide = vectors * VECTOR
    if number < programs:
        rows = number * BLOCK + tl.arange(0, BLOCK)
        line, place = divide(rows, out_w)
        image, row = divide(line, x_h)
        at = place * mul_w + start_w
        off = image.to(tl.int64) * stride_xn + row.to(tl.int64) * stride_xh
        ptrs = x_ptr + off + at.to(tl.int64) * stride_xw
        out_ptrs = x_out_ptr + rows.to(tl.int64) * wide
        here = rows < count
        if (stride_xc == 1) & ((together == 1) | ((step_w == 1) & (stride_xw == channels))):
            _unfold_joined(ptrs, out_ptrs, here, at, x_w, channels, together, wide, LANES)
        else:
            stride_t = step_w.to(tl.int64) * stride_xw
            _unfold(ptrs, out_ptrs, here, at, stride_xc, stride_t, step_w, x_w, channels, together, wide, LANES)
    else:
        rows = (number - programs) * BLOCK + tl.arange(0, BLOCK)
        parts = taps_w // together
        line = rows // parts
        at = rows % parts * together
        off = (line // taps_h).to(tl.int64) * stride_wn + (line % taps_h).to(tl.int64) * stride_wh
        ptrs = w_ptr + off + at.to(tl.int64) * stride_ww
        out_ptrs = w_out_ptr + rows.to(tl.int64) * wide
        here = rows < results * taps_h * parts
        _unfold(ptrs, out_ptrs, here, at, stride_wc, stride_ww, 1, taps_w, channels, together, wide, LANES)
