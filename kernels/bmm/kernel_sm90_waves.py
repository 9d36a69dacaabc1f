"""Kernels of batched matrix products for sm_90 that divide the last wave of tiles along K; see `nojit.kernels.products.kernel_wave_shares`."""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_sm90 import (
    allocate,
    barriers_for,
    multiply_steps,
    operands_of,
    store_rows,
)
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, finish
from nojit.kernels.products.kernel_sm90_waves import produce_turns, store_sums, turn_at, turns_of
from nojit.kernels.products.kernel_wave_shares import WIDTH
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma
from triton.language.extra.cuda import gdc_launch_dependents


@gluon.jit
def _consume(OWN: gl.constexpr, out_map, sums_ptr, memory, barriers, sizes, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Compute and store the 64 rows of consumer `OWN` of every turn of this program."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    sizes = opaque(sizes)
    waves, rest, turns = turns_of(sizes, TILE)
    used = 0
    for turn in range(turns):
        place, first, last, slot = turn_at(turn, waves, rest, sizes, DEPTH, TILE)
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
            store_sums(own_ptr, acc, 0, TILE)
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
    `nojit.kernels.products.kernel_wave_shares` describes. The other params are those of `bmm_sm90_kernel`. BLOCK_M is
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
            (produce_turns, (maps, memory, barriers, sizes, steps_z, tile, trans)),
        ],
        [4, 1],
        [232, 40],
    )
