"""Device functions of the sm_90 kernels for dense products: their pipeline with TMA and warp specialization.

Programs are persistent: program p takes tiles p, p + programs, and so on. One warp, the producer, copies parts of both
operands into shared memory, `STAGES` steps ahead at most. Each consumer, a group of four warps, computes 64 rows of the
tile and all its columns. Results go through shared memory in panels of columns 128 bytes wide, through two alternating
buffers.

TMA descriptors have four dimensions, [parts, batch, rows, columns]. TMA reads zeros and skips stores outside the
tensor. A copy takes a box of 64 rows (for b, the rows of its descriptor's box) by the 128 bytes of K that a step
multiplies. 8-bit matrices must have the memory order that wgmma needs: a row-major, b column-major.

All functions take two tuples of constexprs: ``TILE`` is a config's (BLOCK_M, BLOCK_N, GROUP, STAGES), and ``TRANS``
tells for each operand whether its descriptor and its tiles in shared memory are transposed.
"""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.kernel_sm90_copies import copy_in, copy_out
from nojit.kernels.products.kernel_sm90_tiles import (
    OWNED,
    accumulate,
    await_step,
    box,
    halves_of,
    reinterpret,
    widest,
)
from nojit.kernels.products.kernel_tiles import activate, place_piece
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def allocate(of_map, COUNT: gl.constexpr, HEIGHT: gl.constexpr, WIDTH: gl.constexpr, PANEL: gl.constexpr):
    """Allocate shared memory for `COUNT` tiles [HEIGHT, WIDTH], in panels of `PANEL` columns, with the dtype of `of_map`."""
    BITS: gl.constexpr = of_map.dtype.primitive_bitwidth
    layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=PANEL * BITS // 8, element_bitwidth=BITS, rank=2)
    return gl.allocate_shared_memory(of_map.dtype, [COUNT, HEIGHT, WIDTH], layout)


@gluon.jit
def lanes_of(acc):
    """Return the row numbers [rows, 1] and column numbers [1, columns] of a tile, in its register layout."""
    layout: gl.constexpr = acc.type.layout
    rows = gl.arange(0, acc.shape[0], layout=gl.SliceLayout(1, layout))
    cols = gl.arange(0, acc.shape[1], layout=gl.SliceLayout(0, layout))
    return rows[:, None], cols[None, :]


