"""Gluon kernel of products of many rows with 4-bit weights for sm_90, with TMA.

`nojit.kernels.products.kernel_sm90` describes the pipeline. The kernel computes the transposed product, columns of b by
rows of a, so that unpacked weights are the register operand of wgmma. Each byte is copied to shared memory once, and
unpacked once, by the warp group (consumer) that owns its columns.

The order of columns in a consumer's tile is free if results are stored accordingly: of 16 rows of the operand a thread
holds two, 8 apart, and uses two neighbouring columns for them. The producer copies the scales and zero points of a step
to shared memory after its bytes, so that a consumer loads nothing from global memory.
"""

from nojit.kernels.kernel_functions import divide_by, opaque, reciprocal
from nojit.kernels.kernel_sm90_copies import copy_in, copy_out
from nojit.kernels.mixed_mm.kernel_unpack import unpack_shorts
from nojit.kernels.products.kernel_sm90 import allocate, barriers_for
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, box, halves_of, reinterpret, widest
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
from triton.language.extra.cuda import gdc_launch_dependents

BYTES = gl.constexpr(32)
"""Rows of bytes of b per step."""


@gluon.constexpr_function
def buffers_of(rows, panel):
    """Return the number of buffers of a consumer's stores, of tiles of `rows` rows: one if it stores once, or fp32."""
    return 1 if rows == 64 or panel == 32 else 2


@gluon.jit
def _pieces(sizes, TILE: gl.constexpr):
    """Return the number of pieces of work of all programs: tiles, times the split-K parts."""
    m_len, n_len, _, splits = sizes
    return splits * gl.cdiv(n_len, TILE[0]) * gl.cdiv(m_len, TILE[1])


@gluon.jit
def _piece_at(number, sizes, TILE: gl.constexpr):
    """Return the split-K part, the first column, the first row, and the range of steps of piece `number`."""
    m_len, n_len, k_len, splits = sizes
    steps = gl.cdiv(k_len, DEPTH)
    _, split, col, row, first, last = place_piece(number, n_len, m_len, steps, splits, TILE[0], TILE[1], TILE[2])
    return (split, row, col), first, last


