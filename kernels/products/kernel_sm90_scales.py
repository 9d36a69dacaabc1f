"""Device functions that the sm_90 kernels of fp8 products share: fp32 sums of steps, and scales.

wgmma accumulates fp8 products less precisely than fp32. Unless the caller accepts that, a consumer adds the product of
each step, 128 of K, to fp32 sums in registers; block scales always need these sums. While one consumer adds, tensor
cores multiply for the other. For bf16 results a consumer adds the product of two steps at once: rounding to bf16 loses
more than wgmma does over two steps.
"""

from nojit.kernels.products.agreed_sizes import SCALE_BLOCK
from nojit.kernels.products.kernel_sm90 import lanes_of, multiply_steps, prefetch
from nojit.kernels.products.kernel_sm90_tiles import OWNED, finish, widest
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

DEEP = gl.constexpr(SCALE_BLOCK)
"""Elements of K per step, and per block that shares a scale."""
WIDEST = gl.constexpr(128)
"""The most columns whose products a consumer adds to fp32 sums at once: more would take too many registers."""


@gluon.constexpr_function
def has_blocks(scales):
    """Return whether `scales` names a granularity where each block of K has scales of its own."""
    return scales in {"tiles", "rows"}


@gluon.constexpr_function
def width_of(columns, fast):
    """Return the number of columns of a part of a consumer's `columns`, whose sums `sum_steps` returns apart.

    The last part has fewer columns if this does not divide `columns`.
    """
    return columns if fast else min(widest(columns), int(WIDEST))


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
        REST: gl.constexpr = COLUMNS % WIDTH
        if REST > 0:
            rest_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 32])
            sums = sums + (gl.zeros([OWNED, REST], gl.float32, rest_layout),)  # noqa: RUF005 - as above
        # of tiles this short, few consumers multiply while one adds; with scales of blocks, registers do not suffice
        SHORT: gl.constexpr = TILE[0] == OWNED and COLUMNS == WIDTH and not has_blocks(SCALES)
        if SHORT and TILE[3] >= 2 * TOGETHER:
            sums = (_promote_in_turn(OWN, sums[0], memory, barriers, used, last - first, TILE, TOGETHER),)
        else:
            sums = _promote_steps(
                OWN, sums, memory, barriers, used, place, first, last, vectors, SCALES, TILE, TOGETHER
            )
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
def of_columns(first_ptr, n_len, stride, col, like):
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
    ACROSS: gl.constexpr = (OWN - DOWN) * PARTS * WIDTH
    scales = ()
    BLOCKS: gl.constexpr = has_blocks(SCALES)
    if BLOCKS:
        scales = _block_scales(vectors, row, col, first, sums, SCALES)
    for step in range(first, last, TOGETHER):
        number = used + step - first
        _await_steps(full, number, COUNT, TOGETHER)
        grown = ()
        for part in gl.static_range(PARTS):
            product = _start_product(DOWN, ACROSS + part * WIDTH, memory, number, sums[part], TILE, TOGETHER)
            # issue these loads here, where they overlap with the tensor cores
            by_columns = 1.0
            if SCALES == "rows":
                by_columns = _column_scales(vectors, col + part * WIDTH, step, sums[part])
            if BLOCKS and part == PARTS - 1:
                # not their products, which would wait for the loads at once
                coming = _block_scales(vectors, row, col, gl.minimum(step + 1, last - 1), sums, SCALES)
            product = warpgroup_mma_wait(0, deps=(product,))
            if part == PARTS - 1:
                _release_steps(empty, number, COUNT, TOGETHER)
            factor = _factor(scales, part, SCALES)
            grown = grown + (sums[part] + product * by_columns * factor,)  # noqa: RUF005 - Triton's tuples
        sums = grown
        if BLOCKS:
            scales = coming
    return sums


