"""Device functions that the convolution kernels for sm_90 share: boxes of positions, and their stores.

TMA descriptors have five dimensions, [batch, depth, height, width, channels]. One copy takes a *box*: 64 positions by
64 channels. The launch chooses the shape of a box to suit the result, for example 8 by 8 positions of one image, or 4
by 4 of each of 4 images. TMA reads zeros outside the input, which is the padding of the convolution, and skips stores
outside the result. The input's descriptor has the convolution's stride as its element stride.

A step sums `DEPTH` channels, or positions of a box. Each consumer computes `OWNED` rows of a tile: the positions of one box.
"""

from nojit.kernels.kernel_functions import divide
from nojit.kernels.kernel_sm90_copies import copy_out
from nojit.kernels.products.kernel_sm90 import lanes_of, staged
from nojit.kernels.products.kernel_sm90_tiles import halves_of, reinterpret
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def box5(of_map, tile, number):
    """Return a view of box `number` of a tile in shared memory, as the source or target of a TMA copy with `of_map`."""
    N: gl.constexpr = of_map.block_type.shape[0]
    D: gl.constexpr = of_map.block_type.shape[1]
    H: gl.constexpr = of_map.block_type.shape[2]
    W: gl.constexpr = of_map.block_type.shape[3]
    C: gl.constexpr = of_map.block_type.shape[4]
    COUNT: gl.constexpr = tile.shape[0] * tile.shape[1] // (N * D * H * W * C)
    return reinterpret(tile, of_map.dtype, [COUNT, N, D, H, W, C], of_map.layout).index(number)


@gluon.jit
def box_number(number, boxes):
    """Return the index (n, d, h, w) of box `number` in each dimension; past the last box, n is outside the batch.

    `boxes` has the number of boxes in each dimension.
    """
    _, across_d, across_h, across_w = boxes
    row, w = divide(number, across_w)
    plane, h = divide(row, across_h)
    n, d = divide(plane, across_d)
    return n, d, h, w


@gluon.jit
def successor(d, h, w, counts):
    """Return the index after (d, h, w) in row-major order; `counts` are the sizes of the three dimensions.

    It saves the divisions in a loop over boxes or taps. Returns a carry, 1 if the index wraps around to (0, 0, 0), then
    d, h, w.
    """
    w += 1
    h += gl.where(w == counts[2], 1, 0)
    d += gl.where(h == counts[1], 1, 0)
    carry = gl.where(d == counts[0], 1, 0)
    return carry, gl.where(d == counts[0], 0, d), gl.where(h == counts[1], 0, h), gl.where(w == counts[2], 0, w)


@gluon.jit
def next_box(own, boxes):
    """Return the index (n, d, h, w) of the box that follows the box `own`.

    `boxes`: number of boxes in each dimension.
    """
    n, d, h, w = own
    carry, d, h, w = successor(d, h, w, (boxes[1], boxes[2], boxes[3]))
    return n + carry, d, h, w


@gluon.jit
def position_of(own, box):
    """Return the first position (n, d, h, w) of the box with index `own`; `box` has the sizes of a box."""
    return own[0] * box[0], own[1] * box[1], own[2] * box[2], own[3] * box[3]


@gluon.jit
def box_at(number, boxes, box):
    """Return the first position (n, d, h, w) of box `number`.

    `boxes`: number of boxes in each dimension.
    """
    return position_of(box_number(number, boxes), box)


@gluon.jit
def tap_at(number, taps):
    """Return the position (d, h, w) in the weight of tap `number`; `taps` has the sizes of the weight."""
    _, across_h, across_w = taps
    row, w = divide(number, across_w)
    d, h = divide(row, across_h)
    return d, h, w


@gluon.jit
def input_position(position, tap, sweep):
    """Return the input position (n, d, h, w) that a result's position reads at a tap; `sweep` is (mul, step, start)."""
    mul, step, start = sweep
    n, d, h, w = position
    at_d = d * mul[0] + tap[0] * step[0] + start[0]
    at_h = h * mul[1] + tap[1] * step[1] + start[1]
    at_w = w * mul[2] + tap[2] * step[2] + start[2]
    return n, at_d, at_h, at_w


@gluon.jit
def store_panels(
    OWN: gl.constexpr, out_map, out_memory, acc, place, limit, bias, STORED: gl.constexpr, PANEL: gl.constexpr
):
    """Store the box of a consumer through two alternating buffers, `PANEL` columns at a time; `STORED` columns are done.

    Args:
        OWN: the consumer.
        out_map: TMA descriptor of the result.
        out_memory: two buffers for each consumer.
        acc: the box, [positions, channels].
        place: first position of the box (n, d, h, w), the tile's first channel counted over all groups, and the same
            channel counted within its group.
        limit: the number of channels of a group.
        bias: pointer to the bias of all groups, and 1 or 0 for whether there is a bias.
        STORED: columns stored so far.
        PANEL: columns per store.
    """
    if acc.shape[1] > PANEL:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        store_panels(OWN, out_map, out_memory, left, place, limit, bias, STORED, PANEL)
        store_panels(OWN, out_map, out_memory, right, place, limit, bias, STORED + HALF, PANEL)
    else:
        n, d, h, w, channel, col = place
        # columns past the group's last channel would overwrite the next group, since TMA skips only those outside the
        # tensor
        if col + STORED < limit:
            acc = add_bias(acc, bias, channel + STORED, limit - col - STORED)
            piece = staged(OWN, out_memory, acc, STORED, PANEL)
            copy_out(out_map, [n, d, h, w, channel + STORED], box5(out_map, piece, 0))


@gluon.jit
def add_bias(acc, bias, channel, left):
    """Add the bias from `channel` on to the columns of `acc`; only the first `left` of them exist."""
    bias_ptr, has_bias = bias
    if has_bias != 0:
        _, cols = lanes_of(acc)
        acc = acc + gl.load(bias_ptr + channel + cols, mask=cols < left, other=0.0).to(gl.float32)
    return acc
