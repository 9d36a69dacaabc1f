"""Gluon kernel of convolutions for sm_90 that copies input rows once for several taps: faster with few channels.

With few channels, copies take longer than products. The pipeline is that of `nojit.kernels.conv.kernel_sm90`, but each
box of positions is one position high, and the boxes of a tile are stacked vertically. The input of a box at one tap is
then the input of the next box at the tap above, so one copy serves both. A step is a column of taps (all heights at one
depth and width): a tile with n boxes copies n + `TAPS` - 1 input boxes, and multiplies each by up to `TAPS` weights. If
the weights of all steps fit into shared memory, each program copies them once.
"""

from nojit.kernels.conv.kernel_sm90_boxes import add_bias, box5
from nojit.kernels.kernel_functions import divide
from nojit.kernels.kernel_sm90_copies import copy_in, copy_out
from nojit.kernels.products.kernel_sm90 import allocate, barriers_for
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, accumulate, finish, halves_of
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
def _tiles(sizes, TILE: gl.constexpr):
    """Return the number of tiles of all programs, and how many of them lie side by side along the channels."""
    boxes, height, n_len = sizes[0], sizes[1], sizes[2]
    columns = gl.cdiv(n_len, TILE[1])
    return boxes[0] * boxes[1] * gl.cdiv(height * OWNED, TILE[0]) * boxes[2] * columns, columns


