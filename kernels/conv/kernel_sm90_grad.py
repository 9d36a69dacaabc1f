"""Gluon kernel for sm_90 of the gradient of a convolution by its weight, with TMA; the sum runs over positions.

A *box* is 64 positions that one TMA copy takes, a *tap* a position in the weight; see `kernel_sm90_boxes`. The pipeline
is that of `nojit.kernels.products.kernel_sm90`. Each step of a product sums over one box. A tile's columns are panels of 64
input channels at one tap each. A consumer computes 64 output channels.
"""

from nojit.kernels.conv.kernel_sm90_boxes import box5, box_number, input_position, next_box, position_of, tap_at
from nojit.kernels.kernel_functions import divide, opaque
from nojit.kernels.kernel_sm90_copies import copy_in, copy_out
from nojit.kernels.products.kernel_sm90 import allocate, barriers_for, multiply_steps, staged
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, finish, halves_of
from nojit.kernels.products.kernel_tiles import place_piece
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def _pieces(sizes, TILE: gl.constexpr):
    """Return the number of pieces of work of all programs: tiles of all groups, times the parts of the positions."""
    groups, n_len, c_len, taps, _, splits = sizes
    return groups * splits * gl.cdiv(n_len, TILE[0]) * gl.cdiv(taps * gl.cdiv(c_len, DEPTH) * DEPTH, TILE[1])


@gluon.jit
def _piece(number, sizes, TILE: gl.constexpr):
    """Return the location of piece of work `number`: part of the sum, group, first row, first panel, first box, end of boxes.

    A panel is 64 input channels at one position in the weight; a box is 64 positions, over which the sum runs.
    """
    _, n_len, c_len, taps, boxes, splits = sizes
    across = taps * gl.cdiv(c_len, DEPTH) * DEPTH
    group, split, row, col, first, last = place_piece(number, n_len, across, boxes, splits, TILE[0], TILE[1], TILE[2])
    return split, group, row, col // DEPTH, first, last


@gluon.jit
def _panel_at(number, sizes, taps):
    """Return the tap and the first channel of panel `number`; past the last panel, a channel past the group's."""
    _, _, c_len, count, _, _ = sizes
    across = gl.cdiv(c_len, DEPTH)
    tap, chunk = divide(number, across)
    outside = tap >= count
    return tap_at(gl.where(outside, 0, tap), taps), gl.where(outside, across, chunk) * DEPTH


