"""Device functions of sm_90 kernels whose programs share the last wave of tiles; see `nojit.kernels.products.kernel_wave_shares`."""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_sm90 import copy_steps
from nojit.kernels.products.kernel_sm90_tiles import OWNED, halves_of
from nojit.kernels.products.kernel_tiles import place_piece
from nojit.kernels.products.kernel_wave_shares import WIDTH, range_of, waves_of, workers_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def turns_of(sizes, TILE: gl.constexpr):
    """Return the number of whole waves, the number of tiles that remain, and the number of turns of each program."""
    batch, m_len, n_len, _ = sizes
    waves, rest = waves_of(batch * gl.cdiv(m_len, TILE[0]) * gl.cdiv(n_len, TILE[1]), gl.num_programs(0))
    turns = waves
    if rest > 0:
        turns += 2
    return waves, rest, turns


@gluon.jit
def turn_at(turn, waves, rest, sizes, DEEP: gl.constexpr, TILE: gl.constexpr, TOGETHER: gl.constexpr = 1):
    """Return the place (matrix, first row, first column) of a turn's tile, the first step, the end of steps, and the slot.

    The slot is -1 for a whole tile. A step has `DEEP` elements of K; the number of steps is a multiple of `TOGETHER`.
    """
    _, m_len, n_len, k_len = sizes
    steps = gl.cdiv(k_len, DEEP * TOGETHER)
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
    return (index, row, col), first * TOGETHER, last * TOGETHER, slot


@gluon.jit
def produce_turns(
    maps, memory, barriers, sizes, steps_z, TILE: gl.constexpr, TRANS: gl.constexpr, TOGETHER: gl.constexpr = 1
):
    """Copy the rows of a and the columns of b that each turn needs; run by the producer warp.

    `steps_z` has for a and for b 0 if the batch shares the matrix, else 1.
    """
    DEEP: gl.constexpr = maps[0].block_type.shape[3]
    sizes = opaque(sizes)
    waves, rest, turns = turns_of(sizes, TILE)
    copied = 0
    for turn in range(turns):
        place, first, last, _ = turn_at(turn, waves, rest, sizes, DEEP, TILE, TOGETHER)
        index_z, row, col = place
        sources = (index_z * steps_z[0], index_z * steps_z[1], row, col)
        copied = copy_steps(maps[0], maps[1], memory, barriers, sources, first, last, copied, TILE, TRANS)


@gluon.jit
def store_sums(sums_ptr, acc, STORED: gl.constexpr, TILE: gl.constexpr):
    """Store the sums of a consumer, from column `STORED` of the tile on; `sums_ptr` points to its rows in the slot's first panel."""
    if acc.shape[1] > WIDTH:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        store_sums(sums_ptr, left, STORED, TILE)
        store_sums(sums_ptr, right, STORED + HALF, TILE)
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