@gluon.jit
def _tile_at(number, sizes, box, TILE: gl.constexpr):
    """Return the first position (n, d, h, w) of tile `number`."""
    boxes, height = sizes[0], sizes[1]
    strip, w = divide(number, boxes[2])
    plane, h = divide(strip, gl.cdiv(height * OWNED, TILE[0]))
    n, d = divide(plane, boxes[1])
    return n * box[0], d * box[1], h * (TILE[0] // OWNED), w * box[2]


@gluon.jit
def _steps(sizes, taps):
    """Return the number of steps of a tile: columns of taps, times chunks of 64 channels."""
    return taps[0] * taps[1] * gl.cdiv(sizes[3], DEPTH)


@gluon.jit
def _copy_weights(w_map, w_memory, barrier, slot, tap, col, start, down, TILE: gl.constexpr, TRANSPOSED: gl.constexpr):
    """Copy the weights of a step to `slot`, first the tap that reads the highest input row: the last tap unless `down`.

    `down` states that later taps read lower rows, `tap` is the (depth, width) of the column of taps.
    """
    for number in gl.static_range(TILE[3]):
        tap_h = gl.where(down, number, TILE[3] - 1 - number)
        tile = w_memory.index(slot * TILE[3] + number)
        for part in gl.static_range(TILE[1] // DEPTH):
            beside = col + part * DEPTH
            place = [start if TRANSPOSED else beside, tap[0], tap_h, tap[1], beside if TRANSPOSED else start]
            copy_in(w_map, place, barrier, box5(w_map, tile, part))


@gluon.jit
def _produce(maps, memory, barriers, sizes, box, taps, sweep, TILE: gl.constexpr, TRANSPOSED: gl.constexpr):
    """Copy the input boxes and weights that each tile needs; weights that stay in shared memory, only once.

    `taps`: size of the weight's window in each dimension; `sweep`: factors that map an output position and a tap to an
    input position.
    """
    x_map, w_map, x_memory, w_memory = maps[0], maps[1], memory[0], memory[1]
    full, empty, kept = barriers
    TAPS: gl.constexpr = TILE[3]
    MET: gl.constexpr = TILE[0] // OWNED + TAPS - 1
    OF_X: gl.constexpr = x_map.block_type.nbytes * MET
    OF_W: gl.constexpr = w_map.block_type.nbytes * (TILE[1] // DEPTH) * TAPS
    steps, starts = sweep
    down = steps[1] > 0
    top = starts[1] + gl.minimum(steps[1] * (TAPS - 1), 0)
    copied = 0
    tiles, columns = _tiles(sizes, TILE)
    for number in range(gl.program_id(0), tiles, gl.num_programs(0)):
        tile, col = divide(number, columns)
        col = col * TILE[1]
        n, d, h, w = _tile_at(tile, sizes, box, TILE)
        for step in range(_steps(sizes, taps)):
            # all taps of 64 channels follow one another: the L2 cache still has what they share
            chunk, column = divide(step, taps[0] * taps[1])
            tap = divide(column, taps[1])
            start = chunk * DEPTH
            stage = copied % TILE[2]
            mbarrier.wait(empty.index(stage), (copied // TILE[2] & 1) ^ 1)
            if TILE[4] == 0:
                mbarrier.expect(full.index(stage), OF_X + OF_W)
                _copy_weights(w_map, w_memory, full.index(stage), stage, tap, col, start, down, TILE, TRANSPOSED)
            else:
                mbarrier.expect(full.index(stage), OF_X)
                if copied == step:
                    mbarrier.expect(kept.index(step), OF_W)
                    _copy_weights(w_map, w_memory, kept.index(step), step, tap, col, start, down, TILE, TRANSPOSED)
            at_d = d + tap[0] * steps[0] + starts[0]
            at_w = w + tap[1] * steps[2] + starts[2]
            for row in gl.static_range(MET):
                place = [n, at_d, h + row + top, at_w, start]
                copy_in(x_map, place, full.index(stage), box5(x_map, x_memory.index(stage * MET + row), 0))
            copied += 1


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, memory, barriers, sizes, box, taps, bias, TILE: gl.constexpr, TRANSPOSED: gl.constexpr
):
    """Compute and store the box of consumer `OWN` of every tile of this program.

    `taps`: size of the weight's window in each dimension.
    """
    x_memory, w_memory = memory[0], memory[1]
    full, empty, kept = barriers
    TAPS: gl.constexpr = TILE[3]
    MET: gl.constexpr = TILE[0] // OWNED + TAPS - 1
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    count = _steps(sizes, taps)
    used = 0
    tiles, columns = _tiles(sizes, TILE)
    for number in range(gl.program_id(0), tiles, gl.num_programs(0)):
        acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
        before = gl.to_tensor(-1)
        for step in range(count):
            stage = (used + step) % TILE[2]
            if TILE[4] > 0:
                mbarrier.wait(kept.index(step), 0)
            mbarrier.wait(full.index(stage), (used + step) // TILE[2] & 1)
            for tap in gl.static_range(TAPS):
                a = x_memory.index(stage * MET + OWN + tap)
                b = w_memory.index((step if TILE[4] > 0 else stage) * TAPS + tap)
                if not TRANSPOSED:
                    b = b.permute((1, 0))
                if tap == 0:
                    acc = accumulate(acc, a, b, empty, before)
                else:
                    acc = warpgroup_mma_wait(1, deps=(warpgroup_mma(a, b, acc, is_async=True),))
            before = stage
        acc = finish(acc, empty, before)
        used += count
        tile, column = divide(number, columns)
        n, d, h, w = _tile_at(tile, sizes, box, TILE)
        _store(OWN, maps[2], memory[2], acc, (n, d, h + OWN, w), column * TILE[1], sizes[2], bias)
    tma.store_wait(0)


@gluon.jit
def _store(OWN: gl.constexpr, out_map, out_memory, acc, place, col, n_len, bias):
    """Store a box of the result, 64 channels at a time, from channel `col` on."""
    if acc.shape[1] > DEPTH:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        _store(OWN, out_map, out_memory, left, place, col, n_len, bias)
        _store(OWN, out_map, out_memory, right, place, col + HALF, n_len, bias)
    else:
        n, d, h, w = place
        acc = add_bias(acc, bias, col, n_len - col)
        # wait until the previous store from this buffer has read it
        tma.store_wait(0)
        piece = out_memory.index(OWN)
        piece.store(acc.to(out_memory.dtype))
        fence_async_shared()
        copy_out(out_map, [n, d, h, w, col], box5(out_map, piece, 0))


@gluon.jit
def conv_halo_sm90_kernel(
    x_map,
    w_map,
    out_map,
    bias_ptr,
    height,
    c_len,
    n_len,
    boxes_n,
    boxes_d,
    boxes_w,
    box_n,
    box_d,
    box_w,
    taps_d,
    taps_w,
    step_d,
    step_h,
    step_w,
    start_d,
    start_h,
    start_w,
    has_bias,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    TRANSPOSED: gl.constexpr,
    TAPS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    KEPT: gl.constexpr,
):
    """Write ``bias + sum over taps and channels of x * w``, as `nojit.kernels.conv.kernel.conv_kernel` does.

    It requires one group, a stride of 1, and a `step_h` of 1 or -1. The TMA descriptors are those of
    `nojit.kernels.conv.kernel_sm90.conv_sm90_kernel`, with boxes [box_n, box_d, 1, box_w, 64]. `height` is the height
    of the result, `TAPS` that of the weight. Shared memory holds `STAGES` steps of 64 channels each. If `KEPT` is not
    0, all weights stay in shared memory: a tile then has at most `KEPT` steps, and all columns. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, STAGES, TAPS, KEPT)
    SLOTS: gl.constexpr = TAPS * (KEPT if KEPT > 0 else STAGES)
    x_memory = allocate(x_map, STAGES * (BLOCK_M // OWNED + TAPS - 1), OWNED, DEPTH, DEPTH)
    w_memory = allocate(w_map, SLOTS, DEPTH if TRANSPOSED else BLOCK_N, BLOCK_N if TRANSPOSED else DEPTH, DEPTH)
    out_memory = allocate(out_map, BLOCK_M // OWNED, OWNED, DEPTH, DEPTH)
    full, empty = barriers_for(STAGES, BLOCK_M // OWNED)
    # the buffers of weights that stay are never freed
    kept = barriers_for(KEPT if KEPT > 0 else 1, 1)[0]
    fence_async_shared()
    maps = (x_map, w_map, out_map)
    memory = (x_memory, w_memory, out_memory)
    barriers = (full, empty, kept)
    sizes = ((boxes_n, boxes_d, boxes_w), height, n_len, c_len)
    box = (box_n, box_d, box_w)
    taps = (taps_d, taps_w)
    sweep = ((step_d, step_h, step_w), (start_d, start_h, start_w))
    bias = (bias_ptr, has_bias)
    gl.warp_specialize(
        [
            (_consume, (0, maps, memory, barriers, sizes, box, taps, bias, tile, TRANSPOSED)),
            (_consume, (1, maps, memory, barriers, sizes, box, taps, bias, tile, TRANSPOSED)),
            (_produce, (maps, memory, barriers, sizes, box, taps, sweep, tile, TRANSPOSED)),
        ],
        [4, 1],
        [224, 56],
    )
