"""Triton kernels of weight gradients of images with few channels, stored channels-last: products over boxes of positions.

The K dimension is the positions of the output's gradient, in *boxes* of `BLOCK_K` positions of a few images, rows and
columns. Rows of a tile are a tap (a position in the weight) and a channel of the input. A vector of 8 channels lies in
one tap, so each copy into shared memory takes 16 bytes, and channels are padded to multiples of 8 only. Columns are channels of the
output.
"""

import triton
import triton.language as tl
from nojit.kernels.conv.kernel_few import OUTSIDE, VECTOR, _is_below
from nojit.kernels.kernel_functions import wait_for_last
from nojit.kernels.products.kernel_tiles import place_piece


@triton.jit
def conv_few_weight_grad_kernel(
    grad_ptr,
    x_ptr,
    out_ptr,
    batch,
    results,
    vectors,
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
    boxes_n,
    boxes_h,
    boxes_w,
    box_h,
    box_w,
    splits,
    stride_gn,
    stride_gh,
    stride_gw,
    stride_xn,
    stride_xh,
    stride_xw,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``sum over positions of grad * x``, [splits, 8 * results, taps_h, taps_w, 8 * vectors], dense.

    grad is [batch, out_h, out_w, 8 * results], x [batch, x_h, x_w, 8 * vectors]. Position p of grad and tap t meet
    position ``p * mul + t * step + start`` of x; positions outside count as 0. Strides count in vectors of 8. `boxes_*`
    are the numbers of boxes of ``BLOCK_K / (box_h * box_w)`` images, `box_h` rows and `box_w` columns. With `splits` > 1
    (split-K), a program sums up one part of the boxes, and the result is fp32. Grid: splits * cdiv(taps_h * taps_w * 8 *
    vectors, BLOCK_M) * cdiv(8 * results, BLOCK_N).
    """
    depth = taps_h * taps_w * vectors
    m_len = depth * VECTOR
    n_len = results * VECTOR
    boxes = boxes_n * boxes_h * boxes_w
    _, split, row, col, first, last = place_piece(
        tl.program_id(0), m_len, n_len, boxes, splits, BLOCK_M, BLOCK_N, GROUP
    )
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_cols = cols < n_len
    vector = rows // VECTOR
    tap = vector // vectors
    tap_h = tap // taps_w
    down = tap_h * step_h + start_h
    across = (tap - tap_h * taps_w) * step_w + start_w
    x_off = (down * stride_xh + across * stride_xw + (vector - tap * vectors)) * VECTOR + rows % VECTOR
    # a vector past the last tap counts as outside of x
    down = tl.where(vector < depth, down, OUTSIDE)
    lanes = tl.arange(0, BLOCK_K)
    w_in, rest = lanes % box_w, lanes // box_w
    h_in, n_in = rest % box_h, rest // box_h
    box_n = BLOCK_K // (box_h * box_w)
    # a box of several images is near
    x_in = (n_in * stride_xn.to(tl.int32) + h_in * mul_h * stride_xh + w_in * mul_w * stride_xw) * VECTOR
    grad_in = (n_in * stride_gn.to(tl.int32) + h_in * stride_gh + w_in * stride_gw) * VECTOR
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(first, last):
        line = step // boxes_w
        image = line // boxes_h
        n, h, w = image * box_n, (line - image * boxes_h) * box_h, (step - line * boxes_w) * box_w
        here = (n + n_in < batch) & (h + h_in < out_h) & (w + w_in < out_w)
        far = n.to(tl.int64)
        grad_far = (far * stride_gn + h * stride_gh + w * stride_gw) * VECTOR
        x_far = (far * stride_xn + (h * mul_h) * stride_xh + (w * mul_w) * stride_xw) * VECTOR
        at_h = tl.where(here, (h + h_in) * mul_h, OUTSIDE)
        at_w = (w + w_in) * mul_w
        inside = _is_below(at_h[:, None] + down[None, :], x_h) & _is_below(at_w[:, None] + across[None, :], x_w)
        x = tl.load(x_ptr + x_far + (x_in[:, None] + x_off[None, :]), mask=inside, other=0.0)
        grad = tl.load(
            grad_ptr + grad_far + (grad_in[:, None] + cols[None, :]), mask=here[:, None] & in_cols[None, :], other=0.0
        )
        acc = tl.dot(tl.trans(x), grad, acc)
    places = (split.to(tl.int64) * n_len + cols) * m_len
    inside = (rows < m_len)[:, None] & in_cols[None, :]
    tl.store(out_ptr + places[None, :] + rows[:, None], acc.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def conv_weight_merge_kernel(
    partial_ptr,
    out_ptr,
    results,
    channels,
    taps_h,
    taps_w,
    together,
    wide,
    splits,
    width,
    stride_on,
    stride_oc,
    stride_oh,
    stride_ow,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Add up the parts of a weight gradient, [splits, results, width], and write it, [results, channels, taps_h, taps_w].

    A row of a part has `wide` numbers for each `together` neighbouring taps of a row of the weight: those of the
    `channels` channels of each tap, one tap after the other, and then padding. Grid: cdiv(results * channels * taps_h *
    taps_w, BLOCK).
    """
    wait_for_last()
    flat = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tap, channel = flat // channels, flat % channels
    tap_w, line = tap % taps_w, tap // taps_w
    tap_h, result = line % taps_h, (line // taps_h).to(tl.int64)
    there = result < results
    place = tap_h * (taps_w // together) + tap_w // together
    at = result * width + place * wide + tap_w % together * channels + channel
    size = results.to(tl.int64) * width
    part = tl.arange(0, PARTS)
    ptrs = partial_ptr + part.to(tl.int64)[:, None] * size + at[None, :]
    acc = tl.zeros((PARTS, BLOCK), tl.float32)
    for first in range(0, splits, PARTS):
        acc += tl.load(ptrs, mask=(first + part < splits)[:, None] & there[None, :], other=0.0)
        ptrs += PARTS * size
    out_off = result * stride_on + channel * stride_oc + tap_h * stride_oh + tap_w * stride_ow
    tl.store(out_ptr + out_off, tl.sum(acc, 0).to(out_ptr.dtype.element_ty), mask=there)
