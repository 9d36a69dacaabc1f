"""Gluon kernel of fp8 matrix products for sm_90, with TMA; `nojit.kernels.gemm.kernel_sm90` describes the pipeline.

wgmma accumulates fp8 products less precisely than fp32. Unless the caller accepts that, a consumer adds the product of
each step, 128 of K, to fp32 sums in registers; block scales always need these sums. While one consumer adds, tensor
cores multiply for the other. For bf16 results a consumer adds the product of two steps at once: rounding to bf16 loses
more than wgmma does over two steps.
"""

from nojit.kernels.gemm.kernel_sm90 import (
    OWNED,
    allocate,
    barriers_for,
    copy_steps,
    lanes_of,
    multiply_steps,
    operands_of,
    piece_at,
    pieces_of,
    prefetch,
    store_rows,
)
from nojit.kernels.gemm.kernel_sm90_tiles import finish, halves_of
from nojit.kernels.kernel_functions import opaque
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents

DEEP = gl.constexpr(128)
"""Elements of K per step, and per block that shares a scale."""
WIDEST = gl.constexpr(128)
"""The most columns whose products a consumer adds to fp32 sums at once: more would take too many registers."""


@gluon.constexpr_function
def _of_blocks(scales):
    """Return whether `scales` names a granularity where each block of K has scales of its own."""
    return scales in {"tiles", "rows"}


@gluon.constexpr_function
def width_of(columns, fast):
    """Return the number of columns of a part of a consumer's `columns`, whose sums `sum_steps` returns apart."""
    return columns if fast or columns < WIDEST else int(WIDEST)


