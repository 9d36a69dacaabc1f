"""Gluon kernel of gated products for sm_90, with TMA; `nojit.kernels.products.kernel_sm90` describes the pipeline.

A tile of the right operand has as many columns of the gate's weight as of the other one's, side by side. So the product of a tile has
both factors of the gated result in the same registers. A consumer rounds them, which frees half of these registers, and computes and
stores the result while the first steps of the next tile are multiplied.
"""

from nojit.kernels.kernel_functions import opaque, silu
from nojit.kernels.kernel_sm90_copies import copy_out
from nojit.kernels.products.kernel_sm90 import (
    allocate,
    barriers_for,
    copy_steps,
    multiply_steps,
    operands_of,
    staged,
)
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, PANEL, await_step, box, finish, halves_of
from nojit.kernels.products.kernel_tiles import place_tile
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
def _tiles(sizes, TILE: gl.constexpr):
    return gl.cdiv(sizes[0], TILE[0]) * gl.cdiv(sizes[1], TILE[1] // 2)


@gluon.jit
def _produce(maps, memory, barriers, sizes, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Copy the rows of a and the columns of both halves of b that each tile needs; run by the producer warp."""
    sizes = opaque(sizes)
    m_len, n_len, k_len = sizes
    copied = 0
    for number in range(gl.program_id(0), _tiles(sizes, TILE), gl.num_programs(0)):
        row, col = place_tile(number, m_len, n_len, TILE[0], TILE[1] // 2, TILE[2])
        steps = gl.cdiv(k_len, DEPTH)
        sources = (0, 0, row, col)
        copied = copy_steps(
            maps[0], maps[1], memory, barriers, sources, 0, steps, copied, TILE, TRANS, further=col + n_len
        )


@gluon.jit
def _panels_of(factor):
    """Return a tuple of the panels of columns of a factor."""
    if factor.shape[1] > PANEL:
        left, right = halves_of(factor)
        panels = _panels_of(left) + _panels_of(right)
    else:
        panels = (factor,)
    return panels


@gluon.jit
def _factors_of(acc, out_map):
    """Round both factors of a tile as products that are stored; return the panels of the gate, and those of the other factor."""
    gate, up = halves_of(acc.to(out_map.dtype))
    return _panels_of(gate), _panels_of(up)


@gluon.jit
def _store_panel(OWN: gl.constexpr, out_map, out_memory, factors, place, NUMBER: gl.constexpr):
    """Store panel `NUMBER` of ``silu(gate) * up`` through one of two alternating buffers.

    `place`: first row and first column.
    """
    gate, up = factors[0][NUMBER].to(gl.float32), factors[1][NUMBER].to(gl.float32)
    row, col = place
    piece = staged(OWN, out_memory, silu(gate) * up, NUMBER * PANEL, PANEL)
    copy_out(out_map, [0, 0, row, col + NUMBER * PANEL], box(out_map, piece, 0))


@gluon.jit
def _multiply_and_store(
    OWN: gl.constexpr, acc, out_map, memory, barriers, used, factors, place, TILE: gl.constexpr, TRANS: gl.constexpr
):
    """Add the products of a tile's first steps to `acc`, and meanwhile store the tile before it; `used` steps came before.

    Returns `acc`, and the stage of the last product, which may still run.

    `factors`, `place`: those of the tile to store.
    """
    full, empty = barriers
    before = gl.to_tensor(-1)
    # a step later, so that two products run while the gate is computed
    for step in gl.static_range(len(factors[0]) + 1):
        stage, a, b = await_step(OWN, memory, full, used + step, TILE, TRANS)
        token = warpgroup_mma(a, b, acc, is_async=True)
        if step > 0:
            _store_panel(OWN, out_map, memory[2], factors, place, step - 1)
        acc = warpgroup_mma_wait(1, deps=(token,))
        mbarrier.arrive(empty.index(gl.maximum(before, 0)), pred=before >= 0)
        before = stage
    return acc, before


@gluon.jit
def _consume(OWN: gl.constexpr, out_map, memory, barriers, sizes, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    FIRST: gl.constexpr = TILE[1] // (2 * PANEL) + 1
    sizes = opaque(sizes)
    m_len, n_len, k_len = sizes
    used = 0
    # before the first tile there is none: TMA stores no row past the end
    factors = _factors_of(gl.zeros([OWNED, TILE[1]], gl.float32, layout), out_map)
    place = (m_len, m_len * 0)
    for number in range(gl.program_id(0), _tiles(sizes, TILE), gl.num_programs(0)):
        row, col = place_tile(number, m_len, n_len, TILE[0], TILE[1] // 2, TILE[2])
        acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
        acc, before = _multiply_and_store(OWN, acc, out_map, memory, barriers, used, factors, place, TILE, TRANS)
        steps = gl.cdiv(k_len, DEPTH)
        acc, before = multiply_steps(OWN, acc, before, memory, barriers, used + FIRST, steps - FIRST, TILE, TRANS)
        used += steps
        factors = _factors_of(finish(acc, barriers[1], before), out_map)
        place = (row + OWN * OWNED, col)
    for number in gl.static_range(len(factors[0])):
        _store_panel(OWN, out_map, memory[2], factors, place, number)
    tma.store_wait(0)


@gluon.jit
def gated_mm_sm90_kernel(
    a_map,
    b_map,
    out_map,
    m_len,
    n_len,
    k_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    TRANS_B: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``silu(a @ b[:, :n_len]) * (a @ b[:, n_len:])``: a [m_len, k_len], b [k_len, 2 * n_len].

    Both products are rounded to the operands' dtype before the activation. Other activations would be code that a program loads
    and does not run. The TMA descriptors describe a, b (with `TRANS_B`, its transpose) and the result [1, 1, m_len, n_len] in
    boxes [1, 1, 64, 64]. A tile multiplies `BLOCK_N` columns of b for half as many of the result. A step is 64 of K; shared memory
    holds `STAGES` of them. k_len is more than 128. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    trans: gl.constexpr = (False, TRANS_B)
    a_memory, b_memory = operands_of(a_map, b_map, tile, trans)
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, PANEL, PANEL)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    fence_async_shared()
    maps = (a_map, b_map)
    memory = (a_memory, b_memory, out_memory)
    sizes = (m_len, n_len, k_len)
    if BLOCK_M == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, out_map, memory, barriers, sizes, tile, trans)),
                (_consume, (1, out_map, memory, barriers, sizes, tile, trans)),
                (_produce, (maps, memory, barriers, sizes, tile, trans)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, out_map, memory, barriers, sizes, tile, trans)),
                (_produce, (maps, memory, barriers, sizes, tile, trans)),
            ],
            [1],
            [40],
        )
