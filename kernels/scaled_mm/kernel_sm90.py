"""Gluon kernel of fp8 matrix products for sm_90, with TMA.

`nojit.kernels.products.kernel_sm90` describes the pipeline, `nojit.kernels.products.kernel_sm90_scales` the sums.
"""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_sm90 import (
    allocate,
    barriers_for,
    copy_steps,
    operands_of,
    piece_at,
    pieces_of,
    store_rows,
)
from nojit.kernels.products.kernel_sm90_scales import (
    DEEP,
    WIDEST,
    has_blocks,
    of_columns,
    prefetch_ends,
    scale_ends,
    sum_steps,
    width_of,
)
from nojit.kernels.products.kernel_sm90_tiles import OWNED, halves_of, widest
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
)
from triton.language.extra.cuda import gdc_launch_dependents


@gluon.jit
def _store_scaled(
    OWN: gl.constexpr, out_map, out_memory, acc, place, epilogue, STORED: gl.constexpr, PANEL: gl.constexpr,
    SCALES: gl.constexpr,
):  # fmt: skip
    """Scale a consumer's rows, add the bias and store them, `WIDEST` columns at a time; `STORED` columns are done.

    `place`: the tile's split-K part, matrix, first row and first column.
    """
    if acc.shape[1] > WIDEST:
        left, right = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        _store_scaled(OWN, out_map, out_memory, left, place, epilogue, STORED, PANEL, SCALES)
        _store_scaled(OWN, out_map, out_memory, right, place, epilogue, STORED + HALF, PANEL, SCALES)
    else:
        vectors, whole = epilogue
        _, _, row, col = place
        n_len = vectors[1][1]
        if whole:
            if SCALES == "ends":
                acc = scale_ends(acc, vectors, row, col + STORED)
            if vectors[2][1] != 0:
                acc = acc + of_columns(vectors[2][0], n_len, vectors[2][1], col + STORED, acc).to(gl.float32)
        store_rows(OWN, out_map, out_memory, acc, place, (), STORED, PANEL, False)


