"""Gluon kernel of convolutions for sm_90, with TMA: each tap of the weight is a product with a shifted box of the input.

A *tap* is a position in the weight. A *box* is 64 positions that one TMA copy takes; `kernel_sm90_boxes` describes
boxes. The pipeline is that of `nojit.kernels.products.kernel_sm90`: persistent programs, one warp that copies, and
consumers of four warps. Each consumer computes one box of the result, for all columns (channels) of a tile.
"""

from nojit.kernels.conv.kernel_sm90_boxes import box5, box_at, input_position, store_panels, successor, tap_at
from nojit.kernels.kernel_functions import divide, opaque
from nojit.kernels.kernel_sm90_copies import copy_in
from nojit.kernels.products.kernel_sm90 import allocate, barriers_for
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, widest
from nojit.kernels.products.kernel_sm90_two_widths import multiply_widths
from nojit.kernels.products.kernel_tiles import place_piece
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.language.extra.cuda import gdc_launch_dependents


@gluon.jit
def _pieces(sizes, TILE: gl.constexpr):
    """Return the number of pieces of work of all programs: tiles of all groups, times the split-K parts."""
    groups, rows, n_len, _, _, splits = sizes
    return groups * splits * gl.cdiv(rows, TILE[0]) * gl.cdiv(n_len, TILE[1])


@gluon.jit
def _piece(number, sizes, TILE: gl.constexpr):
    """Return the split-K part, the group, the first box, the first column, and the range of steps of piece `number`."""
    _, rows, n_len, c_len, taps, splits = sizes
    steps = taps * gl.cdiv(c_len, DEPTH)
    group, split, row, col, first, last = place_piece(number, rows, n_len, steps, splits, TILE[0], TILE[1], TILE[2])
    return split, group, row // OWNED, col, first, last