@gluon.jit
def _produce(maps, memory, barriers, sizes, group_size, TILE: gl.constexpr):
    """Copy the bytes of b, the scales and zero points, and the rows of a that each tile needs; run by the producer warp.

    `group_size`: number of rows of a weight that share a scale.
    """
    full, empty = barriers
    OWNERS: gl.constexpr = TILE[0] // OWNED
    ACROSS: gl.constexpr = TILE[1] // OWNED
    WIDTH: gl.constexpr = maps[1].block_type.shape[3]
    BOXES: gl.constexpr = TILE[0] // WIDTH
    # scales and zero points follow a, b and the result
    OF_GROUPS: gl.constexpr = len(memory) - 3
    A_BYTES: gl.constexpr = maps[0].block_type.nbytes
    B_BYTES: gl.constexpr = maps[1].block_type.nbytes * BOXES + OF_GROUPS * maps[3].block_type.nbytes * OWNERS
    sizes = opaque(sizes)
    if OF_GROUPS > 0:
        inverse = reciprocal(group_size)
    copied = 0
    for number in range(gl.program_id(0), _pieces(sizes, TILE), gl.num_programs(0)):
        place, first, last = _piece_at(number, sizes, TILE)
        _, row, col = place
        # TMA takes as long for rows past the last one
        boxes = gl.cdiv(gl.minimum(sizes[0] - row, TILE[1]), OWNED)
        for step in range(first, last):
            stage = copied % TILE[3]
            mbarrier.wait(empty.index(stage), (copied // TILE[3] & 1) ^ 1)
            for part in gl.static_range(ACROSS):
                # a barrier takes the number of bytes as a constant
                mbarrier.expect(full.index(stage), A_BYTES * (part + 1) + B_BYTES, boxes == part + 1)
            for part in gl.static_range(BOXES):
                source = [0, 0, step * BYTES, col + part * WIDTH]
                copy_in(maps[1], source, full.index(stage), box(maps[1], memory[1].index(stage * BOXES + part), 0))
            if OF_GROUPS > 0:
                group, _ = divide_by(step * DEPTH, group_size, inverse)
                for part in gl.static_range(OWNERS):
                    for kind in gl.static_range(3, 3 + OF_GROUPS):
                        own = memory[kind].index(stage * OWNERS + part)
                        copy_in(maps[kind], [0, 0, group, col + part * OWNED], full.index(stage), own)
            for part in gl.static_range(ACROSS):
                source = [0, 0, row + part * OWNED, step * DEPTH]
                copy_in(maps[0], source, full.index(stage), box(maps[0], memory[0].index(stage), part), part < boxes)
            copied += 1


@gluon.constexpr_function
def _layout_of_shorts():
    """Return the register layout of a left operand as int16 [32, 32], with two columns of b in each int16."""
    registers, lanes = [[4, 0], [8, 0], [16, 0]], [[1, 0], [2, 0], [0, 1], [0, 2], [0, 4]]
    return gl.DistributedLinearLayout(registers, lanes, [[0, 8], [0, 16]], [], [32, 32])


@gluon.jit
def _pairs(memory):
    """Load the scales or zero points of 64 columns as int32 [1, 32], two in each int32."""
    layout: gl.constexpr = gl.SliceLayout(0, _layout_of_shorts())
    in_order: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    return reinterpret(memory, gl.int32, [OWNED // 2], in_order).load(layout)[None, :]


@gluon.jit
def _weights(OWN: gl.constexpr, memory, number, GROUPS: gl.constexpr, TILE: gl.constexpr):
    """Unpack the bytes [32, 64] of step `number` to weights [64, 64], the left operand of wgmma; its rows are columns of b.

    The columns are permuted; `_store` restores their order.
    """
    stage = number % TILE[3]
    WIDTH: gl.constexpr = memory[1].shape[2]
    EACH: gl.constexpr = WIDTH // OWNED
    of_shorts: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=WIDTH, element_bitwidth=16, rank=2)
    box_of = memory[1].index(stage * (TILE[0] // WIDTH) + OWN // EACH)
    tile = reinterpret(box_of, gl.int16, [BYTES, WIDTH // 2], of_shorts)
    if EACH > 1:
        tile = tile.slice(OWN % EACH * (OWNED // 2), OWNED // 2, 1)
    shorts = tile.load(_layout_of_shorts())
    pairs = ()
    for kind in gl.static_range(3, len(memory)):
        pairs = pairs + (_pairs(memory[kind].index(stage * (TILE[0] // OWNED) + OWN)),)  # noqa: RUF005 - kernels unpack no tuples
    weights = unpack_shorts(shorts, pairs, memory[0].dtype, GROUPS)
    weights = weights.reshape(BYTES, 4, 8, 2, 2).permute(1, 3, 2, 0, 4).reshape(OWNED, DEPTH)
    product: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, widest(TILE[1]), 16])
    return gl.convert_layout(weights, gl.DotOperandLayout(0, product, 2), assert_trivial=True)


@gluon.jit
def _wait_for(full, number, TILE: gl.constexpr):
    """Wait until the copies of step `number` have arrived."""
    mbarrier.wait(full.index(number % TILE[3]), number // TILE[3] & 1)


@gluon.jit
def _multiply_in_turn(
    OWN: gl.constexpr, acc, memory, barriers, used, count, GROUPS: gl.constexpr, TILE: gl.constexpr
):  # fmt: skip
    """Unpack and multiply each of `count` steps for consumer `OWN`, one after another; `used` steps came before."""
    full, empty = barriers
    for step in range(count):
        number = used + step
        _wait_for(full, number, TILE)
        weights = _weights(OWN, memory, number, GROUPS, TILE)
        token = warpgroup_mma(weights, memory[0].index(number % TILE[3]).permute((1, 0)), acc, is_async=True)
        acc, weights = warpgroup_mma_wait(0, deps=(token, weights))
        mbarrier.arrive(empty.index(number % TILE[3]))
    return acc


@gluon.jit
def _multiply_two_widths(
    OWN: gl.constexpr, memory, barriers, used, count, GROUPS: gl.constexpr, TILE: gl.constexpr
):  # fmt: skip
    """Return the sums of `count` steps for consumer `OWN`: for the first rows of a tile, a power of two, and for the rest.

    `used` steps came before.
    """
    full, empty = barriers
    WIDE: gl.constexpr = widest(TILE[1])
    REST: gl.constexpr = TILE[1] - WIDE
    rest_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    wide = gl.zeros([OWNED, WIDE], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDE, 16]))
    rest = gl.zeros([OWNED, REST], gl.float32, rest_layout)
    for step in range(count):
        number = used + step
        _wait_for(full, number, TILE)
        weights = _weights(OWN, memory, number, GROUPS, TILE)
        # the same registers: the layout of an operand names that of the result
        same = gl.convert_layout(weights, gl.DotOperandLayout(0, rest_layout, 2))
        rows = memory[0].index(number % TILE[3])
        wide = warpgroup_mma(weights, rows.slice(0, WIDE, 0).permute((1, 0)), wide, is_async=True)
        rest = warpgroup_mma(same, rows.slice(WIDE, REST, 0).permute((1, 0)), rest, is_async=True)
        wide, rest, weights, same = warpgroup_mma_wait(0, deps=(wide, rest, weights, same))
        mbarrier.arrive(empty.index(number % TILE[3]))
    return wide, rest


@gluon.jit
def _multiply_ahead(OWN: gl.constexpr, acc, memory, barriers, used, count, GROUPS: gl.constexpr, TILE: gl.constexpr):
    """Multiply `count` steps for consumer `OWN`, unpacking the next step while tensor cores multiply this one.

    `used`: number of steps before this one.
    """
    gl.static_assert(TILE[3] >= 3, "a consumer waits for the step after the next before it frees this one's")
    full, _ = barriers
    last = used + count - 1
    _wait_for(full, used, TILE)
    weights = _weights(OWN, memory, used, GROUPS, TILE)
    _wait_for(full, gl.minimum(used + 1, last), TILE)
    # two steps per iteration, so that each unpacks to registers of its own
    for turn in range(count // 2):
        number = used + 2 * turn
        acc, weights = _multiply(OWN, acc, weights, memory, barriers, number, last, GROUPS, TILE)
        acc, weights = _multiply(OWN, acc, weights, memory, barriers, number + 1, last, GROUPS, TILE)
    if count % 2 == 1:
        acc, weights = _multiply(OWN, acc, weights, memory, barriers, last, last, GROUPS, TILE)
    return acc


@gluon.jit
def _multiply(
    OWN: gl.constexpr, acc, weights, memory, barriers, number, last, GROUPS: gl.constexpr, TILE: gl.constexpr
):  # fmt: skip
    """Multiply the unpacked step `number` while unpacking the next step; return the sums and the next step's weights.

    At a tile's `last` step it unpacks that step again, and the caller ignores the result. The wait for the next copies
    comes before the wait for the product: without a branch between them, the compiler would move the unpacking past the
    product's end.
    """
    full, empty = barriers
    token = warpgroup_mma(weights, memory[0].index(number % TILE[3]).permute((1, 0)), acc, is_async=True)
    following = _weights(OWN, memory, gl.minimum(number + 1, last), GROUPS, TILE)
    _wait_for(full, gl.minimum(number + 2, last), TILE)
    acc, weights = warpgroup_mma_wait(0, deps=(token, weights))
    mbarrier.arrive(empty.index(number % TILE[3]))
    return acc, following


@gluon.jit
def _store(OWN: gl.constexpr, out_map, out_memory, acc, place, STORED: gl.constexpr, BUFFERS: gl.constexpr):
    """Store the columns of a consumer through one or two buffers in turn, 64 rows at a time; `STORED` rows are done.

    `place`: split-K part, first row and first column of the tile.
    """
    if acc.shape[1] > OWNED:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        _store(OWN, out_map, out_memory, left, place, STORED, BUFFERS)
        _store(OWN, out_map, out_memory, right, place, STORED + HALF, BUFFERS)
    else:
        split, row, col = place
        PANEL: gl.constexpr = out_map.block_type.shape[3]
        if STORED == 0 or BUFFERS == 1:
            tma.store_wait(0)
        else:
            tma.store_wait(1)
        piece = out_memory.index(OWN * BUFFERS + STORED // OWNED % BUFFERS)
        # the rows of acc are columns of b in the order of `_weights`
        ordered = acc.to(out_memory.dtype).reshape(4, 2, 8, OWNED).permute(0, 2, 1, 3).reshape(OWNED, OWNED)
        piece.permute((1, 0)).store(ordered)
        fence_async_shared()
        for part in gl.static_range(OWNED // PANEL):
            copy_out(out_map, [split, 0, row + STORED, col + part * PANEL], box(out_map, piece, part))


@gluon.jit
def _consume(OWN: gl.constexpr, maps, memory, barriers, sizes, TILE: gl.constexpr, GROUPS: gl.constexpr):
    """Compute and store the columns of consumer `OWN` of every tile of this program."""
    # a single consumer unpacks while tensor cores multiply; of several, one unpacks while they multiply for the others. Two
    # with 128 rows gain from both
    AHEAD: gl.constexpr = TILE[0] == OWNED or (TILE[0] == 2 * OWNED and TILE[1] == 2 * OWNED)
    BUFFERS: gl.constexpr = buffers_of(TILE[1], maps[2].block_type.shape[3])
    WIDE: gl.constexpr = widest(TILE[1])
    sizes = opaque(sizes)
    used = 0
    for number in range(gl.program_id(0), _pieces(sizes, TILE), gl.num_programs(0)):
        place, first, end = _piece_at(number, sizes, TILE)
        split, row, col = place
        own = (split, row, col + OWN * OWNED)
        count = end - first
        if TILE[1] > WIDE:
            acc, rest = _multiply_two_widths(OWN, memory, barriers, used, count, GROUPS, TILE)
            _store(OWN, maps[2], memory[2], acc, own, 0, BUFFERS)
            _store(OWN, maps[2], memory[2], rest, own, WIDE, BUFFERS)
        else:
            layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDE, 16])
            acc = gl.zeros([OWNED, WIDE], gl.float32, layout)
            if AHEAD:
                acc = _multiply_ahead(OWN, acc, memory, barriers, used, count, GROUPS, TILE)
            else:
                acc = _multiply_in_turn(OWN, acc, memory, barriers, used, count, GROUPS, TILE)
            _store(OWN, maps[2], memory[2], acc, own, 0, BUFFERS)
        used += count
    tma.store_wait(0)


@gluon.jit
def mixed_mm_sm90_kernel(
    a_map,
    b_map,
    out_map,
    scales_map,
    zeros_map,
    m_len,
    n_len,
    k_len,
    group_size,
    splits,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    GROUPS: gl.constexpr,
    PANEL: gl.constexpr,
    WIDTH: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``a @ w``: a [m_len, k_len], w [k_len, n_len] from the nibbles of b [k_len / 2, n_len].

    The TMA descriptors describe a [1, 1, m_len, k_len] in boxes [1, 1, 64, 64], b [1, 1, k_len / 2, n_len] in boxes [1,
    1, 32, WIDTH], and the result [splits, 1, m_len, n_len] in boxes [1, 1, 64, PANEL], 128 bytes wide; with several splits
    each is the sum over a part of K. Scales and zero points [1, 1, groups, n_len], in boxes [1, 1, 1, 64], are read if
    `GROUPS` has them; `group_size` is a multiple of 64. A step is 64 of K; shared memory holds `STAGES` of them. Grid:
    any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    # the merge kernel may start early: it waits for the sums itself
    if PANEL == 32:
        gdc_launch_dependents()
    tile: gl.constexpr = (BLOCK_N, BLOCK_M, GROUP, STAGES)
    # shared memory has a power of two of rows
    a_memory = allocate(a_map, STAGES, widest(2 * BLOCK_M - 1), DEPTH, DEPTH)
    b_memory = allocate(b_map, STAGES * (BLOCK_N // WIDTH), BYTES, WIDTH, WIDTH)
    OWNERS: gl.constexpr = BLOCK_N // OWNED
    out_memory = allocate(out_map, buffers_of(BLOCK_M, PANEL) * OWNERS, OWNED, OWNED, PANEL)
    barriers = barriers_for(STAGES, OWNERS)
    fence_async_shared()
    maps = (a_map, b_map, out_map, scales_map, zeros_map)
    memory = (a_memory, b_memory, out_memory)
    of_groups: gl.constexpr = [STAGES * (BLOCK_N // OWNED), 1, 1, 1, OWNED]
    if GROUPS != "none":
        memory = memory + (gl.allocate_shared_memory(scales_map.dtype, of_groups, scales_map.layout),)  # noqa: RUF005
    if GROUPS == "zeros":
        memory = memory + (gl.allocate_shared_memory(zeros_map.dtype, of_groups, zeros_map.layout),)  # noqa: RUF005
    sizes = (m_len, n_len, k_len, splits)
    if OWNERS == 3:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, tile, GROUPS)),
                (_consume, (1, maps, memory, barriers, sizes, tile, GROUPS)),
                (_consume, (2, maps, memory, barriers, sizes, tile, GROUPS)),
                (_produce, (maps, memory, barriers, sizes, group_size, tile)),
            ],
            [4, 4, 1],
            [152, 152, 40],
        )
    elif OWNERS == 2:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, tile, GROUPS)),
                (_consume, (1, maps, memory, barriers, sizes, tile, GROUPS)),
                (_produce, (maps, memory, barriers, sizes, group_size, tile)),
            ],
            [4, 1],
            [232, 40],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, tile, GROUPS)),
                (_produce, (maps, memory, barriers, sizes, group_size, tile)),
            ],
            [1],
            [40],
        )