@gluon.jit
def _piece_inside(number, sizes, TILE: gl.constexpr, SCALES: gl.constexpr, TOGETHER: gl.constexpr):
    """Return what `piece_at` does; a tile that is at most half inside the result moves up or left, to end where the result ends.

    Tiles that overlap store the same bits twice. Tiles of two widths stay, and with scales of blocks all do: their columns share a scale
    only where they are.
    """
    place, first, last = piece_at(number, sizes, DEEP, TILE, TOGETHER)
    if widest(TILE[1]) == TILE[1] and not has_blocks(SCALES):
        split, index, row, col = place
        row = gl.where(sizes[1] - row <= TILE[0] // 2, gl.maximum(sizes[1] - TILE[0], 0), row)
        col = gl.where(sizes[2] - col <= TILE[1] // 2, gl.maximum(sizes[2] - TILE[1], 0), col)
        place = (split, index, row, col)
    return place, first, last


@gluon.jit
def _produce(
    maps, memory, barriers, sizes, vectors, TILE: gl.constexpr, SCALES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """Copy the operands of each tile to shared memory, and prefetch scales; run by the producer warp.

    `vectors`: for both scales and the bias: pointer, sizes and strides.
    """
    sizes = opaque(sizes)
    copied = 0
    for number in range(gl.program_id(0), pieces_of(sizes, TILE), gl.num_programs(0)):
        place, first, last = _piece_inside(number, sizes, TILE, SCALES, TOGETHER)
        _, _, row, col = place
        copied = copy_steps(
            maps[0], maps[1], memory, barriers, (0, 0, row, col), first, last, copied, TILE, (False, True)
        )
        # the producer prefetches these, since consumers have no registers to spare
        if SCALES == "ends":
            prefetch_ends(vectors, row, col, TILE[0], TILE[1])


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, memory, barriers, sizes, vectors, TILE: gl.constexpr, PANEL: gl.constexpr,
    FAST: gl.constexpr, SCALES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program.

    `vectors`: for both scales and the bias: pointer, sizes and strides.
    """
    WIDTH: gl.constexpr = width_of(TILE[1], FAST)
    # with split-K, the merge kernel scales the sums
    whole = sizes[4] == 1
    scale = 1.0
    if SCALES == "whole":
        scale = gl.where(whole, gl.load(vectors[0][0]) * gl.load(vectors[1][0]), 1.0)
    sizes = opaque(sizes)
    used = 0
    for number in range(gl.program_id(0), pieces_of(sizes, TILE), gl.num_programs(0)):
        # derived values must not stay in registers from tile to tile
        place, first, last = _piece_inside(number, opaque(sizes), TILE, SCALES, TOGETHER)
        split, _, row, col = place
        own = (split, 0, row + OWN * OWNED, col)
        sums = sum_steps(OWN, memory, barriers, used, own, first, last, vectors, FAST, SCALES, TILE, TOGETHER, TILE[1])
        used += last - first
        for part in gl.static_range(len(sums)):
            if SCALES == "whole":
                store_rows(OWN, maps[2], memory[2], sums[part] * scale, own, (), part * WIDTH, PANEL, False)
            elif SCALES == "none":
                store_rows(OWN, maps[2], memory[2], sums[part], own, (), part * WIDTH, PANEL, False)
            else:
                _store_scaled(OWN, maps[2], memory[2], sums[part], own, (vectors, whole), part * WIDTH, PANEL, SCALES)
    tma.store_wait(0)


@gluon.jit
def _run(
    maps, sizes, vectors, tile: gl.constexpr, PANEL: gl.constexpr, FAST: gl.constexpr, SCALES: gl.constexpr,
    together: gl.constexpr,
):  # fmt: skip
    """Compute the tiles of this program with one producer and a consumer for each 64 rows.

    `vectors`: for both scales and the bias: pointer, sizes and strides; `together`: steps that wgmma sums at once.
    """
    # the merge kernel may start early: it waits for the sums itself
    if maps[2].dtype == gl.float32:
        gdc_launch_dependents()
    WIDE: gl.constexpr = widest(tile[1])
    a_memory, b_memory = operands_of(maps[0], maps[1], (tile[0], WIDE, tile[2], tile[3]), (False, True))
    out_memory = allocate(maps[2], 2 * (tile[0] // OWNED), OWNED, PANEL, PANEL)
    barriers = barriers_for(tile[3], tile[0] // OWNED)
    fence_async_shared()
    memory = (a_memory, b_memory, out_memory)
    if tile[1] > WIDE:
        # for the boxes of b that do not fit into b_memory
        memory = memory + (allocate(maps[1], tile[3], tile[1] - WIDE, DEEP, DEEP),)  # noqa: RUF005 - Triton's tuples
    if tile[0] == 2 * OWNED:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, vectors, tile, PANEL, FAST, SCALES, together)),
                (_consume, (1, maps, memory, barriers, sizes, vectors, tile, PANEL, FAST, SCALES, together)),
                (_produce, (maps, memory, barriers, sizes, vectors, tile, SCALES, together)),
            ],
            [4, 1],
            [232, 40],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, maps, memory, barriers, sizes, vectors, tile, PANEL, FAST, SCALES, together)),
                (_produce, (maps, memory, barriers, sizes, vectors, tile, SCALES, together)),
            ],
            [1],
            [40],
        )


@gluon.jit
def scaled_mm_sm90_kernel(
    a_map,
    b_map,
    out_map,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    m_len,
    n_len,
    k_len,
    splits,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    has_bias,
    a_span,
    stride_sam,
    stride_sak,
    stride_sbk,
    stride_sbn,
    FAST: gl.constexpr,
    SCALES: gl.constexpr,
    PANEL: gl.constexpr,
    ROWS: gl.constexpr,  # noqa: ARG001 - of a_map's boxes
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``scale_a * scale_b * (a @ b) + bias``: a [m_len, k_len], b [k_len, n_len], fp8; `has_bias` is 1 or 0.

    Scales are fp32, and `SCALES` is their granularity. With "whole" there is one scale of a and one of b, and no bias.
    With "ends" scales are per row and per column or, with strides of 0, per tensor. With "rows" and "tiles" each 128 of
    K have their own: of a per `a_span` rows; of b per column ("rows") or per 128 columns ("tiles"). Scales of columns,
    and the bias, are contiguous. `FAST` leaves all accumulation to wgmma, for "whole" and "ends".

    The TMA descriptors describe a as [1, 1, m_len, k_len] in boxes [1, 1, ROWS, 128] (`ROWS` is below 64 if a has few
    rows), the transpose of b in boxes [1, 1, BLOCK_N, 128], and the result [splits, 1, m_len, n_len] in boxes [1, 1,
    64, PANEL], 128 bytes wide. With several splits (split-K) each is the fp32 sum over a part of K, without the bias
    and the scales of "whole" and "ends". Shared memory holds `STAGES` steps. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    coarse: gl.constexpr = not has_blocks(SCALES) and not FAST and out_map.dtype == gl.bfloat16
    together: gl.constexpr = 2 if coarse else 1
    vectors = (
        (scale_a_ptr, m_len, a_span, stride_sam, stride_sak),
        (scale_b_ptr, n_len, stride_sbk, stride_sbn),
        (bias_ptr, has_bias),
    )
    _run((a_map, b_map, out_map), (1, m_len, n_len, k_len, splits), vectors, tile, PANEL, FAST, SCALES, together)


@gluon.jit
def scaled_mm_parts_sm90_kernel(
    a_map,
    b_map,
    out_map,
    m_len,
    n_len,
    k_len,
    splits,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    ROWS: gl.constexpr,  # noqa: ARG001 - of a_map's boxes
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write the sums of ``a @ b`` over `splits` parts of K, for results in bf16: wgmma sums two steps at once.

    TMA descriptors are those of `scaled_mm_sm90_kernel`; `out_map` describes fp32 sums [splits, 1, m_len, n_len]. Grid:
    any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    _run((a_map, b_map, out_map), (1, m_len, n_len, k_len, splits), (), tile, 32, False, "none", 2)


@gluon.jit
def scaled_mm_tiles_sm90_kernel(
    a_map,
    b_map,
    out_map,
    scale_a_ptr,
    scale_b_ptr,
    m_len,
    n_len,
    k_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    BOX: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``scale_a * scale_b * (a @ b)`` in bf16, with one scale each, in tiles of two widths: `BLOCK_N` is 128 + `BOX`.

    TMA descriptors are those of `scaled_mm_sm90_kernel`, with boxes of `BOX` rows of the transpose of b, and of `BOX` columns
    of the result. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    vectors = ((scale_a_ptr,), (scale_b_ptr,))
    _run((a_map, b_map, out_map), (1, m_len, n_len, k_len, 1), vectors, tile, BOX, False, "whole", 2)