@gluon.jit
def _produce(maps, memory, barriers, sizes, taps, sweep, boxes, shape, TILE: gl.constexpr):
    """Copy the boxes of gradient and input that each tile needs; run by the warp that copies.

    `taps`: size of the weight's window in each dimension; `sweep`: factors that map an output position and a tap to an
    input position.
    """
    grad_map, x_map, grad_memory, x_memory = maps[0], maps[1], memory[0], memory[1]
    full, empty = barriers
    DOWN: gl.constexpr = TILE[0] // OWNED
    ACROSS: gl.constexpr = TILE[1] // DEPTH
    sizes = opaque(sizes)
    groups, n_len, c_len, _, _, _ = sizes
    copied = 0
    for number in range(gl.program_id(0), _pieces(sizes, TILE), gl.num_programs(0)):
        _, group, row, panel, first, last = _piece(number, sizes, TILE)
        part_taps = ()
        channels = ()
        for part in gl.static_range(ACROSS):
            tap, start = _panel_at(panel + part, sizes, taps)
            # an absent panel starts past the channels of all groups, where TMA reads zeros
            outside = start >= gl.cdiv(c_len, DEPTH) * DEPTH
            part_taps = part_taps + (tap,)  # noqa: RUF005 - no Gluon
            channels = channels + (gl.where(outside, groups * c_len, group * c_len + start),)  # noqa: RUF005 - as above
        own = box_number(first, boxes)
        for step in range(first, last):  # noqa: B007 - Gluon needs the loop variable
            position = position_of(own, shape)
            own = next_box(own, boxes)
            n, d, h, w = position
            stage = copied % TILE[3]
            mbarrier.wait(empty.index(stage), (copied // TILE[3] & 1) ^ 1)
            mbarrier.expect(full.index(stage), grad_map.block_type.nbytes * DOWN + x_map.block_type.nbytes * ACROSS)
            for part in gl.static_range(DOWN):
                place = [n, d, h, w, group * n_len + row + part * OWNED]
                copy_in(grad_map, place, full.index(stage), box5(grad_map, grad_memory.index(stage * DOWN + part), 0))
            for part in gl.static_range(ACROSS):
                m, x_d, x_h, x_w = input_position(position, part_taps[part], sweep)
                place = [m, x_d, x_h, x_w, channels[part]]
                copy_in(x_map, place, full.index(stage), box5(x_map, x_memory.index(stage), part))
            copied += 1


@gluon.jit
def _store_panels(
    OWN: gl.constexpr, out_map, out_memory, acc, place, sizes, taps, STORED: gl.constexpr, PANEL: gl.constexpr
):
    """Store rows of a consumer through two alternating buffers, `PANEL` columns at a time; `STORED` columns are done.

    `place` has the part of the positions, the first row counted over all groups, the first row in its group, and the
    first panel.

    `taps`: size of the weight's window in each dimension.
    """
    if acc.shape[1] > PANEL:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        _store_panels(OWN, out_map, out_memory, left, place, sizes, taps, STORED, PANEL)
        _store_panels(OWN, out_map, out_memory, right, place, sizes, taps, STORED + HALF, PANEL)
    else:
        split, channel, row, panel = place
        tap, start = _panel_at(panel + STORED // DEPTH, sizes, taps)
        start = start + STORED % DEPTH
        # rows past the group's last channel would overwrite the next group, since TMA skips only those outside the
        # tensor
        if row < sizes[1]:
            piece = staged(OWN, out_memory, acc, STORED, PANEL)
            flat = (tap[0] * taps[1] + tap[1]) * taps[2] + tap[2]
            copy_out(out_map, [0, split, channel, flat, start], box5(out_map, piece, 0))


@gluon.jit
def _consume(OWN: gl.constexpr, maps, memory, barriers, sizes, taps, TILE: gl.constexpr, PANEL: gl.constexpr):
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program.

    `taps`: size of the weight's window in each dimension.
    """
    trans: gl.constexpr = (True, False)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    sizes = opaque(sizes)
    used = 0
    for number in range(gl.program_id(0), _pieces(sizes, TILE), gl.num_programs(0)):
        split, group, row, panel, first, last = _piece(number, sizes, TILE)
        acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
        before = gl.to_tensor(-1)
        acc, before = multiply_steps(OWN, acc, before, memory, barriers, used, last - first, TILE, trans)
        acc = finish(acc, barriers[1], before)
        used += last - first
        own = row + OWN * OWNED
        place = (split, group * sizes[1] + own, own, panel)
        _store_panels(OWN, maps[2], memory[2], acc, place, sizes, taps, 0, PANEL)
    tma.store_wait(0)


@gluon.jit
def conv_weight_grad_sm90_kernel(
    grad_map,
    x_map,
    out_map,
    groups,
    c_len,
    n_len,
    boxes_n,
    boxes_d,
    boxes_h,
    boxes_w,
    box_n,
    box_d,
    box_h,
    box_w,
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
    programs,  # noqa: ARG001 - the manifest's grid reads it
    PANEL: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``sum over positions of grad * x``, as `nojit.kernels.conv.kernel.conv_weight_grad_kernel` does.

    The TMA descriptors `grad_map` and `x_map` describe the gradient and x, channels-last, in boxes [box_n, box_d,
    box_h, box_w, 64]; `boxes_*` are the numbers of boxes in each dimension. `out_map` describes the result [1, splits,
    rows, taps, c_len] in boxes [1, 1, 64, 1, PANEL]. With several splits, each is the fp32 sum over a part of the
    boxes. With several groups, c_len and n_len must be multiples of 64. A step is one box; shared memory holds `STAGES`
    of them. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    grad_memory = allocate(grad_map, STAGES * (BLOCK_M // OWNED), DEPTH, OWNED, OWNED)
    x_memory = allocate(x_map, STAGES, DEPTH, BLOCK_N, DEPTH)
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, PANEL, PANEL)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    fence_async_shared()
    maps = (grad_map, x_map, out_map)
    memory = (grad_memory, x_memory, out_memory)
    boxes = (boxes_n, boxes_d, boxes_h, boxes_w)
    shape = (box_n, box_d, box_h, box_w)
    taps = (taps_d, taps_h, taps_w)
    sweep = ((mul_d, mul_h, mul_w), (step_d, step_h, step_w), (start_d, start_h, start_w))
    sizes = (groups, n_len, c_len, taps_d * taps_h * taps_w, boxes_n * boxes_d * boxes_h * boxes_w, splits)
    if BLOCK_M == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, taps, tile, PANEL)),
                (_consume, (1, maps, memory, barriers, sizes, taps, tile, PANEL)),
                (_produce, (maps, memory, barriers, sizes, taps, sweep, boxes, shape, tile)),
            ],
            [4, 1],
            [224, 56],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, taps, tile, PANEL)),
                (_produce, (maps, memory, barriers, sizes, taps, sweep, boxes, shape, tile)),
            ],
            [1],
            [56],
        )
