"""Gluon kernel for sm_90 of a block-sparse matrix times a dense one, with TMA and warp specialization.

It computes the same as `kernel_matmul.block_sparse_dsd_kernel`, for 16-bit operands and blocks of at least 32. It reads
the tables of `packing.Packing`: a *strip* is 128 rows of the sparse matrix, an *entry* of a strip is a block column
where it has blocks, and a *task* is all or some consecutive entries of one strip.

Programs are persistent. Each takes one piece of work after another; a piece is `BLOCK_N` columns of the result of one
task. One warp, the producer, copies blocks and rows of the dense operand into shared memory, `STAGES` steps ahead at
most. Two consumer warp groups own 64 rows of the strip each, and skip entries that have no block in these rows.

Pieces of long tasks come first. They may not divide evenly among the programs; programs that get one long piece fewer
take several other pieces instead, which last as long. All programs then reach neighbouring pieces, which read the same
rows, at the same time.

Producer and consumers read the table entries of the next piece during the current one, since a look-up takes as long as
a block's product.

TMA reads zeros and skips stores outside the tensor. An absent block has the number -1, which is outside.
"""

from nojit.kernels.kernel_functions import divide, opaque
from nojit.kernels.kernel_sm90_copies import copy_in, copy_out
from nojit.kernels.products.kernel_sm90_tiles import (
    OWNED,
    PADDED,
    PANEL,
    ROWS,
    accumulate,
    allocate,
    barriers_of,
    box,
    discard,
    finish,
    halves_of,
)
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def _order_of(sizes, WIDTH: gl.constexpr):
    """Return the order in which programs take pieces, for `_following` and `_task_of`.

    Returns:
        parts: the number of pieces per task.
        longs: the number of pieces of long tasks, which have the first numbers.
        even: the end of the pieces reserved for the programs that take one long piece fewer.
        free: the number of these programs.
        apart: the number of the piece at which this program proceeds to the unreserved pieces.
    """
    batch, n_len, long, ahead = sizes[0], sizes[3], sizes[7], sizes[8]
    parts = gl.cdiv(n_len, WIDTH)
    longs = batch * long * parts
    _, busy = divide(longs, gl.num_programs(0))
    free = gl.num_programs(0) - busy
    even = longs + gl.where(busy > 0, ahead * free, 0)
    return parts, longs, even, free, gl.where(gl.program_id(0) < busy, longs, even)


@gluon.jit
def _following(number, order):
    """Return the number of the piece that this program takes after piece `number`; `order` is from `_order_of`."""
    _, longs, even, free, apart = order
    step = gl.where((number >= longs) & (number < even), free, gl.num_programs(0))
    return gl.where((number < apart) & (number + step >= apart), even + gl.program_id(0), number + step)


@gluon.jit
def _task_of(number, order, tables, sizes, WIDTH: gl.constexpr):
    """Return the batch, the first column and the table address of the task of piece `number`.

    Past the last piece it returns another piece, so that its table entries can be read in any case.

    `tables`: pointers to the layout's tables.
    """
    batch, tasks, long = sizes[0], sizes[1], sizes[7]
    parts, longs, _, _, _ = order
    is_long = number < longs
    piece, part = divide(number, parts)
    index_z, task = divide(piece - gl.where(is_long, 0, batch * long), gl.where(is_long, long, tasks - long))
    return index_z, part * WIDTH, tables[0] + (task + gl.where(is_long, 0, long)) * 5


@gluon.jit
def _read_task(task_ptr, atomic):
    """Return a task's strip, first entry, end of its entries, and its slot for partial sums (-1 if none).

    With `atomic`, the slot is that of the strip, to which several tasks add.
    """
    return gl.load(task_ptr), gl.load(task_ptr + 1), gl.load(task_ptr + 2), gl.load(task_ptr + 3 + atomic)


