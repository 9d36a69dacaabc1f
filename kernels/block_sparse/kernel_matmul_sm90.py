"""The block-sparse products for sm_90, of blocks of 64 and 128: tensor maps, and warps specialized in copying.

They compute what the kernels of `kernel_matmul` do, over the same tables and tiles of 128 rows. A program is persistent: it
takes every so many-th piece of work. One warp, the producer, copies tiles of both operands into shared memory, as far
ahead as there is room; each of the two warp groups beside it, the consumers, owns 64 rows of the result.

Everything is copied in boxes of 64 x 64 elements. Tensor maps pad with zeros, and leave out what is stored outside: a
block that is not there is number -1, outside of the sparse tensor.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)
# ruff: noqa: PLR0917 - a launch passes its facts by position, many of them

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

BOX = gl.constexpr(64)
"""Rows and columns of what is copied at once, and the rows that a consumer owns."""
ROWS = gl.constexpr(128)
PADDED = gl.constexpr(256)
"""What columns of partial results are padded to; they lie in panels of `BOX` columns, as in `kernel_matmul`."""

# Triton renamed them after 3.6 and 3.7
reinterpret = getattr(gl.shared_memory_descriptor, "reinterpret", None) or gl.shared_memory_descriptor._reinterpret  # noqa: SLF001
copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
copy_out = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.jit
def _accumulate(acc, a, b, full, empty, used, STAGES: gl.constexpr):
    """Add the product of a stage that was copied, and free it."""
    stage = used % STAGES
    mbarrier.wait(full.index(stage), used // STAGES & 1)
    token = warpgroup_mma(a, b, acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(token,))
    mbarrier.arrive(empty.index(stage))
    return acc


@gluon.jit
def _allocate(of_map, COUNT: gl.constexpr, WIDTH: gl.constexpr, BY_ROWS: gl.constexpr):
    """Allocate tiles [WIDTH, BOX], or, if not by rows, [BOX, WIDTH], of boxes that lie one after the other."""
    shape: gl.constexpr = [WIDTH, BOX] if BY_ROWS else [BOX, WIDTH]
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(shape, of_map.dtype)
    return gl.allocate_shared_memory(of_map.dtype, [COUNT] + shape, layout)  # noqa: RUF005 - no Gluon


@gluon.jit
def _box(of_map, tile, number):
    """View one box of a tile as a copy takes it."""
    COUNT: gl.constexpr = tile.shape[0] * tile.shape[1] // (BOX * BOX)
    return reinterpret(tile, of_map.dtype, [COUNT, 1, 1, BOX, BOX], of_map.layout).index(number)


# -- dense by dense into blocks --------------------------------------------------------------------------------------


@gluon.jit
def _produce_tiles(
    maps, tables, memory, barriers, sizes, SPAN: gl.constexpr, STAGES: gl.constexpr, TRANS_A: gl.constexpr,
    TRANS_B: gl.constexpr,
):  # fmt: skip
    """Copy the rows of a and the gathered columns of b that each tile needs."""
    a_map, b_map = maps[0], maps[1]
    strips_ptr, columns_ptr = tables[0], tables[1]
    a_memory, b_memory = memory[0], memory[1]
    full, empty = barriers
    batch, tiles, strips, k_len, block = sizes
    PARTS: gl.constexpr = SPAN // BOX
    copied = 0
    for number in range(gl.program_id(0), batch * tiles, gl.num_programs(0)):
        tile = number % tiles
        index_z = number // tiles
        strip = gl.load(strips_ptr + tile)
        head = strip // strips
        row = strip % strips * ROWS
        for start in range(0, k_len, BOX):
            stage = copied % STAGES
            mbarrier.wait(empty.index(stage), (copied // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(stage), a_map.block_type.nbytes * (2 + PARTS))
            for part in gl.static_range(2):
                first = row + part * BOX
                place = [index_z, head, start, first] if TRANS_A else [index_z, head, first, start]
                copy_in(a_map, place, full.index(stage), _box(a_map, a_memory.index(stage * 2 + part), 0))
            for part in gl.static_range(PARTS):
                # before the first column of the layout where the tile is not full
                column = gl.load(columns_ptr + tile * (SPAN // block) + part * BOX // block)
                first = column * block + part * BOX % block
                place = [index_z, head, first, start] if TRANS_B else [index_z, head, start, first]
                copy_in(b_map, place, full.index(stage), _box(b_map, b_memory.index(stage), part))
            copied += 1


@gluon.jit
def _consume_tiles(
    OWN: gl.constexpr, maps, tables, memory, barriers, sizes, SPAN: gl.constexpr, STAGES: gl.constexpr,
    TRANS_A: gl.constexpr, TRANS_B: gl.constexpr,
):  # fmt: skip
    """Multiply the rows of number `OWN` of every tile, and store the blocks that are there."""
    out_map = maps[2]
    blocks_ptr = tables[2]
    a_memory, b_memory, out_memory = memory
    full, empty = barriers
    batch, tiles, k_len, block = sizes[0], sizes[1], sizes[3], sizes[4]
    PARTS: gl.constexpr = SPAN // BOX
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SPAN, 16])
    used = 0
    for number in range(gl.program_id(0), batch * tiles, gl.num_programs(0)):
        tile = number % tiles
        index_z = number // tiles
        acc = gl.zeros([BOX, SPAN], gl.float32, layout)
        for _ in range(0, k_len, BOX):
            stage = used % STAGES
            a = a_memory.index(stage * 2 + OWN)
            if TRANS_A:
                a = a.permute((1, 0))
            b = b_memory.index(stage)
            if TRANS_B:
                b = b.permute((1, 0))
            acc = _accumulate(acc, a, b, full, empty, used, STAGES)
            used += 1
        # what was stored of the tile before must have left
        tma.store_wait(0)
        out_memory.index(OWN).store(acc.to(out_memory.dtype))
        fence_async_shared()
        for part in gl.static_range(PARTS):
            place = (tile * (ROWS // block) + OWN * BOX // block) * (SPAN // block) + part * BOX // block
            number_of_block = gl.load(blocks_ptr + place)
            # a store to block -1 is an illegal instruction, as a load of it is not
            if number_of_block >= 0:
                within = [index_z, number_of_block, OWN * BOX % block, part * BOX % block]
                copy_out(out_map, within, _box(out_map, out_memory.index(OWN), part))
    tma.store_wait(0)


@gluon.jit
def block_sparse_sdd_sm90_kernel(
    a_map,
    b_map,
    out_map,
    strips_ptr,
    columns_ptr,
    blocks_ptr,
    batch,
    tiles,
    strips,
    k_len,
    block,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    SPAN: gl.constexpr,
    TRANS_A: gl.constexpr,
    TRANS_B: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write the active blocks of ``a @ b``: a [batch, heads, m, k_len], b [batch, heads, k_len, n].

    The maps describe a, b and the result [batch, nnz, block, block] in blocks of [1, 1, 64, 64]; with `TRANS_A` and
    `TRANS_B` those of a and b describe their transposes. The tables are those of tiles of 128 rows and `SPAN` columns.
    `STAGES` is how many steps of 64 of the depth shared memory holds. Any grid in x.
    """
    a_memory = _allocate(a_map, STAGES * 2, BOX, True)
    b_memory = _allocate(b_map, STAGES, SPAN, TRANS_B)
    out_memory = _allocate(out_map, 2, SPAN, False)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    maps = (a_map, b_map, out_map)
    tables = (strips_ptr, columns_ptr, blocks_ptr)
    memory = (a_memory, b_memory, out_memory)
    barriers = (full, empty)
    sizes = (batch, tiles, strips, k_len, block)
    gl.warp_specialize(
        [
            (_consume_tiles, (0, maps, tables, memory, barriers, sizes, SPAN, STAGES, TRANS_A, TRANS_B)),
            (_consume_tiles, (1, maps, tables, memory, barriers, sizes, SPAN, STAGES, TRANS_A, TRANS_B)),
            (_produce_tiles, (maps, tables, memory, barriers, sizes, SPAN, STAGES, TRANS_A, TRANS_B)),
        ],
        [4, 1],
        [240, 24],
    )