@gluon.jit
def operands_of(a_map, b_map, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Allocate shared memory for `STAGES` steps of both operands; the rows of each consumer have buffers of their own."""
    DEEP: gl.constexpr = a_map.block_type.shape[3]
    a_memory = allocate(a_map, TILE[3] * (TILE[0] // OWNED), OWNED, DEEP, DEEP)
    # shared memory has a power of two of columns
    COLS: gl.constexpr = widest(2 * TILE[1] - 1)
    b_memory = allocate(b_map, TILE[3], COLS if TRANS[1] else DEEP, DEEP if TRANS[1] else COLS, DEEP)
    return a_memory, b_memory


@gluon.jit
def reshaped(memory, HEIGHT: gl.constexpr, WIDTH: gl.constexpr):
    """Return a view of tiles in shared memory as [HEIGHT, WIDTH]; sizes and panel widths stay the same."""
    return reinterpret(memory, memory.dtype, [memory.shape[0], HEIGHT, WIDTH], memory.layout)


@gluon.jit
def barriers_for(COUNT: gl.constexpr, READERS: gl.constexpr):
    """Return `COUNT` barriers for full stages, with one arrival each, and `COUNT` for empty ones, with `READERS` arrivals."""
    full = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(COUNT):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=READERS)
    return full, empty


@gluon.jit
def pieces_of(sizes, TILE: gl.constexpr):
    """Return the number of pieces of work of all programs: tiles of all matrices, times the split-K parts."""
    batch, m_len, n_len, _, splits = sizes
    return batch * splits * gl.cdiv(m_len, TILE[0]) * gl.cdiv(n_len, TILE[1])


@gluon.jit
def piece_at(number, sizes, DEEP: gl.constexpr, TILE: gl.constexpr, TOGETHER: gl.constexpr = 1):
    """Return the place of piece of work `number`: (split-K part, matrix, first row, first column), first and end step.

    The number of steps is a multiple of `TOGETHER`; steps past the end of K read zeros. A step has `DEEP` elements of
    K.
    """
    _, m_len, n_len, k_len, splits = sizes
    steps = gl.cdiv(k_len, DEEP * TOGETHER)
    index, split, row, col, first, last = place_piece(number, m_len, n_len, steps, splits, TILE[0], TILE[1], TILE[2])
    return (split, index, row, col), first * TOGETHER, last * TOGETHER


@gluon.jit
def produce(
    maps, memory, barriers, sizes, steps_z, TILE: gl.constexpr, TRANS: gl.constexpr, TOGETHER: gl.constexpr = 1
):
    """Copy the rows of a and the columns of b that each tile needs; run by the producer warp.

    `steps_z` has for a and for b 0 if the batch shares the matrix, else 1.
    """
    DEEP: gl.constexpr = maps[0].block_type.shape[3]
    sizes = opaque(sizes)
    copied = 0
    for number in range(gl.program_id(0), pieces_of(sizes, TILE), gl.num_programs(0)):
        place, first, last = piece_at(number, sizes, DEEP, TILE, TOGETHER)
        _, index_z, row, col = place
        sources = (index_z * steps_z[0], index_z * steps_z[1], row, col)
        copied = copy_steps(maps[0], maps[1], memory, barriers, sources, first, last, copied, TILE, TRANS)


@gluon.jit
def copy_steps(
    a_map, b_map, memory, barriers, sources, first, last, copied, TILE: gl.constexpr, TRANS: gl.constexpr, boxes=None,
    base=0, further=None,
):  # fmt: skip
    """Copy the steps [first, last) of a tile; return the number of steps copied so far.

    `sources` has the index of a's matrix, the index of b's matrix, and the first row and column of the tile. With
    `boxes`, at least 1, only so many boxes of a's rows are copied, a row-major; without, one for each consumer. `base` is
    where the steps begin in K; `further` is the first column of the right half of b's boxes, if it does not follow the left half.
    """
    a_memory, b_memory = memory[0], memory[1]
    full, empty = barriers
    a_index, b_index, row, col = sources
    DOWN: gl.constexpr = TILE[0] // OWNED
    WIDTH: gl.constexpr = b_map.block_type.shape[2 if TRANS[1] else 3]
    ACROSS: gl.constexpr = TILE[1] // WIDTH
    FIT: gl.constexpr = b_memory.shape[1] * b_memory.shape[2] // (b_map.block_type.shape[2] * b_map.block_type.shape[3])
    DEEP: gl.constexpr = a_map.block_type.shape[3]
    HIGH: gl.constexpr = a_map.block_type.shape[2]
    EACH: gl.constexpr = OWNED // HIGH
    A_BYTES: gl.constexpr = a_map.block_type.nbytes
    B_BYTES: gl.constexpr = b_map.block_type.nbytes * ACROSS
    for step in range(first, last):
        start = base + step * DEEP
        stage = copied % TILE[3]
        mbarrier.wait(empty.index(stage), (copied // TILE[3] & 1) ^ 1)
        if boxes is None:
            mbarrier.expect(full.index(stage), A_BYTES * DOWN + B_BYTES)
            for part in gl.static_range(DOWN):
                down = row + part * OWNED
                place = [0, a_index, start, down] if TRANS[0] else [0, a_index, down, start]
                copy_in(a_map, place, full.index(stage), box(a_map, a_memory.index(stage * DOWN + part), 0))
        else:
            for part in gl.static_range(DOWN * EACH):
                # a barrier takes the number of bytes as a constant
                mbarrier.expect(full.index(stage), A_BYTES * (part + 1) + B_BYTES, boxes == part + 1)
            for part in gl.static_range(DOWN * EACH):
                target = box(a_map, a_memory.index(stage * DOWN + part // EACH), part % EACH)
                copy_in(a_map, [0, a_index, row + part * HIGH, start], full.index(stage), target, part < boxes)
        for part in gl.static_range(ACROSS):
            across = col + part * WIDTH
            if further is not None and 2 * part >= ACROSS:
                across = further + (part - ACROSS // 2) * WIDTH
            place = [0, b_index, across, start] if TRANS[1] else [0, b_index, start, across]
            if part < FIT:
                target = box(b_map, b_memory.index(stage), part)
            else:
                target = box(b_map, memory[3].index(stage), part - FIT)
            copy_in(b_map, place, full.index(stage), target)
        copied += 1
    return copied


@gluon.jit
def prefetch(pointers):
    """Prefetch the cache lines at `pointers` to L1, without loading them to registers."""
    gl.inline_asm_elementwise(
        "prefetch.global.L1 [$1]; mov.u32 $0, 0;", "=r,l", [pointers.to(gl.int64)], gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def multiply_steps(
    OWN: gl.constexpr, acc, before, memory, barriers, used, count, TILE: gl.constexpr, TRANS: gl.constexpr
):
    """Add the products of `count` steps to the rows `acc` of consumer `OWN`; `used` steps came before.

    Returns `acc` and the stage of the last product. That product may still run; so may, at the start, that of stage
    `before`.
    """
    full, empty = barriers
    # a range(used, used + count) does not work: Triton 3.6 and 3.7 fail on a value that only bounds a nested loop
    for step in range(count):
        stage, a, b = await_step(OWN, memory, full, used + step, TILE, TRANS)
        acc = accumulate(acc, a, b, empty, before)
        before = stage
    return acc, before


@gluon.jit
def scale_and_add(acc, epilogue, index_z, row, col):
    """Return ``activation(alpha * acc + beta * input)`` for the tile at (row, col) of matrix `index_z`.

    If beta is 0, the input is not read.

    `epilogue`: `input`, its sizes and strides, alpha, beta and the activation.
    """
    input_ptr, m_len, n_len, stride_z, stride_row, stride_col, alpha, beta, activation = epilogue
    acc = acc * alpha
    if beta != 0.0:
        rows, cols = lanes_of(acc)
        inside = (rows < m_len - row) & (cols < n_len - col)
        first_ptr = input_ptr + index_z.to(gl.int64) * stride_z
        first_ptr = first_ptr + (row.to(gl.int64) * stride_row + col.to(gl.int64) * stride_col)
        places = rows.to(gl.int64) * stride_row + cols.to(gl.int64) * stride_col
        acc = acc + beta * gl.load(first_ptr + places, mask=inside, other=0.0).to(gl.float32)
    return activate(acc, activation)


@gluon.jit
def staged(OWN: gl.constexpr, out_memory, acc, STORED: gl.constexpr, PANEL: gl.constexpr):
    """Round `PANEL` columns of a consumer to one of its two buffers, in turn; return the buffer, ready for TMA stores.

    `STORED`: columns of the tile that were stored before.
    """
    # wait until the previous store from this buffer has read it
    if STORED == 0:
        tma.store_wait(0)
    else:
        tma.store_wait(1)
    piece = out_memory.index(OWN * 2 + STORED // PANEL % 2)
    piece.store(acc.to(out_memory.dtype))
    fence_async_shared()
    return piece


@gluon.jit
def store_rows(
    OWN: gl.constexpr, out_map, out_memory, acc, place, epilogue, STORED: gl.constexpr, PANEL: gl.constexpr,
    EPILOGUE: gl.constexpr,
):  # fmt: skip
    """Store the rows of a consumer through two alternating buffers, `PANEL` columns at a time; `STORED` columns are done.

    `place`: the tile's split-K part, matrix, first row and first column; `epilogue`: `input`, its sizes and strides,
    alpha, beta and the activation.
    """
    if acc.shape[1] > PANEL:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        store_rows(OWN, out_map, out_memory, left, place, epilogue, STORED, PANEL, EPILOGUE)
        store_rows(OWN, out_map, out_memory, right, place, epilogue, STORED + HALF, PANEL, EPILOGUE)
    else:
        split, index_z, row, col = place
        if EPILOGUE:
            acc = scale_and_add(acc, epilogue, index_z, row, col + STORED)
        piece = staged(OWN, out_memory, acc, STORED, PANEL)
        copy_out(out_map, [split, index_z, row, col + STORED], box(out_map, piece, 0))