@gluon.jit
def sum_steps(
    OWN: gl.constexpr, memory, barriers, used, place, first, last, vectors, FAST: gl.constexpr, SCALES: gl.constexpr,
    TILE: gl.constexpr, TOGETHER: gl.constexpr, COLUMNS: gl.constexpr,
):  # fmt: skip
    """Return the products of consumer `OWN`'s rows by the steps [first, last), one sum for each part of the columns.

    `used` steps came before. With `FAST`, wgmma accumulates all of them; else, `TOGETHER` steps at a time. The sums are
    scaled if each block of K has scales of its own. A consumer has `COLUMNS` of the tile: all, or without `FAST` half of
    those of a tile of 64 rows.

    `vectors`: for both scales and the bias: pointer, sizes and strides; `place`: split-K part, matrix, and the consumer's
    first row and first column.
    """
    WIDTH: gl.constexpr = width_of(COLUMNS, FAST)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 32])
    if FAST:
        acc = gl.zeros([OWNED, WIDTH], gl.float32, layout)
        before = gl.to_tensor(-1)
        acc, before = multiply_steps(OWN, acc, before, memory, barriers, used, last - first, TILE, (False, True))
        sums = (finish(acc, barriers[1], before),)
    else:
        sums = ()
        for _ in gl.static_range(COLUMNS // WIDTH):
            sums = sums + (gl.zeros([OWNED, WIDTH], gl.float32, layout),)  # noqa: RUF005 - Triton's tuples
        sums = _promote_steps(OWN, sums, memory, barriers, used, place, first, last, vectors, SCALES, TILE, TOGETHER)
    return sums


@gluon.jit
def _row_scales(vectors, row, step, like, SHARED: gl.constexpr):
    """Load the scales of a consumer's rows for a step of K; with `SHARED`, 1 or 128 rows share a scale.

    `vectors`: for both scales and the bias: pointer, sizes and strides; `like`: a tile with the layout of the result.
    """
    scale_ptr, m_len, span, stride_m, stride_k = vectors[0]
    rows = lanes_of(like)[0]
    lines = row + rows
    mask = lines < m_len
    if SHARED:
        lines = lines // span
    first_ptr = scale_ptr + step.to(gl.int64) * stride_k
    return gl.load(first_ptr + lines.to(gl.int64) * stride_m, mask=mask, other=0.0)


@gluon.jit
def _column_scales(vectors, col, step, like):
    """Load the scales of a tile's columns for a step of K; scales of columns are contiguous.

    `vectors`: for both scales and the bias: pointer, sizes and strides; `like`: a tile with the layout of the result.
    """
    scale_ptr, n_len, stride_k, _ = vectors[1]
    # addresses for other steps would be kept in registers for each column
    cols = lanes_of(like)[1]
    return gl.load(scale_ptr + step.to(gl.int64) * stride_k + col + cols, mask=cols < n_len - col, other=0.0)


@gluon.jit
def _of_columns(first_ptr, n_len, stride, col, like):
    """Load one number for each column of a tile from column `col` on, with a `stride` of 0 or 1.

    One of the consumer's threads loads each number, and the threads then exchange them.

    `like`: a tile with the layout of the result.
    """
    cols = col + gl.arange(0, like.shape[1], layout=gl.BlockedLayout([1], [32], [4], [0]))
    values = gl.load(first_ptr + cols.to(gl.int64) * stride, mask=cols < n_len, other=0.0)
    return gl.convert_layout(values, gl.SliceLayout(0, like.type.layout))[None, :]


@gluon.jit
def _tile_scale(vectors, col, step):
    """Load the scale that `DEEP` columns share in a step of K; past the last column, that of the last block.

    `vectors`: for both scales and the bias: pointer, sizes and strides.
    """
    scale_ptr, n_len, stride_k, stride_n = vectors[1]
    block = gl.minimum(col, n_len - 1) // DEEP
    return gl.load(scale_ptr + (step.to(gl.int64) * stride_k + block.to(gl.int64) * stride_n))


@gluon.jit
def _promote_steps(
    OWN: gl.constexpr, sums, memory, barriers, used, place, first, last, vectors, SCALES: gl.constexpr,
    TILE: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """Multiply the rows of consumer `OWN` by the steps [first, last), and add the products to fp32 sums.

    `used` steps came before. `sums` has one tile for each group of columns. The products of `TOGETHER` steps are added
    at once, scaled if each block of K has scales of its own.

    `vectors`: for both scales and the bias: pointer, sizes and strides; `place`: the tile's split-K part, matrix, first
    row and first column.
    """
    full, empty = barriers
    COUNT: gl.constexpr = TILE[3]
    _, _, row, col = place
    WIDTH: gl.constexpr = sums[0].shape[1]
    PARTS: gl.constexpr = len(sums)
    # consumers share the rows of a tile if it has no more than those of one
    DOWN: gl.constexpr = OWN if TILE[0] > OWNED else 0
    ACROSS: gl.constexpr = (OWN - DOWN) * PARTS
    scales = ()
    BLOCKS: gl.constexpr = _of_blocks(SCALES)
    if BLOCKS:
        scales = _block_scales(vectors, row, col, first, sums, SCALES)
    for step in range(first, last, TOGETHER):
        number = used + step - first
        for ahead in gl.static_range(TOGETHER):
            mbarrier.wait(full.index((number + ahead) % COUNT), (number + ahead) // COUNT & 1)
        grown = ()
        for part in gl.static_range(PARTS):
            product = _start_product(DOWN, ACROSS + part, memory, number, sums[part], TILE, TOGETHER)
            # issue these loads here, where they overlap with the tensor cores
            by_columns = 1.0
            if SCALES == "rows":
                by_columns = _column_scales(vectors, col + part * WIDTH, step, sums[part])
            if BLOCKS and part == 0:
                # not their products, which would wait for the loads at once
                coming = _block_scales(vectors, row, col, gl.minimum(step + 1, last - 1), sums, SCALES)
            product = warpgroup_mma_wait(0, deps=(product,))
            if part == PARTS - 1:
                for ahead in gl.static_range(TOGETHER):
                    mbarrier.arrive(empty.index((number + ahead) % COUNT))
            factor = _factor(scales, part, SCALES)
            grown = grown + (sums[part] + product * by_columns * factor,)  # noqa: RUF005 - Triton's tuples
        sums = grown
        if BLOCKS:
            scales = coming
    return sums


@gluon.jit
def _start_product(
    DOWN: gl.constexpr, ACROSS: gl.constexpr, memory, number, like, TILE: gl.constexpr, TOGETHER: gl.constexpr
):
    """Start to multiply block `DOWN` of a tile's rows by part `ACROSS` of its columns in the steps from `number` on.

    `like`: a tensor of the product's shape.
    """
    WIDTH: gl.constexpr = like.shape[1]
    product = gl.zeros_like(like)
    for ahead in gl.static_range(TOGETHER):
        stage = (number + ahead) % TILE[3]
        a = memory[0].index(stage * (TILE[0] // OWNED) + DOWN)
        b = memory[1].index(stage).slice(ACROSS * WIDTH, WIDTH, 0).permute((1, 0))
        product = warpgroup_mma(a, b, product, use_acc=ahead > 0, is_async=True)
    return product


@gluon.jit
def _factor(scales, part: gl.constexpr, SCALES: gl.constexpr):
    """Return what to multiply a product by, of part `part` of the columns; `scales` are those of `_block_scales`."""
    factor = 1.0
    if SCALES == "tiles":
        factor = scales[0] * scales[1 + part]
    elif SCALES == "rows":
        factor = scales[0]
    return factor


@gluon.jit
def _block_scales(vectors, row, col, step, sums, SCALES: gl.constexpr):
    """Load the scales of a tile's rows for a step of K; with "tiles", also the scale of each part of its columns.

    `vectors`: for both scales and the bias: pointer, sizes and strides.
    """
    scales = (_row_scales(vectors, row, step, sums[0], True),)
    if SCALES == "tiles":
        for part in gl.static_range(len(sums)):
            scales = scales + (_tile_scale(vectors, col + part * sums[0].shape[1], step),)  # noqa: RUF005 - as above
    return scales


@gluon.jit
def prefetch_ends(vectors, row, col, HEIGHT: gl.constexpr, WIDTH: gl.constexpr, SPAN: gl.constexpr = 1):
    """Prefetch a tile's bias, and its scales for the first step of K, to L1, before consumers wait for them; run by one warp.

    `SPAN` columns share a scale.

    `vectors`: for both scales and the bias: pointer, sizes and strides.
    """
    scale_a_ptr, m_len, _, stride_m, _ = vectors[0]
    scale_b_ptr, n_len, _, stride_n = vectors[1]
    bias_ptr, has_bias = vectors[2]
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    # past the end, prefetch the last element
    rows = gl.minimum(row + gl.arange(0, HEIGHT, layout=layout), m_len - 1)
    cols = gl.minimum(col + gl.arange(0, 32, layout=layout) * (WIDTH // 32), n_len - 1).to(gl.int64)
    prefetch(scale_a_ptr + rows.to(gl.int64) * stride_m)
    prefetch(scale_b_ptr + cols // SPAN * stride_n)
    if has_bias != 0:
        prefetch(bias_ptr + cols)


@gluon.jit
def scale_ends(acc, vectors, row, col):
    """Return a part of a tile, at (row, col), times the scales of its rows and columns.

    `vectors`: for both scales and the bias: pointer, sizes and strides.
    """
    scale_ptr, n_len, _, stride_n = vectors[1]
    acc = acc * _row_scales(vectors, row, gl.to_tensor(0), acc, False)
    return acc * _of_columns(scale_ptr, n_len, stride_n, col, acc)


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
                acc = acc + _of_columns(vectors[2][0], n_len, vectors[2][1], col + STORED, acc).to(gl.float32)
        store_rows(OWN, out_map, out_memory, acc, place, (), STORED, PANEL, False)


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
        place, first, last = piece_at(number, sizes, DEEP, TILE, TOGETHER)
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
        place, first, last = piece_at(number, opaque(sizes), DEEP, TILE, TOGETHER)
        split, _, row, col = place
        own = (split, 0, row + OWN * OWNED, col)
        sums = sum_steps(OWN, memory, barriers, used, own, first, last, vectors, FAST, SCALES, TILE, TOGETHER, TILE[1])
        used += last - first
        for part in gl.static_range(TILE[1] // WIDTH):
            if SCALES == "whole":
                store_rows(OWN, maps[2], memory[2], sums[part] * scale, own, (), part * WIDTH, PANEL, False)
            else:
                _store_scaled(OWN, maps[2], memory[2], sums[part], own, (vectors, whole), part * WIDTH, PANEL, SCALES)
    tma.store_wait(0)


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
    # the merge kernel may start early: it waits for the sums itself
    if PANEL == 32:
        gdc_launch_dependents()
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    a_memory, b_memory = operands_of(a_map, b_map, tile, (False, True))
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, PANEL, PANEL)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    coarse: gl.constexpr = not _of_blocks(SCALES) and not FAST and out_map.dtype == gl.bfloat16
    together: gl.constexpr = 2 if coarse else 1
    fence_async_shared()
    maps = (a_map, b_map, out_map)
    memory = (a_memory, b_memory, out_memory)
    sizes = (1, m_len, n_len, k_len, splits)
    vectors = (
        (scale_a_ptr, m_len, a_span, stride_sam, stride_sak),
        (scale_b_ptr, n_len, stride_sbk, stride_sbn),
        (bias_ptr, has_bias),
    )
    if BLOCK_M == 2 * OWNED:
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
