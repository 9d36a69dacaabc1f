"""Triton kernels of the softmax over block-sparse matrices, forward and backward; a program owns `ROWS` rows of a block row.

A sparse tensor is [batch, nnz, block, block] with its blocks in row-major order of (head, block row, block column), so
the blocks of a block row are adjacent. The table `spans`, int32 [heads * rows, 3], has for each block row its number
(head * rows + row), its first block, and its number of blocks. The table `columns`, int32 [nnz], has the block column
of each block. The first `long_rows` spans are much longer than the others and start first, so that they do not finish
last.

A program reads its rows as tiles [ROWS, CHUNKS, 16]. A chunk is 16 columns, so it lies inside one block for every block
size (16, 32, 64, 128); the block size can therefore be a run-time value. Rows that fit into `TILES` tiles are read
once. Longer rows are read twice, first for their maximum and sum.
"""

# ruff: noqa: RUF005 - Triton knows no starred tuples

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import divide

CHUNK = tl.constexpr(16)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _shift_of(block):
    """Return n for a block size of 16 << n: kernels shift by n instead of dividing, which is slower."""
    return (block >= 32).to(tl.int32) + (block >= 64).to(tl.int32) + (block >= 128).to(tl.int32)


@triton.jit
def _find_rows(spans_ptr, long_rows, batch, listed, rows, block, ROWS: tl.constexpr):
    """Return the batch, the head (both int64) and the span of this program's rows.

    The span is a tuple: first row in the head, first row in the block, first block, number of chunks.

    `long_rows`: number of block rows, at the start of the spans, that are much longer than the others.
    """
    ROWS_IN_16: tl.constexpr = (ROWS <= 8) + (ROWS <= 4) + (ROWS <= 2) + (ROWS <= 1)
    place = tl.program_id(0) >> (_shift_of(block) + ROWS_IN_16)
    is_long = place < long_rows * batch
    # except for long rows, block rows that are neighbours in memory run at the same time
    first = tl.where(is_long, 0, long_rows)
    count = tl.where(is_long, long_rows, listed - long_rows)
    index_z, span = divide(place - first * batch, count)
    span_ptr = spans_ptr + (first + span) * 3
    block_row = tl.load(span_ptr)
    first_block = tl.load(span_ptr + 1)
    width = tl.load(span_ptr + 2) << _shift_of(block)
    head, row = divide(block_row, rows)
    line = (tl.program_id(0) & (block // ROWS - 1)) * ROWS
    return index_z.to(tl.int64), head.to(tl.int64), (row * block + line, line, first_block, width)


@triton.jit
def _place_tile(start, span, block, ROWS: tl.constexpr, CHUNKS: tl.constexpr):
    """Locate the chunks [start, start + CHUNKS) of a span in the sparse tensor.

    Returns for each chunk its block (int64 [CHUNKS]) and its first column in this block [CHUNKS], and the row numbers
    in the head [ROWS]. `block`: columns of a block; `span`: as in `_point_at`.
    """
    first_row, _, first_block, _ = span
    chunks = start + tl.arange(0, CHUNKS)
    blocks = (first_block + (chunks >> _shift_of(block))).to(tl.int64)
    in_block = (chunks & ((block // CHUNK) - 1)) * CHUNK
    return blocks, in_block, first_row + tl.arange(0, ROWS)


@triton.jit
def _point_at(sparse, start, span, block, ROWS: tl.constexpr, CHUNKS: tl.constexpr):
    """Return pointers [ROWS, CHUNKS, 16] to a tile whose first chunk is `start`.

    Args:
        start: number of the tile's first chunk in the span.
        sparse: (pointer, block stride, row stride, column stride) of the sparse tensor.
        span: first row in the head and in the block, first block, number of chunks of 16 columns.
        block: columns of a block.
        ROWS: rows of a tile.
        CHUNKS: chunks of 16 columns in a tile.
    """
    ptr, stride_b, stride_r, stride_c = sparse
    blocks, in_block, _ = _place_tile(start, span, block, ROWS, CHUNKS)
    lines = span[1] + tl.arange(0, ROWS)
    cols = in_block[:, None] + tl.arange(0, CHUNK)[None, :]
    tile = blocks[:, None] * stride_b + cols.to(tl.int64) * stride_c
    return ptr + (lines.to(tl.int64)[:, None, None] * stride_r + tile[None, :, :])


@triton.jit
def _step(sparse, block, CHUNKS: tl.constexpr):
    """Return the distance in elements (int64) between the pointers of successive tiles.

    `sparse`: pointer and strides of a sparse tensor, as in `_point_at`; `block`: columns of a block; `CHUNKS`: chunks of
    16 columns in a tile, so that a tile covers ``16 * CHUNKS / block`` whole blocks.
    """
    return (CHUNKS >> _shift_of(block)).to(tl.int64) * sparse[1]


@triton.jit
def _live(start, span, CHUNKS: tl.constexpr):
    """Return a mask [1, CHUNKS, 1]: which of the `CHUNKS` chunks of 16 columns, from `start` on, belong to the span."""
    return (start + tl.arange(0, CHUNKS) < span[3])[None, :, None]


@triton.jit
def _dense_columns(columns_ptr, blocks, in_block, block, live):
    """Return the column numbers [CHUNKS, 16] in the dense matrix of chunks that lie in `blocks` at columns `in_block`."""
    block_cols = tl.load(columns_ptr + blocks, mask=live, other=0)
    return (block_cols * block + in_block)[:, None] + tl.arange(0, CHUNK)[None, :]


@triton.jit
def _mask_term(value, multiplies):
    """Return the term that a mask adds to the scores.

    It is the mask's value; if `multiplies` is 1, it is -inf where the mask is 0, and 0 elsewhere.
    """
    return tl.where(multiplies != 0, tl.where(value == 0.0, float("-inf"), 0.0), value)


@triton.jit
def _row_max(tile):
    """Return the maximum of each row of a tile [ROWS, CHUNKS, 16]: [ROWS]."""
    return tl.max(tl.max(tile, 2), 1)


@triton.jit
def _row_sum(tile):
    """Return the sum of each row of a tile [ROWS, CHUNKS, 16]: [ROWS]."""
    return tl.sum(tl.sum(tile, 2), 1)


@triton.jit
def _scores(loaded, start, span, block, scale, terms, CAUSAL: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr):
    """Return the scores (fp32 [ROWS, CHUNKS, 16]) of a loaded tile: -inf where masked or past the row's end.

    `terms` has the pointers and strides of the bias (rpe) and the masks (kpm, am). Those of rpe and kpm already point
    at this program's batch and head.

    `span`: first row in the head and in the block, first block, number of chunks of 16 columns.
    """
    (
        columns_ptr, rpe_ptr, stride_rm, stride_rn, kpm_ptr, stride_kn, kpm_multiplies, am_ptr, stride_am, stride_an,
        am_multiplies,
    ) = terms  # fmt: skip
    live = _live(start, span, CHUNKS)
    # elements past the row's end were loaded as 0: a single fused multiply-add both scales and masks
    hidden = tl.where(live, tl.full((1, CHUNKS, 1), 0.0, tl.float32), float("-inf"))
    shape: tl.constexpr = [ROWS, CHUNKS, CHUNK]
    scores = tl.fma(loaded.to(tl.float32), tl.full(shape, scale, tl.float32), hidden.broadcast_to(shape))
    blocks, in_block, rows = _place_tile(start, span, block, ROWS, CHUNKS)
    wide_rows = rows.to(tl.int64)[:, None, None]
    in_row = start + tl.arange(0, CHUNKS) < span[3]
    # each term recomputes its columns, so that calls without terms do not pay for them
    if rpe_ptr is not None:
        cols = _dense_columns(columns_ptr, blocks, in_block, block, in_row).to(tl.int64)
        rpe_ptrs = rpe_ptr + (wide_rows * stride_rm + (cols * stride_rn)[None, :, :])
        scores += tl.load(rpe_ptrs, mask=live, other=0.0).to(tl.float32)
    if kpm_ptr is not None:
        cols = _dense_columns(columns_ptr, blocks, in_block, block, in_row).to(tl.int64)
        kpm = tl.load(kpm_ptr + cols * stride_kn, mask=in_row[:, None], other=0.0).to(tl.float32)
        scores += _mask_term(kpm, kpm_multiplies)[None, :, :]
    if am_ptr is not None:
        cols = _dense_columns(columns_ptr, blocks, in_block, block, in_row).to(tl.int64)
        am_ptrs = am_ptr + (wide_rows * stride_am + (cols * stride_an)[None, :, :])
        scores += _mask_term(tl.load(am_ptrs, mask=live, other=0.0).to(tl.float32), am_multiplies)
    if CAUSAL:
        cols = _dense_columns(columns_ptr, blocks, in_block, block, in_row)
        scores = tl.where(live & (cols[None, :, :] <= rows[:, None, None]), scores, float("-inf"))
    return scores


@triton.jit
def _shift(row_max):
    """Return the value to subtract from a row's base-2 scores: their maximum, or 0 if all scores so far are -inf."""
    return tl.where(row_max == float("-inf"), 0.0, row_max) * LOG2_E


@triton.jit
def _exponentials(scores, shift):
    """Return ``exp2(scores * log2(e) - shift)``, which is 0 where a score is -inf.

    exp2 is a single instruction. The product is not rounded before the shift is subtracted, so that large scores lose
    no precision; the rounding of the shift itself cancels in the softmax.
    """
    return tl.exp2(tl.fma(scores, tl.full(scores.shape, LOG2_E, tl.float32), -shift[:, None, None]))


@triton.jit
def _load_tile(ptrs, start, span, CHUNKS: tl.constexpr):
    """Load a tile [ROWS, CHUNKS, 16] of a sparse tensor in its dtype, 0 past the row's end.

    `span`: first row in the head and in the block, first block, number of chunks of 16 columns.
    """
    return tl.load(ptrs, mask=_live(start, span, CHUNKS), other=0.0)


@triton.jit
def _store_tile(values, ptrs, start, span, CHUNKS: tl.constexpr):
    """Store a tile of fp32 values to a sparse tensor, rounded to its dtype; chunks past the row's end are skipped.

    `span`: first row in the head and in the block, first block, number of chunks of 16 columns.
    """
    tl.store(ptrs, values.to(ptrs.dtype.element_ty), mask=_live(start, span, CHUNKS))


@triton.jit
def _inverse(row_sum):
    """Return ``1 / row_sum`` as [ROWS, 1, 1], and 1 for fully masked rows, whose sum and exponentials are 0."""
    return (1.0 / tl.where(row_sum == 0.0, 1.0, row_sum))[:, None, None]


@triton.jit
def _write_at_once(
    x,
    out,
    span,
    block,
    scale,
    terms,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Write the softmax of rows that fit into `TILES` tiles, reading x once.

    `span`: first row in the head and in the block, first block, number of chunks of 16 columns; `terms`: pointers and
    strides of the bias and the two masks.
    """
    x_ptrs, x_step = _point_at(x, 0, span, block, ROWS, CHUNKS), _step(x, block, CHUNKS)
    # issue all loads first; all except the first tile are skipped if they lie past the end of all rows
    loaded = ()
    for tile in tl.static_range(TILES):
        loaded = loaded + (_load_tile(x_ptrs + tile * x_step, tile * CHUNKS, span, CHUNKS),)
    first = loaded[0]  # type: ignore[misc]  # it has grown
    largest = _scores(first, 0, span, block, scale, terms, CAUSAL, ROWS, CHUNKS)
    scores = (largest,)
    for tile in tl.static_range(1, TILES):
        part = tl.full([ROWS, CHUNKS, CHUNK], float("-inf"), tl.float32)
        if tile * CHUNKS < span[3]:
            part = _scores(loaded[tile], tile * CHUNKS, span, block, scale, terms, CAUSAL, ROWS, CHUNKS)
            largest = tl.maximum(largest, part)
        scores = scores + (part,)
    shift = _shift(_row_max(largest))
    sums = _exponentials(scores[0], shift)
    weights = (sums,)
    for tile in tl.static_range(1, TILES):
        part = scores[tile]
        if tile * CHUNKS < span[3]:
            part = _exponentials(part, shift)
            sums += part
        weights = weights + (part,)
    inverse = _inverse(_row_sum(sums))
    out_ptrs, out_step = _point_at(out, 0, span, block, ROWS, CHUNKS), _step(out, block, CHUNKS)
    _store_tile(weights[0] * inverse, out_ptrs, 0, span, CHUNKS)
    for tile in tl.static_range(1, TILES):
        if tile * CHUNKS < span[3]:
            _store_tile(weights[tile] * inverse, out_ptrs + tile * out_step, tile * CHUNKS, span, CHUNKS)


@triton.jit
def _write_in_two_passes(
    x, out, span, block, scale, terms, CAUSAL: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr
):
    """Write the softmax of longer rows: the first pass finds each row's maximum and sum, the second writes.

    `span`: first row in the head and in the block, first block, number of chunks of 16 columns; `terms`: pointers and
    strides of the bias and the two masks.
    """
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    row_sum = tl.zeros([ROWS], tl.float32)
    # recompute the pointers: there are too many of unknown alignment to keep in registers
    for start in range(0, span[3], CHUNKS):
        loaded = _load_tile(_point_at(x, start, span, block, ROWS, CHUNKS), start, span, CHUNKS)
        scores = _scores(loaded, start, span, block, scale, terms, CAUSAL, ROWS, CHUNKS)
        new_max = tl.maximum(row_max, _row_max(scores))
        # a row whose scores so far are all -inf has nothing to rescale, and its factor could be infinite
        keep = tl.where(row_max == float("-inf"), 0.0, tl.exp2(_shift(row_max) - _shift(new_max)))
        row_sum = row_sum * keep + _row_sum(_exponentials(scores, _shift(new_max)))
        row_max = new_max
    for start in range(0, span[3], CHUNKS):
        loaded = _load_tile(_point_at(x, start, span, block, ROWS, CHUNKS), start, span, CHUNKS)
        scores = _scores(loaded, start, span, block, scale, terms, CAUSAL, ROWS, CHUNKS)
        weights = _exponentials(scores, _shift(row_max)) * _inverse(row_sum)
        _store_tile(weights, _point_at(out, start, span, block, ROWS, CHUNKS), start, span, CHUNKS)


@triton.jit
def block_sparse_softmax_fwd_kernel(
    x_ptr,
    out_ptr,
    spans_ptr,
    columns_ptr,
    long_rows,
    rpe_ptr,
    kpm_ptr,
    am_ptr,
    scale,
    kpm_multiplies,
    am_multiplies,
    batch,
    listed,
    rows,
    block,
    blocks,  # noqa: ARG001 - the choice of configs reads it
    max_row_blocks,  # noqa: ARG001 - the manifest's `requires` reads it
    stride_xz,
    stride_xb,
    stride_xr,
    stride_xc,
    stride_oz,
    stride_ob,
    stride_or,
    stride_oc,
    stride_rz,
    stride_rh,
    stride_rm,
    stride_rn,
    stride_kz,
    stride_kn,
    stride_am,
    stride_an,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    TILES: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Write softmax(x * scale + rpe + kpm + am) over the active columns of each row; a fully masked row gives 0.

    x and out are [batch, nnz, block, block], the bias rpe [batch, heads, M, N], the masks kpm [batch, N] and am [M, N],
    all with any strides; rpe, kpm and am are optional. `kpm_multiplies` and `am_multiplies` are 1 for masks that mask
    where they are 0, or 0 for masks that are added. out may be x: a program reads all that it needs of a tile before it
    writes it. `WHOLE` states that no row is wider than 16 * CHUNKS * TILES columns. Grid: batch * listed * (block //
    ROWS), where `listed` is the number of block rows in `spans`.

    `long_rows`: number of block rows, at the start of the spans, that are much longer than the others.
    """
    z, head, span = _find_rows(spans_ptr, long_rows, batch, listed, rows, block, ROWS)
    x = (x_ptr + z * stride_xz, stride_xb, stride_xr, stride_xc)
    out = (out_ptr + z * stride_oz, stride_ob, stride_or, stride_oc)
    if rpe_ptr is not None:
        rpe_ptr += z * stride_rz + head * stride_rh
    if kpm_ptr is not None:
        kpm_ptr += z * stride_kz
    terms = (
        columns_ptr, rpe_ptr, stride_rm, stride_rn, kpm_ptr, stride_kn, kpm_multiplies, am_ptr, stride_am, stride_an,
        am_multiplies,
    )  # fmt: skip
    if WHOLE or span[3] <= CHUNKS * TILES:
        _write_at_once(x, out, span, block, scale, terms, CAUSAL, ROWS, CHUNKS, TILES)
    else:
        _write_in_two_passes(x, out, span, block, scale, terms, CAUSAL, ROWS, CHUNKS)


@triton.jit
def _store_gradients(
    y,
    dy,
    dot,
    ptrs,
    start,
    span,
    block,
    scale,
    columns_ptr,
    drpe_ptr,
    stride_rm,
    stride_rn,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Store ``y * (dy - dot)`` for a tile: multiplied by `scale` to `ptrs`, and without the scale to the dense drpe.

    `span`: first row in the head and in the block, first block, number of chunks of 16 columns.
    """
    ds = y.to(tl.float32) * (dy.to(tl.float32) - dot)
    _store_tile(ds * scale, ptrs, start, span, CHUNKS)
    if drpe_ptr is not None:
        blocks, in_block, rows = _place_tile(start, span, block, ROWS, CHUNKS)
        in_row = start + tl.arange(0, CHUNKS) < span[3]
        cols = _dense_columns(columns_ptr, blocks, in_block, block, in_row).to(tl.int64)
        drpe_ptrs = drpe_ptr + (rows.to(tl.int64)[:, None, None] * stride_rm + (cols * stride_rn)[None, :, :])
        tl.store(drpe_ptrs, ds.to(drpe_ptr.dtype.element_ty), mask=_live(start, span, CHUNKS))


@triton.jit
def block_sparse_softmax_bwd_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    drpe_ptr,
    spans_ptr,
    columns_ptr,
    long_rows,
    scale,
    batch,
    listed,
    rows,
    block,
    blocks,  # noqa: ARG001 - the choice of configs reads it
    max_row_blocks,  # noqa: ARG001 - the manifest's `requires` reads it
    stride_yz,
    stride_yb,
    stride_yr,
    stride_yc,
    stride_gz,
    stride_gb,
    stride_gr,
    stride_gc,
    stride_dz,
    stride_db,
    stride_dr,
    stride_dc,
    stride_rz,
    stride_rh,
    stride_rm,
    stride_rn,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    TILES: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Write dx = y * (dy - sum(y * dy)) * scale and, unless drpe is None, the gradient of the dense bias.

    The latter, drpe, is dx without the scale. y, dy and dx are [batch, nnz, block, block] with any strides; `stride_g*`
    are those of dy, all 0 for the gradient of a sum. drpe is [batch, heads, M, N]; the kernel writes only the positions
    in active blocks, so the caller must zero it first. `WHOLE` states that no row is wider than 16 * CHUNKS * TILES
    columns. Grid: batch * listed * (block // ROWS).

    `long_rows`: number of block rows, at the start of the spans, that are much longer than the others.
    """
    z, head, span = _find_rows(spans_ptr, long_rows, batch, listed, rows, block, ROWS)
    y = (y_ptr + z * stride_yz, stride_yb, stride_yr, stride_yc)
    dy = (dy_ptr + z * stride_gz, stride_gb, stride_gr, stride_gc)
    dx = (dx_ptr + z * stride_dz, stride_db, stride_dr, stride_dc)
    if drpe_ptr is not None:
        drpe_ptr += z * stride_rz + head * stride_rh
    width = span[3]
    if WHOLE or width <= CHUNKS * TILES:
        y_ptrs, y_step = _point_at(y, 0, span, block, ROWS, CHUNKS), _step(y, block, CHUNKS)
        dy_ptrs, dy_step = _point_at(dy, 0, span, block, ROWS, CHUNKS), _step(dy, block, CHUNKS)
        tiles = ()
        for tile in tl.static_range(TILES):
            y_tile = _load_tile(y_ptrs + tile * y_step, tile * CHUNKS, span, CHUNKS)
            tiles = tiles + ((y_tile, _load_tile(dy_ptrs + tile * dy_step, tile * CHUNKS, span, CHUNKS)),)
        y_tile, dy_tile = tiles[0]  # type: ignore[misc]  # it has grown
        products = y_tile.to(tl.float32) * dy_tile.to(tl.float32)
        for tile in tl.static_range(1, TILES):
            if tile * CHUNKS < width:
                products += tiles[tile][0].to(tl.float32) * tiles[tile][1].to(tl.float32)
        dot = _row_sum(products)[:, None, None]
        dx_ptrs, dx_step = _point_at(dx, 0, span, block, ROWS, CHUNKS), _step(dx, block, CHUNKS)
        for tile in tl.static_range(TILES):
            if tile == 0 or tile * CHUNKS < width:
                _store_gradients(
                    tiles[tile][0], tiles[tile][1], dot, dx_ptrs + tile * dx_step, tile * CHUNKS, span, block, scale,
                    columns_ptr, drpe_ptr, stride_rm, stride_rn, ROWS, CHUNKS,
                )  # fmt: skip
    else:
        products = tl.zeros([ROWS, CHUNKS, CHUNK], tl.float32)
        for start in range(0, width, CHUNKS):
            y_tile = _load_tile(_point_at(y, start, span, block, ROWS, CHUNKS), start, span, CHUNKS)
            dy_tile = _load_tile(_point_at(dy, start, span, block, ROWS, CHUNKS), start, span, CHUNKS)
            products += y_tile.to(tl.float32) * dy_tile.to(tl.float32)
        dot = _row_sum(products)[:, None, None]
        for start in range(0, width, CHUNKS):
            y_tile = _load_tile(_point_at(y, start, span, block, ROWS, CHUNKS), start, span, CHUNKS)
            dy_tile = _load_tile(_point_at(dy, start, span, block, ROWS, CHUNKS), start, span, CHUNKS)
            _store_gradients(
                y_tile, dy_tile, dot, _point_at(dx, start, span, block, ROWS, CHUNKS), start, span, block, scale,
                columns_ptr, drpe_ptr, stride_rm, stride_rn, ROWS, CHUNKS,
            )  # fmt: skip
