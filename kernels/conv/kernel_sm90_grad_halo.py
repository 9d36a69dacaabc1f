"""Gluon kernel for sm_90 of weight gradients that copies input rows once for the taps of a column: faster with few channels.

With few channels, copies take longer than products. The pipeline is that of `nojit.kernels.conv.kernel_sm90_grad`, but each
box of positions is one position high, and a program walks down the rows of a *strip*: boxes at one batch, depth and width.
The input of a box at one tap is then the input of the next box at the tap above. So a step copies one box of the gradient
and one of the input, and multiplies the box of the gradient by the input boxes of `TAPS` steps. Before the first row of a
strip, `TAPS` - 1 steps copy input alone. A tile's columns are 64 or 128 input channels at all taps of a column: all heights at
one depth and width. A consumer computes 64 output channels.
"""

from nojit.kernels.conv.kernel_sm90_boxes import box5
from nojit.kernels.kernel_functions import divide, opaque
from nojit.kernels.kernel_sm90_copies import copy_in, copy_out
from nojit.kernels.products.kernel_sm90 import allocate, barriers_for, staged
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, halves_of
from nojit.kernels.products.kernel_tiles import place_piece
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _pieces(sizes, TILE: gl.constexpr):
    """Return the number of pieces of work of all programs: tiles, times the parts of the positions."""
    n_len, c_len, columns, _, _, splits = sizes
    return splits * gl.cdiv(n_len, TILE[0]) * columns * gl.cdiv(c_len, TILE[1])


@gluon.jit
def _piece(number, sizes, TILE: gl.constexpr):
    """Return the location of piece of work `number`: part of the sum, first row, column of taps, first channel, rows of strips.

    The rows of all strips are numbered strip by strip: the piece sums those from the first to the end that it returns.
    """
    n_len, c_len, columns, height, strips, splits = sizes
    chunks = gl.cdiv(c_len, TILE[1])
    across = columns * chunks
    _, split, row, place, first, last = place_piece(number, n_len, across, strips * height, splits, TILE[0], 1, TILE[2])
    column, chunk = divide(place, chunks)
    return split, row, column, chunk * TILE[1], first, last


@gluon.jit
def _rows_of(strip, first, last, height):
    """Return the first row and the number of rows in `strip` of a piece that sums the rows [first, last) of all strips."""
    start = gl.maximum(first - strip * height, 0)
    return start, gl.minimum(last - strip * height, height) - start


@gluon.jit
def _strips_of(first, last, height):
    """Return the first strip and the number of strips of a piece that sums the rows [first, last) of all strips."""
    strip, _ = divide(first, height)
    # a part may have no rows
    return strip, gl.where(last > first, gl.cdiv(last, height) - strip, 0)


