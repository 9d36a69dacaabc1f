"""Kernel of fp8 matrix products for sm_90 that divides the last wave of tiles along K; see `nojit.kernels.products.kernel_wave_shares`."""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.agreed_sizes import SHARED_FP8_STEPS
from nojit.kernels.products.kernel_sm90 import allocate, barriers_for, operands_of, store_rows
from nojit.kernels.products.kernel_sm90_scales import DEEP, sum_steps, width_of
from nojit.kernels.products.kernel_sm90_tiles import OWNED
from nojit.kernels.products.kernel_sm90_waves import produce_turns, store_sums, turn_at, turns_of
from nojit.kernels.products.kernel_wave_shares import WIDTH
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma
from triton.language.extra.cuda import gdc_launch_dependents

TOGETHER = gl.constexpr(SHARED_FP8_STEPS)
"""Steps that wgmma sums at once."""


@gluon.jit
def _consume(OWN: gl.constexpr, out_map, pointers, memory, barriers, sizes, TILE: gl.constexpr):
    """Compute and store the 64 rows of consumer `OWN` of every turn of this program.

    `pointers`: to the slots of sums, and to both scales.
    """
    PART: gl.constexpr = width_of(TILE[1], False)
    scale = gl.load(pointers[1]) * gl.load(pointers[2])
    sizes = opaque(sizes)
    waves, rest, turns = turns_of(sizes, TILE)
    used = 0
    for turn in range(turns):
        # derived values must not stay in registers from turn to turn
        place, first, last, slot = turn_at(turn, waves, rest, opaque(sizes), DEEP, TILE, TOGETHER)
        _, row, col = place
        own = (0, 0, row + OWN * OWNED, col)
        sums = sum_steps(OWN, memory, barriers, used, own, first, last, (), False, "none", TILE, TOGETHER, TILE[1])
        used += last - first
        if slot < 0:
            for part in gl.static_range(len(sums)):
                store_rows(OWN, out_map, memory[2], sums[part] * scale, own, (), part * PART, WIDTH, False)
        elif last > first:
            own_ptr = pointers[0] + (slot.to(gl.int64) * (TILE[0] * TILE[1]) + OWN * OWNED * WIDTH)
            for part in gl.static_range(len(sums)):
                store_sums(own_ptr, sums[part] * scale, part * PART, TILE)
    tma.store_wait(0)


@gluon.jit
def scaled_mm_waves_sm90_kernel(
    a_map,
    b_map,
    out_map,
    sums_ptr,
    scale_a_ptr,
    scale_b_ptr,
    m_len,
    n_len,
    k_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write the tiles of whole waves of `scaled_mm_sm90_kernel`'s result, and scaled sums of the tiles that remain.

    There is one scale of a and one of b. `sums_ptr` points to slots of fp32 sums, one slot for each program and one for each
    tile that remains, in the order that `nojit.kernels.products.kernel_wave_shares` describes: a step there is two of this
    kernel's. The other params are those of `scaled_mm_sm90_kernel`. BLOCK_M is 128. The sum of all steps of K of the tiles
    that remain must be below 2^31.

    `programs`: number of programs, which the manifest's grid reads: all must run `bmm_waves_merge_kernel`'s schedule.
    """
    # bmm_waves_merge_kernel may start early: it waits for the sums itself
    gdc_launch_dependents()
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    a_memory, b_memory = operands_of(a_map, b_map, tile, (False, True))
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, WIDTH, WIDTH)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    fence_async_shared()
    maps = (a_map, b_map)
    memory = (a_memory, b_memory, out_memory)
    pointers = (sums_ptr, scale_a_ptr, scale_b_ptr)
    sizes = (1, m_len, n_len, k_len)
    gl.static_assert(BLOCK_M == 2 * OWNED, "BLOCK_M is 128: two consumers")
    gl.warp_specialize(
        [
            (_consume, (0, out_map, pointers, memory, barriers, sizes, tile)),
            (_consume, (1, out_map, pointers, memory, barriers, sizes, tile)),
            (produce_turns, (maps, memory, barriers, sizes, (0, 0), tile, (False, True), TOGETHER)),
        ],
        [4, 1],
        [232, 40],
    )