# -- blocks by dense -------------------------------------------------------------------------------------------------


@gluon.jit
def _task_of(number, tables, sizes):
    """Return the batch, the first column and the task of a piece of work."""
    n_len, tasks, width = sizes[3], sizes[1], sizes[5]
    parts = gl.cdiv(n_len, width)
    task_ptr = tables[0] + number // parts % tasks * 5
    return number // parts // tasks, number % parts * width, task_ptr


@gluon.jit
def _produce_entries(
    maps, tables, memory, barriers, sizes, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, TURNED: gl.constexpr,
    COLUMNS: gl.constexpr,
):  # fmt: skip
    """Copy the blocks and the rows of d of each entry."""
    s_map, d_map = maps[0], maps[1]
    columns_ptr, blocks_ptr = tables[1], tables[2]
    s_memory, d_memory = memory[0], memory[1]
    full, empty = barriers
    batch, tasks, strips, n_len, block = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    group = ROWS // block
    PARTS: gl.constexpr = BLOCK_N // BOX
    copied = 0
    for number in range(gl.program_id(0), batch * tasks * gl.cdiv(n_len, BLOCK_N), gl.num_programs(0)):
        index_z, col, task_ptr = _task_of(number, tables, sizes)
        head = gl.load(task_ptr) // strips
        first = gl.load(task_ptr + 1)
        last = gl.load(task_ptr + 2)
        # read an entry ahead: the tables have one more than there are
        column = gl.load(columns_ptr + first)
        upper = gl.load(blocks_ptr + first * group)
        lower = gl.load(blocks_ptr + first * group + group - 1)
        for entry in range(first, last):
            row = column * block
            owned = (upper, lower)
            column = gl.load(columns_ptr + entry + 1)
            upper = gl.load(blocks_ptr + (entry + 1) * group)
            lower = gl.load(blocks_ptr + (entry + 1) * group + group - 1)
            for start in range(0, block, BOX):
                stage = copied % STAGES
                mbarrier.wait(empty.index(stage), (copied // STAGES & 1) ^ 1)
                mbarrier.expect(full.index(stage), s_map.block_type.nbytes * (2 + PARTS))
                for part in gl.static_range(2):
                    within = part * BOX % block
                    place = [index_z, owned[part], start, within] if TURNED else [index_z, owned[part], within, start]
                    copy_in(s_map, place, full.index(stage), _box(s_map, s_memory.index(stage * 2 + part), 0))
                for part in gl.static_range(PARTS):
                    across = col + part * BOX
                    place = [index_z, head, across, row + start] if COLUMNS else [index_z, head, row + start, across]
                    copy_in(d_map, place, full.index(stage), _box(d_map, d_memory.index(stage), part))
                copied += 1


@gluon.jit
def _consume_entries(
    OWN: gl.constexpr, maps, partial_ptr, tables, memory, barriers, sizes, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    TURNED: gl.constexpr, COLUMNS: gl.constexpr,
):  # fmt: skip
    """Sum up the rows of number `OWN` of every task, and store them."""
    out_map = maps[2]
    blocks_ptr = tables[2]
    s_memory, d_memory, out_memory = memory
    full, empty = barriers
    batch, tasks, strips, n_len, block = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    slots, atomic = sizes[6], sizes[7]
    group = ROWS // block
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    used = 0
    for number in range(gl.program_id(0), batch * tasks * gl.cdiv(n_len, BLOCK_N), gl.num_programs(0)):
        index_z, col, task_ptr = _task_of(number, tables, sizes)
        first = gl.load(task_ptr + 1)
        last = gl.load(task_ptr + 2)
        own_ptr = blocks_ptr + OWN * BOX // block
        own_block = gl.load(own_ptr + first * group)
        acc = gl.zeros([BOX, BLOCK_N], gl.float32, layout)
        for entry in range(first, last):
            here = own_block >= 0
            own_block = gl.load(own_ptr + (entry + 1) * group)
            for _ in range(0, block, BOX):
                stage = used % STAGES
                if here:
                    s = s_memory.index(stage * 2 + OWN)
                    if TURNED:
                        s = s.permute((1, 0))
                    d = d_memory.index(stage)
                    if COLUMNS:
                        d = d.permute((1, 0))
                    acc = _accumulate(acc, s, d, full, empty, used, STAGES)
                else:
                    mbarrier.wait(full.index(stage), used // STAGES & 1)
                    mbarrier.arrive(empty.index(stage))
                used += 1
        # read only now: registers are scarce in the loop
        strip = gl.load(task_ptr)
        slot = gl.load(task_ptr + 3 + atomic)
        if slot < 0:
            _store_rows(OWN, out_map, out_memory, acc, index_z, strip, strips, col, BLOCK_N, COLUMNS)
        else:
            size = gl.cdiv(n_len, PADDED).to(gl.int64) * (PADDED * ROWS)
            first_ptr = partial_ptr + (index_z.to(gl.int64) * slots + slot) * size + col.to(gl.int64) * ROWS
            rows = OWN * BOX + gl.arange(0, BOX, layout=gl.SliceLayout(1, layout))
            cols = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
            # in 64 bits, so that all but one of a thread's addresses are constants away
            places = rows.to(gl.int64)[:, None] * BOX + (cols // BOX * (ROWS * BOX) + cols % BOX).to(gl.int64)[None, :]
            if atomic == 1:
                gl.atomic_add(first_ptr + places, acc, sem="relaxed")
            else:
                gl.store(first_ptr + places, acc)
    tma.store_wait(0)


@gluon.jit
def _store_rows(
    OWN: gl.constexpr, out_map, out_memory, acc, index_z, strip, strips, col, BLOCK_N: gl.constexpr,
    COLUMNS: gl.constexpr,
):  # fmt: skip
    """Store a consumer's rows [BOX, BLOCK_N] of a strip."""
    PARTS: gl.constexpr = BLOCK_N // BOX
    # what was stored before must have left
    tma.store_wait(0)
    view = out_memory.index(OWN)
    if COLUMNS:
        view = view.permute((1, 0))
    view.store(acc.to(out_memory.dtype))
    fence_async_shared()
    row = strip % strips * ROWS + OWN * BOX
    for part in gl.static_range(PARTS):
        across = col + part * BOX
        place = [index_z, strip // strips, across, row] if COLUMNS else [index_z, strip // strips, row, across]
        copy_out(out_map, place, _box(out_map, out_memory.index(OWN), part))


@gluon.jit
def block_sparse_dsd_sm90_kernel(
    s_map,
    d_map,
    out_map,
    partial_ptr,
    tasks_ptr,
    columns_ptr,
    blocks_ptr,
    batch,
    tasks,
    strips,
    n_len,
    block,
    slots,
    atomic,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    TURNED: gl.constexpr,
    COLUMNS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``s @ d``: s [batch, nnz, block, block] of a layout, each block transposed where it is `TURNED`.

    The maps describe s, d [batch, heads, k, n_len] and the result in blocks of [1, 1, 64, 64]; with `COLUMNS` those of d
    and of the result describe their transposes. Tables and partial results are those of
    `kernel_matmul.block_sparse_dsd_kernel` with strips of 128 rows. `STAGES` is how many steps of 64 shared memory holds.
    Any grid in x.
    """
    s_memory = _allocate(s_map, STAGES * 2, BOX, True)
    d_memory = _allocate(d_map, STAGES, BLOCK_N, COLUMNS)
    out_memory = _allocate(out_map, 2, BLOCK_N, COLUMNS)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    maps = (s_map, d_map, out_map)
    tables = (tasks_ptr, columns_ptr, blocks_ptr)
    memory = (s_memory, d_memory, out_memory)
    barriers = (full, empty)
    sizes = (batch, tasks, strips, n_len, block, BLOCK_N, slots, atomic)
    gl.warp_specialize(
        [
            (
                _consume_entries,
                (0, maps, partial_ptr, tables, memory, barriers, sizes, BLOCK_N, STAGES, TURNED, COLUMNS),
            ),
            (
                _consume_entries,
                (1, maps, partial_ptr, tables, memory, barriers, sizes, BLOCK_N, STAGES, TURNED, COLUMNS),
            ),
            (_produce_entries, (maps, tables, memory, barriers, sizes, BLOCK_N, STAGES, TURNED, COLUMNS)),
        ],
        [4, 1],
        [240, 24],
    )