@gluon.jit
def _produce(maps, memory, barriers, sizes, taps, sweep, boxes, shape, TILE: gl.constexpr, TAPS: gl.constexpr):
    """Copy the boxes of gradient and input that each tile needs; run by the warp that copies.

    `taps`: width of the weight's window; `sweep`: factors that map an output position and a tap to an input position.
    """
    grad_map, x_map, grad_memory, x_memory = maps[0], maps[1], memory[0], memory[1]
    full, empty = barriers
    DOWN: gl.constexpr = TILE[0] // OWNED
    ACROSS: gl.constexpr = TILE[1] // DEPTH
    OF_X: gl.constexpr = x_map.block_type.nbytes * ACROSS
    OF_GRAD: gl.constexpr = grad_map.block_type.nbytes * DOWN
    mul, step, start = sweep
    sizes = opaque(sizes)
    height = sizes[3]
    copied = 0
    for number in range(gl.program_id(0), _pieces(sizes, TILE), gl.num_programs(0)):
        _, row, column, channel, first, last = _piece(number, sizes, TILE)
        tap_d, tap_w = divide(column, taps)
        first_strip, strips = _strips_of(first, last, height)
        for own in range(strips):
            strip = first_strip + own
            plane, w = divide(strip, boxes[1])
            n, d = divide(plane, boxes[0])
            n, d, w = n * shape[0], d * shape[1], w * shape[2]
            x_d = d * mul[0] + tap_d * step[0] + start[0]
            x_w = w * mul[2] + tap_w * step[2] + start[2]
            top, rows = _rows_of(strip, first, last, height)
            for number_h in range(rows + TAPS - 1):
                # the first steps copy the input of the upper taps of the first row
                h = top + number_h - (TAPS - 1)
                whole = number_h >= TAPS - 1
                stage = copied % TILE[3]
                mbarrier.wait(empty.index(stage), (copied // TILE[3] & 1) ^ 1)
                # a barrier takes the number of bytes as a constant
                mbarrier.expect(full.index(stage), OF_X, not whole)
                mbarrier.expect(full.index(stage), OF_X + OF_GRAD, whole)
                for part in gl.static_range(ACROSS):
                    place = [n, x_d, h + start[1] + (TAPS - 1), x_w, channel + part * DEPTH]
                    copy_in(x_map, place, full.index(stage), box5(x_map, x_memory.index(stage), part))
                for part in gl.static_range(DOWN):
                    place = [n, d, h, w, row + part * OWNED]
                    target = box5(grad_map, grad_memory.index(stage * DOWN + part), 0)
                    copy_in(grad_map, place, full.index(stage), target, whole)
                copied += 1


@gluon.jit
def _store(
    OWN: gl.constexpr, out_map, out_memory, acc, place, STORED: gl.constexpr, TILE: gl.constexpr, PANEL: gl.constexpr
):
    """Store rows of a consumer at one tap through two alternating buffers, `PANEL` columns at a time.

    `place` has the part of the positions, the first row, the tap and the first channel; `STORED` columns are done.
    """
    if acc.shape[1] > PANEL:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        _store(OWN, out_map, out_memory, left, place, STORED, TILE, PANEL)
        _store(OWN, out_map, out_memory, right, place, STORED + HALF, TILE, PANEL)
    else:
        split, row, tap, channel = place
        piece = staged(OWN, out_memory, acc, STORED, PANEL)
        copy_out(out_map, [0, split, row, tap, channel + STORED % TILE[1]], box5(out_map, piece, 0))


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, memory, barriers, sizes, taps, TILE: gl.constexpr, TAPS: gl.constexpr, PANEL: gl.constexpr
):
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program.

    `taps`: width of the weight's window.
    """
    grad_memory, x_memory = memory[0], memory[1]
    full, empty = barriers
    DOWN: gl.constexpr = TILE[0] // OWNED
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    sizes = opaque(sizes)
    height = sizes[3]
    used = 0
    for number in range(gl.program_id(0), _pieces(sizes, TILE), gl.num_programs(0)):
        split, row, column, channel, first, last = _piece(number, sizes, TILE)
        accs = ()
        for _ in gl.static_range(TAPS):
            accs = accs + (gl.zeros([OWNED, TILE[1]], gl.float32, layout),)  # noqa: RUF005 - no Gluon
        first_strip, strips = _strips_of(first, last, height)
        # a carried number of the strip does not work: Triton 3.6 forgets a value that only bounds a nested loop
        for own in range(strips):
            _, rows = _rows_of(first_strip + own, first, last, height)
            for _ in gl.static_range(TAPS - 1):
                mbarrier.wait(full.index(used % TILE[3]), used // TILE[3] & 1)
                used += 1
            for step in range(rows):
                stage = used % TILE[3]
                mbarrier.wait(full.index(stage), used // TILE[3] & 1)
                grad = grad_memory.index(stage * DOWN + OWN).permute((1, 0))
                sums = ()
                for tap in gl.static_range(TAPS):
                    x = x_memory.index((used - (TAPS - 1 - tap)) % TILE[3])
                    sums = sums + (warpgroup_mma(grad, x, accs[tap], is_async=True),)  # noqa: RUF005 - no Gluon
                # the products of the step before have ended: nothing reads its highest input row again
                accs = warpgroup_mma_wait(TAPS, deps=sums)
                mbarrier.arrive(empty.index(gl.maximum(used - TAPS, 0) % TILE[3]), pred=step > 0)
                used += 1
            accs = warpgroup_mma_wait(0, deps=accs)
            for back in gl.static_range(TAPS):
                mbarrier.arrive(empty.index((used - (TAPS - back)) % TILE[3]))
        tap_d, tap_w = divide(column, taps)
        for tap in gl.static_range(TAPS):
            place = (split, row + OWN * OWNED, (tap_d * TAPS + tap) * taps + tap_w, channel)
            _store(OWN, maps[2], memory[2], accs[tap], place, tap * TILE[1], TILE, PANEL)
    tma.store_wait(0)


@gluon.jit
def conv_weight_grad_halo_sm90_kernel(
    grad_map,
    x_map,
    out_map,
    c_len,
    n_len,
    height,
    boxes_n,
    boxes_d,
    boxes_w,
    box_n,
    box_d,
    box_w,
    taps_d,
    taps_w,
    mul_d,
    mul_w,
    step_d,
    step_w,
    start_d,
    start_h,
    start_w,
    splits,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    TAPS: gl.constexpr,
    PANEL: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``sum over positions of grad * x``, as `nojit.kernels.conv.kernel.conv_weight_grad_kernel` does.

    It requires one group, and neither a vertical stride nor a vertical dilation. The TMA descriptors are those of
    `nojit.kernels.conv.kernel_sm90_grad.conv_weight_grad_sm90_kernel`, with boxes [box_n, box_d, 1, box_w, 64]. `height`
    is the height of the gradient, `TAPS` that of the weight. With several splits, each is the fp32 sum over a part of the
    rows of all strips. Shared memory holds `STAGES` rows of a strip, `BLOCK_N` channels of the input and `BLOCK_M` of the gradient.
    Grid: any size in x.

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
    boxes = (boxes_d, boxes_w)
    shape = (box_n, box_d, box_w)
    sweep = ((mul_d, 1, mul_w), (step_d, 1, step_w), (start_d, start_h, start_w))
    sizes = (n_len, c_len, taps_d * taps_w, height, boxes_n * boxes_d * boxes_w, splits)
    if BLOCK_M == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, taps_w, tile, TAPS, PANEL)),
                (_consume, (1, maps, memory, barriers, sizes, taps_w, tile, TAPS, PANEL)),
                (_produce, (maps, memory, barriers, sizes, taps_w, sweep, boxes, shape, tile, TAPS)),
            ],
            [4, 1],
            [224, 56],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, taps_w, tile, TAPS, PANEL)),
                (_produce, (maps, memory, barriers, sizes, taps_w, sweep, boxes, shape, tile, TAPS)),
            ],
            [1],
            [56],
        )