@gluon.jit
def _produce(maps, memory, barriers, sizes, taps, sweep, boxes, shape, TILE: gl.constexpr, TRANSPOSED: gl.constexpr):
    """Copy the boxes of x and the channels of w that each tile needs; run by the warp that copies.

    `taps`: size of the weight's window in each dimension; `sweep`: factors that map an output position and a tap to an
    input position.
    """
    x_map, w_map, x_memory, w_memory = maps[0], maps[1], memory[0], memory[1]
    full, empty = barriers
    DOWN: gl.constexpr = TILE[0] // OWNED
    ACROSS: gl.constexpr = TILE[1] // DEPTH
    sizes = opaque(sizes)
    _, _, n_len, c_len, count, _ = sizes
    copied = 0
    for number in range(gl.program_id(0), _pieces(sizes, TILE), gl.num_programs(0)):
        _, group, first_box, col, first, last = _piece(number, sizes, TILE)
        places = ()
        for part in gl.static_range(DOWN):
            places = places + (box_at(first_box + part, boxes, shape),)  # noqa: RUF005 - no Gluon
        chunk, number_of_tap = divide(first, count)
        tap = tap_at(number_of_tap, taps)
        for step in range(first, last):  # noqa: B007 - Gluon needs the loop variable
            here, start = tap, chunk * DEPTH
            # all taps of 64 channels follow one another: the L2 cache still has what they share
            carry, tap_d, tap_h, tap_w = successor(tap[0], tap[1], tap[2], taps)
            tap = (tap_d, tap_h, tap_w)
            chunk += carry
            stage = copied % TILE[3]
            mbarrier.wait(empty.index(stage), (copied // TILE[3] & 1) ^ 1)
            mbarrier.expect(full.index(stage), x_map.block_type.nbytes * DOWN + w_map.block_type.nbytes * ACROSS)
            for part in gl.static_range(DOWN):
                n, d, h, w = input_position(places[part], here, sweep)
                place = [n, d, h, w, group * c_len + start]
                copy_in(x_map, place, full.index(stage), box5(x_map, x_memory.index(stage * DOWN + part), 0))
            for part in gl.static_range(ACROSS):
                beside = col + part * DEPTH
                row = group * c_len + start if TRANSPOSED else group * n_len + beside
                place = [row, here[0], here[1], here[2], beside if TRANSPOSED else start]
                copy_in(w_map, place, full.index(stage), box5(w_map, w_memory.index(stage), part))
            copied += 1


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, memory, barriers, sizes, bias, boxes, shape, batch, TILE: gl.constexpr,
    TRANSPOSED: gl.constexpr, PANEL: gl.constexpr,
):  # fmt: skip
    """Compute and store the box of consumer `OWN` of every tile of this program.

    `boxes`: number of boxes in each dimension.
    """
    trans: gl.constexpr = (False, not TRANSPOSED)
    WIDE: gl.constexpr = widest(TILE[1])
    sizes = opaque(sizes)
    n_len = sizes[2]
    used = 0
    for number in range(gl.program_id(0), _pieces(sizes, TILE), gl.num_programs(0)):
        split, group, first_box, col, first, last = _piece(number, sizes, TILE)
        sums = multiply_widths(OWN, memory, barriers, used, last - first, TILE, trans)
        used += last - first
        n, d, h, w = box_at(first_box + OWN, boxes, shape)
        # the result's batch dimension has the batches of all split-K parts one after another; move a box outside the
        # batch past them all, so that its store is skipped
        n = gl.where(n < batch, split * batch + n, sizes[5] * batch)
        place = (n, d, h, w, group * n_len + col, col)
        for part in gl.static_range(len(sums)):
            store_panels(OWN, maps[2], memory[2], sums[part], place, n_len, bias, part * WIDE, PANEL)
    tma.store_wait(0)


@gluon.jit
def conv_sm90_kernel(
    x_map,
    w_map,
    out_map,
    bias_ptr,
    batch,
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
    has_bias,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    TRANSPOSED: gl.constexpr,
    PANEL: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``bias + sum over taps and channels of x * w``, as `nojit.kernels.conv.kernel.conv_kernel` does.

    The TMA descriptors `x_map` and `out_map` describe x and the result, channels-last, in boxes [box_n, box_d, box_h,
    box_w, 64]; `boxes_*` are the numbers of boxes of the result in each dimension. `w_map` describes w [rows, taps,
    columns] in boxes [64, 1, 1, 1, 64]; its rows are the result's channels or, if `TRANSPOSED`, the summed channels. With
    several groups, c_len and n_len must be multiples of 64. With several `splits` (split-K), a box must lie in one
    image, and the result is fp32 with a batch for each split. A step is 64 channels of one tap; shared memory holds
    `STAGES` of them. `BLOCK_M` is 64, 128 or 192. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    # bmm_merge_kernel may start early: it waits for the sums itself
    if PANEL == 32:
        gdc_launch_dependents()
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    x_memory = allocate(x_map, STAGES * (BLOCK_M // OWNED), OWNED, DEPTH, DEPTH)
    # shared memory has a power of two of columns
    COLS: gl.constexpr = widest(2 * BLOCK_N - 1)
    w_memory = allocate(w_map, STAGES, DEPTH if TRANSPOSED else COLS, COLS if TRANSPOSED else DEPTH, DEPTH)
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, PANEL, PANEL)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    fence_async_shared()
    maps = (x_map, w_map, out_map)
    memory = (x_memory, w_memory, out_memory)
    boxes = (boxes_n, boxes_d, boxes_h, boxes_w)
    shape = (box_n, box_d, box_h, box_w)
    taps = (taps_d, taps_h, taps_w)
    sweep = ((mul_d, mul_h, mul_w), (step_d, step_h, step_w), (start_d, start_h, start_w))
    sizes = (groups, boxes_n * boxes_d * boxes_h * boxes_w * OWNED, n_len, c_len, taps_d * taps_h * taps_w, splits)
    bias = (bias_ptr, has_bias)
    # registers per thread: the first consumer gets what the others leave, and the warp that copies needs more for three
    # boxes than for two
    if BLOCK_M == OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, bias, boxes, shape, batch, tile, TRANSPOSED, PANEL)),
                (_produce, (maps, memory, barriers, sizes, taps, sweep, boxes, shape, tile, TRANSPOSED)),
            ],
            [1],
            [56],
        )
    elif BLOCK_M == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, bias, boxes, shape, batch, tile, TRANSPOSED, PANEL)),
                (_consume, (1, maps, memory, barriers, sizes, bias, boxes, shape, batch, tile, TRANSPOSED, PANEL)),
                (_produce, (maps, memory, barriers, sizes, taps, sweep, boxes, shape, tile, TRANSPOSED)),
            ],
            [4, 1],
            [224, 56],
        )
    else:
        gl.static_assert(BLOCK_M == 3 * OWNED, "BLOCK_M is 64, 128 or 192")
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, bias, boxes, shape, batch, tile, TRANSPOSED, PANEL)),
                (_consume, (1, maps, memory, barriers, sizes, bias, boxes, shape, batch, tile, TRANSPOSED, PANEL)),
                (_consume, (2, maps, memory, barriers, sizes, bias, boxes, shape, batch, tile, TRANSPOSED, PANEL)),
                (_produce, (maps, memory, barriers, sizes, taps, sweep, boxes, shape, tile, TRANSPOSED)),
            ],
            [4, 4, 1],
            [152, 152, 48],
        )
