"""Kernels of batched matrix products for sm_90 that divide the last wave of tiles along K; see `nojit.kernels.bmm.kernel_wave_shares`."""

from nojit.kernels.bmm.kernel_wave_shares import WIDTH, range_of, waves_of, workers_of
from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_sm90 import (
    allocate,
    barriers_for,
    copy_steps,
    multiply_steps,
    operands_of,
    store_rows,
)
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, finish, halves_of
from nojit.kernels.products.kernel_tiles import place_piece
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma
from triton.language.extra.cuda import gdc_launch_dependents


@gluon.jit
def _turns_of(sizes, TILE: gl.constexpr):
    """Return the number of whole waves, the number of tiles that remain, and the number of turns of each program."""
    batch, m_len, n_len, _ = sizes
    waves, rest = waves_of(batch * gl.cdiv(m_len, TILE[0]) * gl.cdiv(n_len, TILE[1]), gl.num_programs(0))
    turns = waves
    if rest > 0:
        turns += 2
    return waves, rest, turns


@gluon.jit
def _piece_at(turn, waves, rest, sizes, TILE: gl.constexpr):
    """Return the place (matrix, first row, first column) of a turn's tile, the first step, the end of steps, and the slot.

    The slot is -1 for a whole tile.
    """
    _, m_len, n_len, k_len = sizes
    steps = gl.cdiv(k_len, DEPTH)
    worker, programs = gl.program_id(0), gl.num_programs(0)
    number = worker + turn * programs
    first = turn * 0
    last = first + steps
    slot = first - 1
    if turn >= waves:
        workers = workers_of(rest, steps, programs)
        tile, first, last = range_of(worker, rest, steps, workers, turn - waves)
        number = waves * programs + tile
        slot = worker + tile
    index, _, row, col, _, _ = place_piece(number, m_len, n_len, steps, 1, TILE[0], TILE[1], TILE[2])
    return (index, row, col), first, last, slot


@gluon.jit
def _produce(maps, memory, barriers, sizes, steps_z, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Copy the rows of a and the columns of b that each turn needs; run by the producer warp."""
    sizes = opaque(sizes)
    waves, rest, turns = _turns_of(sizes, TILE)
    copied = 0
    for turn in range(turns):
        place, first, last, _ = _piece_at(turn, waves, rest, sizes, TILE)
        index_z, row, col = place
        sources = (index_z * steps_z[0], index_z * steps_z[1], row, col)
        copied = copy_steps(maps[0], maps[1], memory, barriers, sources, first, last, copied, TILE, TRANS)


@gluon.jit
def _store_sums(sums_ptr, acc, STORED: gl.constexpr, TILE: gl.constexpr):
    """Store the sums of a consumer, from column `STORED` of the tile on; `sums_ptr` points to its rows in the slot's first panel."""
    if acc.shape[1] > WIDTH:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        _store_sums(sums_ptr, left, STORED, TILE)
        _store_sums(sums_ptr, right, STORED + HALF, TILE)
    else:
        # the four values of a thread in 16 columns next to one another, those of a warp in 512 bytes
        pieces = acc.reshape([OWNED // 8, 8, WIDTH // 16, 2, 4, 2]).permute((0, 2, 1, 4, 3, 5))
        registers: gl.constexpr = [[1], [2], [512], [128], [256]]
        lanes: gl.constexpr = [[4], [8], [16], [32], [64]]
        layout: gl.constexpr = gl.DistributedLinearLayout(registers, lanes, [[1024], [2048]], [], [OWNED * WIDTH])
        # this only renumbers registers, so that vectors of four are stored
        flat = gl.convert_layout(pieces.reshape([OWNED * WIDTH]), layout)
        places = gl.arange(0, OWNED * WIDTH, layout=layout)
        # the workspace is aligned
        gl.store(gl.multiple_of(sums_ptr + (STORED * TILE[0] + places), 16), flat)


@gluon.jit
def _consume(OWN: gl.constexpr, out_map, sums_ptr, memory, barriers, sizes, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Compute and store the 64 rows of consumer `OWN` of every turn of this program."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    sizes = opaque(sizes)
    waves, rest, turns = _turns_of(sizes, TILE)
    used = 0
    for turn in range(turns):
        place, first, last, slot = _piece_at(turn, waves, rest, sizes, TILE)
        index_z, row, col = place
        acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
        before = gl.to_tensor(-1)
        acc, before = multiply_steps(OWN, acc, before, memory, barriers, used, last - first, TILE, TRANS)
        acc = finish(acc, barriers[1], before)
        used += last - first
        if slot < 0:
            own = (0, index_z, row + OWN * OWNED, col)
            store_rows(OWN, out_map, memory[2], acc, own, (), 0, WIDTH, False)
        elif last > first:
            own_ptr = sums_ptr + (slot.to(gl.int64) * (TILE[0] * TILE[1]) + OWN * OWNED * WIDTH)
            _store_sums(own_ptr, acc, 0, TILE)
    tma.store_wait(0)


@gluon.jit
def bmm_waves_sm90_kernel(
    a_map,
    b_map,
    out_map,
    sums_ptr,
    batch,
    m_len,
    n_len,
    k_len,
    a_step,
    b_step,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    TRANS_A: gl.constexpr,
    TRANS_B: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write the tiles of whole waves of `bmm_sm90_kernel`'s result, and sums of the tiles that remain, for `bmm_waves_merge_kernel`.

    `sums_ptr` points to slots of fp32 sums, one slot for each program and one for each tile that remains, in the order that
    `nojit.kernels.bmm.kernel_wave_shares` describes. The other params are those of `bmm_sm90_kernel`. BLOCK_M is
    128. The sum of all steps of K of the tiles that remain must be below 2^31.

    `programs`: number of programs, which the manifest's grid reads: all must run `bmm_waves_merge_kernel`'s schedule.
    """
    # bmm_waves_merge_kernel may start early: it waits for the sums itself
    gdc_launch_dependents()
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    trans: gl.constexpr = (TRANS_A, TRANS_B)
    a_memory, b_memory = operands_of(a_map, b_map, tile, trans)
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, WIDTH, WIDTH)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    fence_async_shared()
    maps = (a_map, b_map)
    memory = (a_memory, b_memory, out_memory)
    sizes = (batch, m_len, n_len, k_len)
    steps_z = (a_step, b_step)
    gl.static_assert(BLOCK_M == 2 * OWNED, "BLOCK_M is 128: two consumers")
    gl.warp_specialize(
        [
            (_consume, (0, out_map, sums_ptr, memory, barriers, sizes, tile, trans)),
            (_consume, (1, out_map, sums_ptr, memory, barriers, sizes, tile, trans)),
            (_produce, (maps, memory, barriers, sizes, steps_z, tile, trans)),
        ],
        [4, 1],
        [232, 40],
    )
