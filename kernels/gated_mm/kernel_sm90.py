"""Gluon kernel of gated products for sm_90, with TMA; `nojit.kernels.products.kernel_sm90` describes the pipeline.

A tile of the right operand has as many columns of the gate's weight as of the other one's, side by side. So the product of a tile has
both factors of the gated result in the same registers.
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
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, PANEL, box, finish, halves_of
from nojit.kernels.products.kernel_tiles import place_tile
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma


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
def _store_gated(OWN: gl.constexpr, out_map, out_memory, gate, up, row, col, STORED: gl.constexpr):
    """Store ``silu(gate) * up`` through two alternating buffers, a panel at a time; `STORED` columns are done."""
    if gate.shape[1] > PANEL:
        gate_left, gate_right = halves_of(gate)
        up_left, up_right = halves_of(up)
        HALF: gl.constexpr = gate.shape[1] // 2
        _store_gated(OWN, out_map, out_memory, gate_left, up_left, row, col, STORED)
        _store_gated(OWN, out_map, out_memory, gate_right, up_right, row, col, STORED + HALF)
    else:
        # rounded as a product that is stored
        gate = gate.to(out_map.dtype).to(gl.float32)
        up = up.to(out_map.dtype).to(gl.float32)
        piece = staged(OWN, out_memory, silu(gate) * up, STORED, PANEL)
        copy_out(out_map, [0, 0, row, col + STORED], box(out_map, piece, 0))


@gluon.jit
def _consume(OWN: gl.constexpr, out_map, memory, barriers, sizes, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    sizes = opaque(sizes)
    m_len, n_len, k_len = sizes
    used = 0
    for number in range(gl.program_id(0), _tiles(sizes, TILE), gl.num_programs(0)):
        row, col = place_tile(number, m_len, n_len, TILE[0], TILE[1] // 2, TILE[2])
        acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
        before = gl.to_tensor(-1)
        steps = gl.cdiv(k_len, DEPTH)
        acc, before = multiply_steps(OWN, acc, before, memory, barriers, used, steps, TILE, TRANS)
        used += steps
        gate, up = halves_of(finish(acc, barriers[1], before))
        _store_gated(OWN, out_map, memory[2], gate, up, row + OWN * OWNED, col, 0)
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
    holds `STAGES` of them. Grid: any size in x.

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
            [232, 40],
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