@gluon.jit
def _produce(
    maps, tables, memory, barriers, sizes, WIDTH: gl.constexpr, BOX: gl.constexpr, STAGES: gl.constexpr,
    TRANSPOSED: gl.constexpr, COLUMNS: gl.constexpr,
):  # fmt: skip
    """Copy the blocks and the rows of d of every entry to shared memory; run by the producer warp.

    `tables`: pointers to the layout's tables.
    """
    s_map, d_map = maps[0], maps[1]
    s_memory, d_memory = memory[0], memory[1]
    full, empty = barriers
    sizes = opaque(sizes)
    batch, tasks, strips, block = sizes[0], sizes[1], sizes[2], sizes[4]
    group = ROWS // block
    PARTS: gl.constexpr = WIDTH // PANEL
    DOWN: gl.constexpr = ROWS // BOX
    copied = 0
    order = _order_of(sizes, WIDTH)
    number = gl.program_id(0)
    next_z, next_col, task_ptr = _task_of(number, order, tables, sizes, WIDTH)
    next_strip, next_first, next_last, _ = _read_task(task_ptr, 0)
    column, numbers = _read_entry(tables, next_first, group, block, BOX)
    while number < batch * tasks * order[0]:
        index_z = next_z
        col = next_col
        head, _ = divide(next_strip, strips)
        first = next_first
        last = next_last
        number = _following(number, order)
        next_z, next_col, task_ptr = _task_of(number, order, tables, sizes, WIDTH)
        next_strip, next_first, next_last, _ = _read_task(task_ptr, 0)
        # the table row of the next entry is read ahead, too
        for entry in range(first, last):
            row = column * block
            owned = numbers
            following = gl.where(entry + 1 < last, entry + 1, next_first)
            column, numbers = _read_entry(tables, following, group, block, BOX)
            for start in range(0, block, BOX):
                stage = copied % STAGES
                mbarrier.wait(empty.index(stage), (copied // STAGES & 1) ^ 1)
                mbarrier.expect(full.index(stage), s_map.block_type.nbytes * DOWN + d_map.block_type.nbytes * PARTS)
                for down in gl.static_range(DOWN):
                    within = down * BOX % block
                    place = (
                        [index_z, owned[down], start, within] if TRANSPOSED else [index_z, owned[down], within, start]
                    )
                    half = s_memory.index(stage * 2 + down * 2 // DOWN)
                    copy_in(s_map, place, full.index(stage), box(s_map, half, down % (DOWN // 2)))
                for part in gl.static_range(PARTS):
                    across = col + part * PANEL
                    place = [index_z, head, across, row + start] if COLUMNS else [index_z, head, row + start, across]
                    copy_in(d_map, place, full.index(stage), box(d_map, d_memory.index(stage), part))
                copied += 1
        if first == last:
            column, numbers = _read_entry(tables, next_first, group, block, BOX)


@gluon.jit
def _read_entry(tables, entry, group, block, BOX: gl.constexpr):
    """Return the block column of an entry, and the block numbers at each `BOX` rows of its strip (-1 if absent).

    `group` is the number of blocks in a strip's height.

    `tables`: pointers to the layout's tables.
    """
    column = gl.load(tables[1] + entry * 2)
    blocks_ptr = tables[2] + entry * group
    numbers = ()
    for down in gl.static_range(ROWS // BOX):
        numbers = numbers + (gl.load(blocks_ptr + down * BOX // block),)  # noqa: RUF005 - no Gluon
    return column, numbers


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, partial_ptr, tables, memory, barriers, sizes, WIDTH: gl.constexpr, BOX: gl.constexpr,
    STAGES: gl.constexpr, TRANSPOSED: gl.constexpr, COLUMNS: gl.constexpr,
):  # fmt: skip
    """Multiply and store the 64 rows of consumer `OWN` for every piece of this program.

    `tables`: pointers to the layout's tables.
    """
    out_map = maps[2]
    halves_ptr = tables[1] + 1
    out_memory = memory[2]
    sizes = opaque(sizes)
    batch, tasks, strips, n_len = sizes[0], sizes[1], sizes[2], sizes[3]
    slots, atomic = sizes[5], sizes[6]
    used = 0
    order = _order_of(sizes, WIDTH)
    number = gl.program_id(0)
    next_z, next_col, task_ptr = _task_of(number, order, tables, sizes, WIDTH)
    strip, first, last, slot = _read_task(task_ptr, atomic)
    here = gl.load(halves_ptr + first * 2)
    while number < batch * tasks * order[0]:
        acc, before, used = _sum(
            OWN, halves_ptr, here, memory, barriers, sizes, first, last, used, WIDTH, BOX, STAGES, TRANSPOSED, COLUMNS
        )
        # while the last product is in flight
        index_z = next_z
        col = next_col
        head, own = divide(strip, strips)
        place = slot
        number = _following(number, order)
        next_z, next_col, task_ptr = _task_of(number, order, tables, sizes, WIDTH)
        strip, first, last, slot = _read_task(task_ptr, atomic)
        acc = finish(acc, barriers[1], before)
        here = gl.load(halves_ptr + first * 2)
        if place < 0:
            _store_rows(OWN, out_map, out_memory, acc, index_z, head, own * ROWS + OWN * OWNED, col, 0, COLUMNS)
        else:
            size = gl.cdiv(n_len, PADDED).to(gl.int64) * (PADDED * ROWS)
            first_ptr = partial_ptr + (index_z.to(gl.int64) * slots + place) * size + col.to(gl.int64) * ROWS
            layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
            rows = OWN * OWNED + gl.arange(0, OWNED, layout=gl.SliceLayout(1, layout))
            cols = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
            # in 64 bits, so that a thread's addresses are constant offsets from a single one
            places = rows.to(gl.int64)[:, None] * PANEL
            places = places + (cols // PANEL * (ROWS * PANEL) + cols % PANEL).to(gl.int64)[None, :]
            if atomic == 1:
                gl.atomic_add(first_ptr + places, acc, sem="relaxed")
            else:
                gl.store(first_ptr + places, acc)
    tma.store_wait(0)


@gluon.jit
def _sum(
    OWN: gl.constexpr, halves_ptr, halves, memory, barriers, sizes, first, last, used, WIDTH: gl.constexpr,
    BOX: gl.constexpr, STAGES: gl.constexpr, TRANSPOSED: gl.constexpr, COLUMNS: gl.constexpr,
):  # fmt: skip
    """Sum up the products of the 64 rows of consumer `OWN` over the entries [first, last) of one task.

    `halves` are the halves of the strip that have a block at the first entry (bit 0: upper, bit 1: lower), `used` the
    number of steps so far. Returns the sums, `used`, and the stage of the last product, which may still run: the caller
    frees the stage when it has ended.
    """
    s_memory, d_memory = memory[0], memory[1]
    full, empty = barriers
    block = sizes[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    acc = gl.zeros([OWNED, WIDTH], gl.float32, layout)
    before = gl.to_tensor(-1)
    for entry in range(first, last):
        here = halves & (1 + OWN)
        # never past `last`; the minimum is needed because Triton 3.6 and 3.7 fail on a value that only bounds a nested loop
        halves = gl.load(halves_ptr + gl.minimum(entry + 1, last) * 2)
        for _ in range(0, block, BOX):
            if here != 0:
                stage = used % STAGES
                s = s_memory.index(stage * 2 + OWN)
                if TRANSPOSED:
                    s = s.permute((1, 0))
                d = d_memory.index(stage)
                if COLUMNS:
                    d = d.permute((1, 0))
                mbarrier.wait(full.index(stage), used // STAGES & 1)
                acc = accumulate(acc, s, d, empty, before)
                before = stage
            else:
                # the producer may need the stage of the product in flight before this consumer multiplies again
                acc = finish(acc, empty, before)
                before = -1
                discard(full, empty, used, STAGES)
            used += 1
    return acc, before, used


@gluon.jit
def _store_rows(
    OWN: gl.constexpr, out_map, out_memory, acc, index_z, head, row, col, STORED: gl.constexpr, COLUMNS: gl.constexpr
):
    """Store 64 rows of a consumer through two alternating buffers, `PANEL` columns at a time; `STORED` columns are done."""
    if acc.shape[1] > PANEL:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        _store_rows(OWN, out_map, out_memory, left, index_z, head, row, col, STORED, COLUMNS)
        _store_rows(OWN, out_map, out_memory, right, index_z, head, row, col, STORED + HALF, COLUMNS)
    else:
        # wait until the previous store from this buffer has read it
        if STORED == 0:
            tma.store_wait(0)
        else:
            tma.store_wait(1)
        tile = out_memory.index(OWN * 2 + STORED // PANEL % 2)
        if COLUMNS:
            tile.permute((1, 0)).store(acc.to(out_memory.dtype))
        else:
            tile.store(acc.to(out_memory.dtype))
        fence_async_shared()
        across = col + STORED
        place = [index_z, head, across, row] if COLUMNS else [index_z, head, row, across]
        copy_out(out_map, place, box(out_map, tile, 0))


@gluon.jit
def block_sparse_dsd_sm90_kernel(
    s_map,
    d_map,
    out_map,
    partial_ptr,
    tasks_ptr,
    entries_ptr,
    blocks_ptr,
    batch,
    tasks,
    strips,
    n_len,
    block,
    slots,
    atomic,
    long,
    ahead,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    TRANSPOSED: gl.constexpr,
    COLUMNS: gl.constexpr,
    BOX: gl.constexpr,
    D_HEIGHT: gl.constexpr,  # noqa: ARG001 - the manifest's type of d_map reads it
    D_WIDTH: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``s @ d``: s [batch, nnz, block, block] with 16-bit elements, each block transposed if `TRANSPOSED`.

    The TMA descriptors `s_map`, `d_map` and `out_map` describe s in boxes [1, 1, BOX, BOX], d [batch, heads, k, n_len]
    in boxes of `BOX` rows by 64 columns, and the result in boxes [1, 1, 64, 64]. With `COLUMNS`, those of d and the
    result describe their transposes. `BOX` is the block size, at most 64. The tables, and the partial sums in
    `partial_ptr`, are those of `kernel_matmul.block_sparse_dsd_kernel` for strips of 128 rows. The first `long` tasks
    are long; `ahead` other tasks take as long as one of them. A step is `BOX` columns of s; shared memory holds
    `STAGES` of them. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    s_memory = allocate(s_map, STAGES * 2, BOX if TRANSPOSED else OWNED, OWNED if TRANSPOSED else BOX, BOX)
    d_memory = allocate(d_map, STAGES, BLOCK_N if COLUMNS else BOX, BOX if COLUMNS else BLOCK_N, D_WIDTH)
    out_memory = allocate(out_map, 4, OWNED, PANEL, PANEL)
    barriers = barriers_of(STAGES)
    fence_async_shared()
    maps = (s_map, d_map, out_map)
    tables = (tasks_ptr, entries_ptr, blocks_ptr)
    memory = (s_memory, d_memory, out_memory)
    sizes = (batch, tasks, strips, n_len, block, slots, atomic, long, ahead)
    gl.warp_specialize(
        [
            (
                _consume,
                (0, maps, partial_ptr, tables, memory, barriers, sizes, BLOCK_N, BOX, STAGES, TRANSPOSED, COLUMNS),
            ),
            (
                _consume,
                (1, maps, partial_ptr, tables, memory, barriers, sizes, BLOCK_N, BOX, STAGES, TRANSPOSED, COLUMNS),
            ),
            (_produce, (maps, tables, memory, barriers, sizes, BLOCK_N, BOX, STAGES, TRANSPOSED, COLUMNS)),
        ],
        [4, 1],
        [216, 72],
    )
