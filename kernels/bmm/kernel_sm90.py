"""Gluon kernel of batched matrix products for sm_90, with TMA; `nojit.kernels.products.kernel_sm90` describes the pipeline."""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_sm90 import (
    allocate,
    barriers_for,
    operands_of,
    piece_at,
    pieces_of,
    produce,
    store_rows,
)
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, widest
from nojit.kernels.products.kernel_sm90_two_widths import multiply_widths
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma
from triton.language.extra.cuda import gdc_launch_dependents


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, memory, barriers, sizes, epilogue, TILE: gl.constexpr, TRANS: gl.constexpr,
    PANEL: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program.

    `epilogue`: `input`, its sizes and strides, alpha, beta and the activation.
    """
    WIDE: gl.constexpr = widest(TILE[1])
    sizes = opaque(sizes)
    used = 0
    for number in range(gl.program_id(0), pieces_of(sizes, TILE), gl.num_programs(0)):
        place, first, last = piece_at(number, sizes, DEPTH, TILE)
        split, index_z, row, col = place
        sums = multiply_widths(OWN, memory, barriers, used, last - first, TILE, TRANS)
        used += last - first
        own = (split, index_z, row + OWN * OWNED, col)
        for part in gl.static_range(len(sums)):
            store_rows(OWN, maps[2], memory[2], sums[part], own, epilogue, part * WIDE, PANEL, EPILOGUE)
    tma.store_wait(0)


@gluon.jit
def bmm_sm90_kernel(
    a_map,
    b_map,
    out_map,
    input_ptr,
    batch,
    m_len,
    n_len,
    k_len,
    splits,
    a_step,
    b_step,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    activation,
    alpha,
    beta,
    stride_cz,
    stride_cm,
    stride_cn,
    TRANS_A: gl.constexpr,
    TRANS_B: gl.constexpr,
    PANEL: gl.constexpr,
    EPILOGUE: gl.constexpr,
    ROWS: gl.constexpr,  # noqa: ARG001 - of a_map's boxes
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``a @ b``, a [batch, m_len, k_len], b [batch, k_len, n_len], or with `EPILOGUE` a function of it.

    The epilogue is ``activation(alpha * a @ b + beta * input)``, where the input has any strides.

    The TMA descriptors `a_map` and `b_map` describe a in boxes [1, 1, ROWS, 64] and b in boxes [1, 1, 64, 64], or their
    transposes with `TRANS_A` and `TRANS_B`. If a has few rows, its boxes have fewer than 64; tile rows past the box are
    computed from undefined values and not stored. `out_map` describes the result [splits, batch, m_len, n_len] in boxes
    [1, 1, 64, PANEL], 128 bytes wide. With several splits (split-K), each part is the product over a part of K, in
    fp32. `a_step` and `b_step` are 0 for a matrix that the batch shares, else 1. A step is 64 of K; shared memory holds
    `STAGES` of them. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    # bmm_merge_kernel may start early: it waits for the sums itself
    if PANEL == 32:
        gdc_launch_dependents()
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    trans: gl.constexpr = (TRANS_A, TRANS_B)
    a_memory, b_memory = operands_of(a_map, b_map, tile, trans)
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, PANEL, PANEL)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    fence_async_shared()
    maps = (a_map, b_map, out_map)
    memory = (a_memory, b_memory, out_memory)
    sizes = (batch, m_len, n_len, k_len, splits)
    epilogue = (input_ptr, m_len, n_len, stride_cz, stride_cm, stride_cn, alpha, beta, activation)
    steps_z = (a_step, b_step)
    if BLOCK_M == 3 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, epilogue, tile, trans, PANEL, EPILOGUE)),
                (_consume, (1, maps, memory, barriers, sizes, epilogue, tile, trans, PANEL, EPILOGUE)),
                (_consume, (2, maps, memory, barriers, sizes, epilogue, tile, trans, PANEL, EPILOGUE)),
                (produce, (maps, memory, barriers, sizes, steps_z, tile, trans)),
            ],
            [4, 4, 1],
            [152, 152, 40],
        )
    elif BLOCK_M == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, epilogue, tile, trans, PANEL, EPILOGUE)),
                (_consume, (1, maps, memory, barriers, sizes, epilogue, tile, trans, PANEL, EPILOGUE)),
                (produce, (maps, memory, barriers, sizes, steps_z, tile, trans)),
            ],
            [4, 1],
            [232, 40],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, epilogue, tile, trans, PANEL, EPILOGUE)),
                (produce, (maps, memory, barriers, sizes, steps_z, tile, trans)),
            ],
            [1],
            [40],
        )