@gluon.jit
def _promote_in_turn(OWN: gl.constexpr, acc, memory, barriers, used, count, TILE: gl.constexpr, TOGETHER: gl.constexpr):
    """Return what `_promote_steps` does for `count` steps of one group of columns without scales.

    Tensor cores multiply the last of `TOGETHER` steps while the product of the steps before is added to the fp32 sums.
    """
    empty = barriers[1]
    COUNT: gl.constexpr = TILE[3]
    # a part of K may be empty
    if count > 0:
        even = _start_steps(barriers[0], OWN, memory, used, acc, TILE, TOGETHER)
        # two products by name: a copy of one that tensor cores still write would wait for it
        for step in range(TOGETHER, count - TOGETHER, 2 * TOGETHER):
            odd = _start_steps(barriers[0], OWN, memory, used + step, acc, TILE, TOGETHER)
            product = warpgroup_mma_wait(TOGETHER, deps=(even,))
            _release_steps(empty, used + step - TOGETHER, COUNT, TOGETHER)
            acc = acc + product
            even = _start_steps(barriers[0], OWN, memory, used + step + TOGETHER, acc, TILE, TOGETHER)
            product = warpgroup_mma_wait(TOGETHER, deps=(odd,))
            _release_steps(empty, used + step, COUNT, TOGETHER)
            acc = acc + product
        latest = used + count - TOGETHER
        if count // TOGETHER % 2 == 0:
            odd = _start_steps(barriers[0], OWN, memory, latest, acc, TILE, TOGETHER)
            product = warpgroup_mma_wait(TOGETHER, deps=(even,))
            _release_steps(empty, latest - TOGETHER, COUNT, TOGETHER)
            acc = acc + product
            product = warpgroup_mma_wait(0, deps=(odd,))
        else:
            product = warpgroup_mma_wait(0, deps=(even,))
        _release_steps(empty, latest, COUNT, TOGETHER)
        acc = acc + product
    return acc


@gluon.jit
def _start_steps(full, OWN: gl.constexpr, memory, number, like, TILE: gl.constexpr, TOGETHER: gl.constexpr):
    """Wait for the steps from `number` on, and start to multiply a tile's 64 rows by part `OWN` of its columns."""
    _await_steps(full, number, TILE[3], TOGETHER)
    return _start_product(0, OWN * like.shape[1], memory, number, like, TILE, TOGETHER)


@gluon.jit
def _await_steps(full, number, COUNT: gl.constexpr, TOGETHER: gl.constexpr):
    """Wait until the steps from `number` on are in shared memory."""
    for ahead in gl.static_range(TOGETHER):
        mbarrier.wait(full.index((number + ahead) % COUNT), (number + ahead) // COUNT & 1)


@gluon.jit
def _release_steps(empty, number, COUNT: gl.constexpr, TOGETHER: gl.constexpr):
    """Let the producer overwrite the steps from `number` on."""
    for ahead in gl.static_range(TOGETHER):
        mbarrier.arrive(empty.index((number + ahead) % COUNT))


@gluon.jit
def _start_product(
    DOWN: gl.constexpr, ACROSS: gl.constexpr, memory, number, like, TILE: gl.constexpr, TOGETHER: gl.constexpr
):
    """Start to multiply block `DOWN` of a tile's rows by its columns from `ACROSS` on in the steps from `number` on.

    `like`: a tensor of the product's shape.
    """
    WIDTH: gl.constexpr = like.shape[1]
    product = gl.zeros_like(like)
    for ahead in gl.static_range(TOGETHER):
        stage = (number + ahead) % TILE[3]
        a = memory[0].index(stage * (TILE[0] // OWNED) + DOWN)
        if memory[1].shape[1] > ACROSS:
            b = memory[1].index(stage).slice(ACROSS, WIDTH, 0).permute((1, 0))
        else:
            b = memory[3].index(stage).permute((1, 0))
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
    return acc * of_columns(scale_ptr, n_len, stride_n, col, acc)
