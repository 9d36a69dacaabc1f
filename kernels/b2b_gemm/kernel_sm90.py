"""Two products with a function between them for sm_90, over tensor maps: many rows through layers of up to 128.

A program is persistent: both right factors are copied to shared memory once, and stay. One warp, the producer, copies rows of
the left factor as far ahead as there is room; each consumer, a group of four warps, takes 64 rows through both products: the
middle is in its registers, where the second product takes it from.
"""

# ruff: noqa: SIM113 - kernels know no enumerate

from nojit.kernels.block_sparse.kernel_sm90_tiles import box
from nojit.kernels.gemm.kernel_sm90 import BOX, OWNED, allocate, barriers_for, lanes_of, store_rows
from nojit.kernels.kernel_sm90_copies import copy_in
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _copy_factor(of_map, tile, full, WIDTH: gl.constexpr):
    """Copy a factor [WIDTH, WIDTH], or its transpose: what lies outside is 0."""
    DOWN: gl.constexpr = WIDTH // BOX
    for part in gl.static_range(DOWN * DOWN):
        place = [0, 0, part % DOWN * BOX, part // DOWN * BOX]
        copy_in(of_map, place, full, box(of_map, tile, part))


@gluon.jit
def _produce(maps, memory, barriers, arrived, m_len, TILE: gl.constexpr):
    """Copy both right factors, and the rows of each tile."""
    full, empty = barriers
    OWNERS: gl.constexpr = TILE[0] // OWNED
    PANELS: gl.constexpr = TILE[1] // BOX
    mbarrier.expect(arrived.index(0), maps[1].block_type.nbytes * 2 * PANELS * PANELS)
    _copy_factor(maps[1], memory[1].index(0), arrived.index(0), TILE[1])
    _copy_factor(maps[2], memory[2].index(0), arrived.index(0), TILE[1])
    copied = 0
    for number in range(gl.program_id(0), gl.cdiv(m_len, TILE[0]), gl.num_programs(0)):
        stage = copied % TILE[2]
        mbarrier.wait(empty.index(stage), (copied // TILE[2] & 1) ^ 1)
        mbarrier.expect(full.index(stage), maps[0].block_type.nbytes * OWNERS * PANELS)
        for part in gl.static_range(OWNERS * PANELS):
            place = [0, 0, number * TILE[0] + part // PANELS * OWNED, part % PANELS * BOX]
            tile = memory[0].index(stage * OWNERS + part // PANELS)
            copy_in(maps[0], place, full.index(stage), box(maps[0], tile, part % PANELS))
        copied += 1


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, memory, barriers, arrived, facts, TILE: gl.constexpr, TRANS: gl.constexpr,
    FUNCTION: gl.constexpr,
):  # fmt: skip
    """Write the rows of number `OWN` of every tile."""
    m_len, middle_len, activation, alpha = facts
    full, empty = barriers
    OWNERS: gl.constexpr = TILE[0] // OWNED
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    b, c = memory[1].index(0), memory[2].index(0)
    if TRANS[0]:
        b = b.permute((1, 0))
    if TRANS[1]:
        c = c.permute((1, 0))
    mbarrier.wait(arrived.index(0), 0)
    used = 0
    for number in range(gl.program_id(0), gl.cdiv(m_len, TILE[0]), gl.num_programs(0)):
        stage = used % TILE[2]
        mbarrier.wait(full.index(stage), used // TILE[2] & 1)
        acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
        token = warpgroup_mma(memory[0].index(stage * OWNERS + OWN), b, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(token,))
        mbarrier.arrive(empty.index(stage))
        _, cols = lanes_of(acc)
        # behind the last column there is no middle, whatever the function makes of 0
        middle = gl.where(cols < middle_len, FUNCTION(acc * alpha, activation), 0.0).to(maps[3].dtype)
        left = gl.convert_layout(middle, gl.DotOperandLayout(0, layout, 2))
        token = warpgroup_mma(left, c, gl.zeros([OWNED, TILE[1]], gl.float32, layout), is_async=True)
        acc, left = warpgroup_mma_wait(0, deps=(token, left))
        used += 1
        own = (0, 0, number * TILE[0] + OWN * OWNED, 0)
        store_rows(OWN, maps[3], memory[3], acc, own, (), 0, BOX, False)
    tma.store_wait(0)


@gluon.jit
def b2b_gemm_sm90_kernel(
    a_map,
    b_map,
    c_map,
    out_map,
    m_len,
    n_len,  # noqa: ARG001 - the configs' rules read it
    k_len,  # noqa: ARG001 - likewise
    middle_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    activation,
    alpha,
    TRANS_B: gl.constexpr,
    TRANS_C: gl.constexpr,
    FUNCTION: gl.constexpr,
    BLOCK_M: gl.constexpr,
    WIDTH: gl.constexpr,
    STAGES: gl.constexpr,
    RESIDENT: gl.constexpr,  # noqa: ARG001 - the manifest's grid reads it
):
    """Write ``f(alpha * a @ b) @ c``: a [m_len, k_len], b [k_len, middle_len], c [middle_len, n_len], of at most `WIDTH`.

    The maps describe [1, 1, rows, columns] in boxes of [1, 1, 64, 64], b and c, with `TRANS_B` and `TRANS_C`, as their
    transposes. `STAGES` is how many tiles of rows shared memory holds. Any grid in x: `RESIDENT`
    programs for each multiprocessor, whose functions between the products fill one another's waits.
    """
    tile: gl.constexpr = (BLOCK_M, WIDTH, STAGES)
    trans: gl.constexpr = (TRANS_B, TRANS_C)
    a_memory = allocate(a_map, STAGES * (BLOCK_M // OWNED), OWNED, WIDTH, BOX)
    b_memory = allocate(b_map, 1, WIDTH, WIDTH, BOX)
    c_memory = allocate(c_map, 1, WIDTH, WIDTH, BOX)
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, BOX, BOX)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    arrived, _ = barriers_for(1, 1)
    fence_async_shared()
    maps = (a_map, b_map, c_map, out_map)
    memory = (a_memory, b_memory, c_memory, out_memory)
    facts = (m_len, middle_len, activation, alpha)
    if BLOCK_M == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, arrived, facts, tile, trans, FUNCTION)),
                (_consume, (1, maps, memory, barriers, arrived, facts, tile, trans, FUNCTION)),
                (_produce, (maps, memory, barriers, arrived, m_len, tile)),
            ],
            [4, 1],
            [232, 40],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, arrived, facts, tile, trans, FUNCTION)),
                (_produce, (maps, memory, barriers, arrived, m_len, tile)),
            ],
            [1],
            [40],
        )
