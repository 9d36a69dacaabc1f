"""Gluon kernel of ``a @ b + c @ d`` for sm_90, with TMA; `nojit.kernels.products.kernel_sm90` describes the pipeline.

The steps of the second product follow those of the first through the same stages of shared memory, so that copies of
the second run ahead during the first.
"""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_sm90 import (
    allocate,
    barriers_for,
    copy_steps,
    multiply_steps,
    operands_of,
    reshaped,
    store_rows,
)
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, finish
from nojit.kernels.products.kernel_tiles import place_tile
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

PANEL = gl.constexpr(64)
"""Columns that a TMA store writes."""


@gluon.jit
def _tiles(sizes, TILE: gl.constexpr):
    return gl.cdiv(sizes[0], TILE[0]) * gl.cdiv(sizes[1], TILE[1])


@gluon.jit
def _produce(
    maps, memory, more_memory, barriers, sizes, TILE: gl.constexpr, TRANS: gl.constexpr, MORE_TRANS: gl.constexpr
):
    """Copy the rows of a and c and the columns of b and d that each tile needs; run by the producer warp."""
    sizes = opaque(sizes)
    m_len, n_len, k_len, more_len = sizes
    copied = 0
    for number in range(gl.program_id(0), _tiles(sizes, TILE), gl.num_programs(0)):
        row, col = place_tile(number, m_len, n_len, TILE[0], TILE[1], TILE[2])
        sources = (0, 0, row, col)
        steps = gl.cdiv(k_len, DEPTH)
        copied = copy_steps(maps[0], maps[1], memory, barriers, sources, 0, steps, copied, TILE, TRANS)
        steps = gl.cdiv(more_len, DEPTH)
        copied = copy_steps(maps[2], maps[3], more_memory, barriers, sources, 0, steps, copied, TILE, MORE_TRANS)


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, memory, more_memory, barriers, sizes, TILE: gl.constexpr, TRANS: gl.constexpr,
    MORE_TRANS: gl.constexpr,
):  # fmt: skip
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program."""
    sizes = opaque(sizes)
    m_len, n_len, k_len, more_len = sizes
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    used = 0
    for number in range(gl.program_id(0), _tiles(sizes, TILE), gl.num_programs(0)):
        row, col = place_tile(number, m_len, n_len, TILE[0], TILE[1], TILE[2])
        acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
        before = gl.to_tensor(-1)
        steps = gl.cdiv(k_len, DEPTH)
        acc, before = multiply_steps(OWN, acc, before, memory, barriers, used, steps, TILE, TRANS)
        used += steps
        steps = gl.cdiv(more_len, DEPTH)
        acc, before = multiply_steps(OWN, acc, before, more_memory, barriers, used, steps, TILE, MORE_TRANS)
        used += steps
        acc = finish(acc, barriers[1], before)
        store_rows(OWN, maps[4], memory[2], acc, (0, 0, row + OWN * OWNED, col), (), 0, PANEL, False)
    tma.store_wait(0)


@gluon.jit
def mm_plus_mm_sm90_kernel(
    a_map,
    b_map,
    c_map,
    d_map,
    out_map,
    m_len,
    n_len,
    k_len,
    more_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    TRANS_A: gl.constexpr,
    TRANS_B: gl.constexpr,
    TRANS_C: gl.constexpr,
    TRANS_D: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``a @ b + c @ d``: a [m_len, k_len], b [k_len, n_len], c [m_len, more_len], d [more_len, n_len].

    The TMA descriptors describe each operand as [1, 1, rows, columns], or its transpose with ``TRANS_*``, and the
    result [1, 1, m_len, n_len], in boxes [1, 1, 64, 64]. A step is 64 of k_len or more_len; shared memory holds
    `STAGES` of them. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    trans: gl.constexpr = (TRANS_A, TRANS_B)
    more_trans: gl.constexpr = (TRANS_C, TRANS_D)
    a_memory, b_memory = operands_of(a_map, b_map, tile, trans)
    d_memory = b_memory
    if TRANS_B != TRANS_D:
        d_memory = reshaped(b_memory, BLOCK_N if TRANS_D else DEPTH, DEPTH if TRANS_D else BLOCK_N)
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, PANEL, PANEL)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    fence_async_shared()
    maps = (a_map, b_map, c_map, d_map, out_map)
    memory = (a_memory, b_memory, out_memory)
    more_memory = (a_memory, d_memory)
    sizes = (m_len, n_len, k_len, more_len)
    if BLOCK_M == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, more_memory, barriers, sizes, tile, trans, more_trans)),
                (_consume, (1, maps, memory, more_memory, barriers, sizes, tile, trans, more_trans)),
                (_produce, (maps, memory, more_memory, barriers, sizes, tile, trans, more_trans)),
            ],
            [4, 1],
            [232, 40],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, more_memory, barriers, sizes, tile, trans, more_trans)),
                (_produce, (maps, memory, more_memory, barriers, sizes, tile, trans, more_trans)),
            ],
            [1],
            [40],
        )
