"""Gluon kernel of grouped products for sm_90, with TMA.

`nojit.kernels.products.kernel_sm90` describes the pipeline, `nojit.kernels.products.kernel_sm90_groups` the tiles of groups.
"""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_groups import first_cursor, next_cursor, place_in
from nojit.kernels.products.kernel_sm90 import allocate, barriers_for, multiply_steps, operands_of
from nojit.kernels.products.kernel_sm90_groups import lanes_ahead, produce, store_tile
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, discard, finish
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, offs_ptr, memory, barriers, sizes, epilogue, TILE: gl.constexpr, TRANS: gl.constexpr,
    PANEL: gl.constexpr, BIAS: gl.constexpr,
):  # fmt: skip
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program.

    `sizes`: groups, rows, columns, K, and 0 if the groups share b's matrix, else 1; `epilogue`: result, its row stride in
    units of `UNIT`, the bias and its strides.
    """
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    groups, m_len, n_len, k_len, _ = opaque(sizes)
    steps = gl.cdiv(k_len, DEPTH)
    used = 0
    lanes = lanes_ahead()
    cursor = first_cursor(offs_ptr, groups, m_len, n_len, lanes, TILE[0], TILE[1])
    while cursor[1] < groups:
        group = cursor[1]
        row, col, left = place_in(cursor, n_len, TILE[0], TILE[1], TILE[2])
        row += OWN * OWNED
        left -= OWN * OWNED
        if left > 0:
            acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
            last = gl.to_tensor(-1)
            acc, last = multiply_steps(OWN, acc, last, memory, barriers, used, steps, TILE, TRANS)
            acc = finish(acc, barriers[1], last)
            store_tile(OWN, maps[2], memory[2], acc, (group, row, col, left), n_len, epilogue, 0, PANEL, BIAS)
        else:
            for step in range(steps):
                discard(barriers[0], barriers[1], used + step, TILE[3])
        used += steps
        cursor = next_cursor(cursor, offs_ptr, groups, m_len, n_len, lanes, TILE[0], TILE[1])
    tma.store_wait(0)


@gluon.jit
def grouped_mm_sm90_kernel(
    a_map,
    b_map,
    out_map,
    offs_ptr,
    bias_ptr,
    out_ptr,
    groups,
    m_len,
    n_len,
    k_len,
    b_step,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    tile_m,  # noqa: ARG001 - the configs' rules read it
    tile_n,  # noqa: ARG001 - as above
    stride_cz,
    stride_cn,
    units_om,
    TRANS_B: gl.constexpr,
    BIAS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``a @ b[g]`` for the rows of each group g, a [m_len, k_len], b [groups, k_len, n_len]; with `BIAS` add bias[g].

    The TMA descriptors `a_map`, `b_map` and `out_map` describe a in boxes [1, 1, 16, 64], b in boxes [1, 1, 64, 64]
    (with `TRANS_B` its transposes), and the result in boxes [1, 1, 64, 64]. `out_ptr` is the result again, for tiles
    that reach past their group. `offs_ptr` has the end of each group; rows past the last end are not written. `b_step`
    is 0 for a matrix that the groups share, else 1; `units_om` is the distance of the result's rows in units of 8
    elements, and `n_len` is a multiple of 8. A step is 64 of K; shared memory holds `STAGES` of them. Grid: any size in
    x.

    `programs`: number of programs, which the manifest's grid reads; `tile_m`, `tile_n`: the tile that the caller
    chooses, which the configs' rules read.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    trans: gl.constexpr = (False, TRANS_B)
    panel: gl.constexpr = out_map.block_type.shape[3]
    a_memory, b_memory = operands_of(a_map, b_map, tile, trans)
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, panel, panel)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    fence_async_shared()
    maps = (a_map, b_map, out_map)
    memory = (a_memory, b_memory, out_memory)
    sizes = (groups, m_len, n_len, k_len, b_step)
    added = (bias_ptr, stride_cz, stride_cn)
    epilogue = (out_ptr, units_om, added)
    ends: gl.constexpr = "bias" if BIAS else "none"
    if BLOCK_M == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, offs_ptr, memory, barriers, sizes, epilogue, tile, trans, panel, BIAS)),
                (_consume, (1, maps, offs_ptr, memory, barriers, sizes, epilogue, tile, trans, panel, BIAS)),
                (produce, (maps, offs_ptr, memory, barriers, sizes, added, tile, trans, ends)),
            ],
            [4, 1],
            [232, 40],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, offs_ptr, memory, barriers, sizes, epilogue, tile, trans, panel, BIAS)),
                (produce, (maps, offs_ptr, memory, barriers, sizes, added, tile, trans, ends)),
            ],
            [1],
            [40],
        )
