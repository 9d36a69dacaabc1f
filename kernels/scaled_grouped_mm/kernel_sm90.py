"""Gluon kernel of grouped fp8 products for sm_90, with TMA.

`nojit.kernels.products.kernel_sm90_groups` describes the tiles of groups, `nojit.kernels.products.kernel_sm90_scales` the sums.
"""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_groups import first_cursor, next_cursor, place_in
from nojit.kernels.products.kernel_sm90 import allocate, barriers_for, operands_of
from nojit.kernels.products.kernel_sm90_groups import lanes_ahead, of_group, produce, store_tile
from nojit.kernels.products.kernel_sm90_scales import DEEP, scale_ends, sum_steps, width_of
from nojit.kernels.products.kernel_sm90_tiles import OWNED, discard
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma


@gluon.constexpr_function
def columns_of(tile, fast):
    """Return the number of a tile's columns that each consumer has.

    Two consumers share the rows of a tile that is wide: while one adds to its sums, tensor cores multiply for the other.
    """
    return tile[1] // 2 if tile[0] == int(OWNED) and tile[1] == 256 and not fast else tile[1]


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, offs_ptr, memory, barriers, sizes, result, vectors, TILE: gl.constexpr,
    PANEL: gl.constexpr, FAST: gl.constexpr, SCALES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """Compute and store the part of consumer `OWN` of every tile of this program.

    `sizes`: groups, rows, columns, K, and 0 if the groups share b's matrix, else 1; `result`: pointer and row stride in
    units of 8 elements; `vectors`: both scales, as `of_group` takes them.
    """
    COLUMNS: gl.constexpr = columns_of(TILE, FAST)
    WIDTH: gl.constexpr = width_of(COLUMNS, FAST)
    groups, m_len, n_len, k_len, _ = opaque(sizes)
    steps = gl.cdiv(k_len, DEEP * TOGETHER) * TOGETHER
    used = 0
    lanes = lanes_ahead()
    cursor = first_cursor(offs_ptr, groups, m_len, n_len, lanes, TILE[0], TILE[1])
    while cursor[1] < groups:
        group = cursor[1]
        row, col, left = place_in(cursor, n_len, TILE[0], TILE[1], TILE[2])
        # consumers have the rows of a tile or, of its only 64 rows, the columns
        if TILE[0] > OWNED:
            row += OWN * OWNED
            left -= OWN * OWNED
        else:
            col += OWN * COLUMNS
        if left > 0:
            own = of_group(vectors, group)
            place = (0, 0, row, col)
            sums = sum_steps(
                OWN, memory, barriers, used, place, gl.to_tensor(0), steps, own, FAST, SCALES, TILE, TOGETHER, COLUMNS
            )
            for part in gl.static_range(COLUMNS // WIDTH):
                acc = sums[part]
                if SCALES == "ends":
                    acc = scale_ends(acc, own, row, col + part * WIDTH)
                tile = (group, row, col, left)
                epilogue = (result[0], result[1], ())
                store_tile(OWN, maps[2], memory[2], acc, tile, n_len, epilogue, part * WIDTH, PANEL, False)
        else:
            for step in range(steps):
                discard(barriers[0], barriers[1], used + step, TILE[3])
        used += steps
        cursor = next_cursor(cursor, offs_ptr, groups, m_len, n_len, lanes, TILE[0], TILE[1])
    tma.store_wait(0)


@gluon.jit
def scaled_grouped_mm_sm90_kernel(
    a_map,
    b_map,
    out_map,
    offs_ptr,
    scale_a_ptr,
    scale_b_ptr,
    out_ptr,
    groups,
    m_len,
    n_len,
    k_len,
    b_step,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    tile_m,  # noqa: ARG001 - the configs' rules read it
    tile_n,  # noqa: ARG001 - as above
    stride_sam,
    stride_sak,
    stride_sbz,
    stride_sbk,
    stride_sbn,
    units_om,
    FAST: gl.constexpr,
    SCALES: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``(scale_a * a) @ (scale_b[g] * b[g])`` for the rows of each group g: a [m_len, k_len], b [groups, k_len, n_len].

    Both factors are fp8. Scales are fp32, and `SCALES` is their granularity. With "ends" a has one per row, and each
    matrix of b one per column (columns are 0 or 1 apart); with "tiles" a has one per row and 128 of K, and b one per 128
    by 128 elements. `FAST` leaves all accumulation to wgmma, for "ends".

    The TMA descriptors describe a in boxes [1, 1, 16, 128], the transposes of b in boxes [1, 1, BLOCK_N, 128], and the
    result in boxes [1, 1, 64, 64]. `out_ptr` is the result again, for tiles that reach past their group. `offs_ptr` has
    the end of each group; rows past the last end are not written. `b_step` is 0 for a matrix that the groups share, else
    1; `units_om` is the distance of the result's rows in units of 8 elements, and `n_len` is a multiple of 8. Shared
    memory holds `STAGES` steps. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads; `tile_m`, `tile_n`: the tile that the caller
    chooses, which the configs' rules read.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    trans: gl.constexpr = (False, True)
    panel: gl.constexpr = out_map.block_type.shape[3]
    span: gl.constexpr = 1 if SCALES == "ends" else DEEP
    together: gl.constexpr = 2 if SCALES == "ends" and not FAST else 1
    a_memory, b_memory = operands_of(a_map, b_map, tile, trans)
    consumers: gl.constexpr = BLOCK_M // OWNED * (BLOCK_N // columns_of(tile, FAST))
    out_memory = allocate(out_map, 2 * consumers, OWNED, panel, panel)
    barriers = barriers_for(STAGES, consumers)
    fence_async_shared()
    maps = (a_map, b_map, out_map)
    memory = (a_memory, b_memory, out_memory)
    sizes = (groups, m_len, n_len, k_len, b_step)
    result = (out_ptr, units_om)
    vectors = (
        (scale_a_ptr, m_len, 1, stride_sam, stride_sak),
        (scale_b_ptr, n_len, stride_sbk, stride_sbn),
        (scale_a_ptr, 0),
        stride_sbz,
    )
    if consumers == 2:
        gl.warp_specialize(
            [
                (_consume, (0, maps, offs_ptr, memory, barriers, sizes, result, vectors, tile, panel, FAST, SCALES, together)),
                (_consume, (1, maps, offs_ptr, memory, barriers, sizes, result, vectors, tile, panel, FAST, SCALES, together)),
                (produce, (maps, offs_ptr, memory, barriers, sizes, vectors, tile, trans, "scales", together, span)),
            ],
            [4, 1],
            [232, 40],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, offs_ptr, memory, barriers, sizes, result, vectors, tile, panel, FAST, SCALES, together)),
                (produce, (maps, offs_ptr, memory, barriers, sizes, vectors, tile, trans, "scales", together, span)),
            ],
            [1],
            [40],
        )  # fmt: skip
