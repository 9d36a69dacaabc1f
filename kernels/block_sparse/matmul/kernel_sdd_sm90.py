"""Gluon kernel for sm_90 of the active blocks of a product of dense matrices, with TMA and warp specialization.

It computes the same as `kernel_matmul.block_sparse_sdd_kernel`, with the same tables, for 16-bit operands, tiles of 128
rows and blocks of at least 32. Programs are persistent: program p takes the tiles p, p + programs, and so on. One warp,
the producer, copies tiles of both operands into shared memory, `STAGES` steps ahead at most. Two consumer warp groups
own 64 rows of the result each.

A tile lists the columns of b that any of its rows needs. A consumer multiplies all of them, the first half, or none, as
its own rows need.

TMA reads zeros and skips stores outside the tensor.
"""

from nojit.kernels.kernel_functions import divide, opaque
from nojit.kernels.kernel_sm90_copies import copy_in, copy_out
from nojit.kernels.products.kernel_sm90_tiles import (
    DEPTH,
    OWNED,
    PANEL,
    ROWS,
    accumulate,
    allocate,
    barriers_of,
    box,
    discard,
    finish,
    halves_of,
    narrowed,
)
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def _produce(
    maps, tables, memory, barriers, sizes, SPAN: gl.constexpr, BOX: gl.constexpr, STAGES: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
):  # fmt: skip
    """Copy the rows of a and the listed columns of b of every tile to shared memory; run by the producer warp.

    `tables`: pointers to the layout's tables.
    """
    a_map, b_map = maps[0], maps[1]
    a_memory, b_memory = memory[0], memory[1]
    full, empty = barriers
    sizes = opaque(sizes)
    batch, tiles, strips, k_len, block = sizes
    HALF: gl.constexpr = SPAN // BOX // 2
    copied = 0
    index_z, tile = divide(gl.program_id(0), tiles)
    following = _look_up(tables, tile, block, SPAN, BOX)
    for number in range(gl.program_id(0), batch * tiles, gl.num_programs(0)):
        # read the tables one tile ahead, since the first copies of a tile would wait for them
        strip, needed, columns = following
        next_z, tile = divide(number + gl.num_programs(0), tiles)
        following = _look_up(tables, tile, block, SPAN, BOX)
        head, own = divide(strip, strips)
        row = own * ROWS
        wide = needed > HALF * BOX
        for start in range(0, k_len, DEPTH):
            stage = copied % STAGES
            mbarrier.wait(empty.index(stage), (copied // STAGES & 1) ^ 1)
            if wide:
                mbarrier.expect(full.index(stage), a_map.block_type.nbytes * 2 + b_map.block_type.nbytes * HALF * 2)
            else:
                mbarrier.expect(full.index(stage), a_map.block_type.nbytes * 2 + b_map.block_type.nbytes * HALF)
            for part in gl.static_range(2):
                first = row + part * OWNED
                place = [index_z, head, start, first] if TRANS_A else [index_z, head, first, start]
                copy_in(a_map, place, full.index(stage), box(a_map, a_memory.index(stage * 2 + part), 0))
            for part in gl.static_range(HALF * 2):
                here = wide if part >= HALF else True
                place = [index_z, head, columns[part], start] if TRANS_B else [index_z, head, start, columns[part]]
                copy_in(b_map, place, full.index(stage), box(b_map, b_memory.index(stage), part), pred=here)
            copied += 1
        index_z = next_z


@gluon.jit
def _look_up(tables, tile, block, SPAN: gl.constexpr, BOX: gl.constexpr):
    """Read a tile's strip, the number of columns that it needs, and the first column of each `BOX` of these.

    `tables`: pointers to the layout's tables.
    """
    tiles_ptr = tables[0] + tile * 3
    columns = ()
    for part in gl.static_range(SPAN // BOX):
        # columns are negative past the end of a tile that is not full
        column = gl.load(tables[1] + tile * (SPAN // block) + part * BOX // block)
        columns = columns + (column * block + part * BOX % block,)  # noqa: RUF005 - no Gluon
    return gl.load(tiles_ptr), gl.maximum(gl.load(tiles_ptr + 1), gl.load(tiles_ptr + 2)), columns


@gluon.jit
def _multiply(
    OWN: gl.constexpr, memory, barriers, used, k_len, SPAN: gl.constexpr, STAGES: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
):  # fmt: skip
    """Multiply the 64 rows of consumer `OWN` of a tile by the first `SPAN` columns of the tile; return the sums.

    `used`: number of steps before this one.
    """
    a_memory, b_memory = memory[0], memory[1]
    full, empty = barriers
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SPAN, 16])
    acc = gl.zeros([OWNED, SPAN], gl.float32, layout)
    before = -1
    for start in range(0, k_len, DEPTH):
        step = used + start // DEPTH
        stage = step % STAGES
        a = a_memory.index(stage * 2 + OWN)
        if TRANS_A:
            a = a.permute((1, 0))
        if TRANS_B:
            b = narrowed(b_memory.index(stage), SPAN, DEPTH).permute((1, 0))
        else:
            b = narrowed(b_memory.index(stage), DEPTH, SPAN)
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        acc = accumulate(acc, a, b, empty, before)
        before = stage
    return finish(acc, empty, before)


@gluon.jit
def _store_blocks(
    OWN: gl.constexpr, out_map, out_memory, acc, numbers, index_z, block, FIRST: gl.constexpr, BOX: gl.constexpr
):
    """Store the present blocks of a tile from column `FIRST` on, through two alternating buffers of `PANEL` columns."""
    if acc.shape[1] > PANEL:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        _store_blocks(OWN, out_map, out_memory, left, numbers, index_z, block, FIRST, BOX)
        _store_blocks(OWN, out_map, out_memory, right, numbers, index_z, block, FIRST + HALF, BOX)
    else:
        DOWN: gl.constexpr = OWNED // BOX
        COPIES: gl.constexpr = PANEL // BOX * DOWN
        first: gl.constexpr = FIRST // PANEL * COPIES
        # wait until the previous store from this buffer has read it
        if FIRST == 0:
            tma.store_wait(0)
        else:
            tma.store_wait(COPIES)
        piece = out_memory.index(OWN * 2 + FIRST // PANEL % 2)
        piece.store(acc.to(out_memory.dtype))
        fence_async_shared()
        for part in gl.static_range(PANEL // BOX):
            for down in gl.static_range(DOWN):
                number = numbers[first + part * DOWN + down]
                within = [index_z, number, (OWN * OWNED + down * BOX) % block, (FIRST + part * BOX) % block]
                copy_out(out_map, within, box(out_map, piece, part * DOWN + down))


@gluon.jit
def _write_tile(
    OWN: gl.constexpr, maps, tables, memory, barriers, sizes, index_z, tile, used, WIDTH: gl.constexpr,
    SPAN: gl.constexpr, BOX: gl.constexpr, STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
):  # fmt: skip
    """Multiply the 64 rows of consumer `OWN` by the first `WIDTH` columns of a tile, and store the present blocks.

    `tables`: pointers to the layout's tables; `used`: number of steps before this one.
    """
    k_len, block = sizes[3], sizes[4]
    out_map = maps[2]
    # read early, to hide the latency
    numbers = ()
    blocks_ptr = tables[2] + tile * (ROWS // block) * (SPAN // block)
    for part in gl.static_range(WIDTH // BOX):
        for down in gl.static_range(OWNED // BOX):
            row = (OWN * OWNED + down * BOX) // block
            number = gl.load(blocks_ptr + row * (SPAN // block) + part * BOX // block)
            # TMA skips a store past the last block, but a store to block -1 is an illegal instruction
            numbers = numbers + (gl.where(number < 0, out_map.shape[1], number),)  # noqa: RUF005 - no Gluon
    acc = _multiply(OWN, memory, barriers, used, k_len, WIDTH, STAGES, TRANS_A, TRANS_B)
    _store_blocks(OWN, out_map, memory[2], acc, numbers, index_z, block, 0, BOX)


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, tables, memory, barriers, sizes, SPAN: gl.constexpr, BOX: gl.constexpr,
    STAGES: gl.constexpr, TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
):  # fmt: skip
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program.

    `tables`: pointers to the layout's tables.
    """
    full, empty = barriers
    sizes = opaque(sizes)
    batch, tiles, k_len = sizes[0], sizes[1], sizes[3]
    HALF: gl.constexpr = SPAN // 2
    needs_ptr = tables[0] + 1 + OWN
    used = 0
    index_z, tile = divide(gl.program_id(0), tiles)
    needed = gl.load(needs_ptr + tile * 3)
    for number in range(gl.program_id(0), batch * tiles, gl.num_programs(0)):
        width = needed
        next_z, next_tile = divide(number + gl.num_programs(0), tiles)
        needed = gl.load(needs_ptr + next_tile * 3)
        if width > HALF:
            _write_tile(
                OWN, maps, tables, memory, barriers, sizes, index_z, tile, used, SPAN, SPAN, BOX, STAGES,
                TRANS_A, TRANS_B,
            )  # fmt: skip
        elif width > 0:
            _write_tile(
                OWN, maps, tables, memory, barriers, sizes, index_z, tile, used, HALF, SPAN, BOX, STAGES,
                TRANS_A, TRANS_B,
            )  # fmt: skip
        else:
            for start in range(0, k_len, DEPTH):
                discard(full, empty, used + start // DEPTH, STAGES)
        used += gl.cdiv(k_len, DEPTH)
        index_z = next_z
        tile = next_tile
    tma.store_wait(0)


@gluon.jit
def block_sparse_sdd_sm90_kernel(
    a_map,
    b_map,
    out_map,
    tiles_ptr,
    columns_ptr,
    blocks_ptr,
    batch,
    tiles,
    strips,
    k_len,
    block,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    SPAN: gl.constexpr,
    BOX: gl.constexpr,
    B_HEIGHT: gl.constexpr,  # noqa: ARG001 - the manifest's type of b_map reads it
    B_WIDTH: gl.constexpr,
    TRANS_A: gl.constexpr,
    TRANS_B: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write the active blocks of ``a @ b``: a [batch, heads, m, k_len], b [batch, heads, k_len, n], 16-bit elements.

    The TMA descriptors `a_map`, `b_map` and `out_map` describe a in boxes [1, 1, 64, 64], b in boxes of 64 rows by
    `BOX` columns, and the result [batch, nnz, block, block] in boxes [1, 1, BOX, BOX]. With `TRANS_A` and `TRANS_B`,
    those of a and b describe their transposes. `BOX` is the block size, at most 64. The tables are those of
    `packing.Packing` for tiles of 128 rows and `SPAN` columns. A step is 64 of k_len; shared memory holds `STAGES` of
    them. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    a_memory = allocate(a_map, STAGES * 2, OWNED, DEPTH, DEPTH)
    b_memory = allocate(b_map, STAGES, SPAN if TRANS_B else DEPTH, DEPTH if TRANS_B else SPAN, B_WIDTH)
    out_memory = allocate(out_map, 4, OWNED, PANEL, BOX)
    barriers = barriers_of(STAGES)
    fence_async_shared()
    maps = (a_map, b_map, out_map)
    tables = (tiles_ptr, columns_ptr, blocks_ptr)
    memory = (a_memory, b_memory, out_memory)
    sizes = (batch, tiles, strips, k_len, block)
    gl.warp_specialize(
        [
            (_consume, (0, maps, tables, memory, barriers, sizes, SPAN, BOX, STAGES, TRANS_A, TRANS_B)),
            (_consume, (1, maps, tables, memory, barriers, sizes, SPAN, BOX, STAGES, TRANS_A, TRANS_B)),
            (_produce, (maps, tables, memory, barriers, sizes, SPAN, BOX, STAGES, TRANS_A, TRANS_B)),
        ],
        [4, 1],
        [224, 56],
    )
