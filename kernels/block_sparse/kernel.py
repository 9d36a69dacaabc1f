"""Softmax over block-sparse matrices, forward and backward: one program owns `ROWS` rows of one block row.

A sparse tensor is [batch, nnz, block, block] with its blocks in row-major (head, block row, block column) order, so the
blocks of a block row are neighbours: `spans` (int32 [heads * rows, 3]) lists the block rows by number (head * rows + row),
first block and count, and `columns` (int32 [nnz]) says in which block column each block lies. The first `long_rows` of
the spans are much longer than the others and start first, so that none is still at work when all others are done. A
program sees its rows as tiles [ROWS, CHUNKS, 16]: chunks of 16 columns lie inside one block for every block size (16, 32,
64, 128), which therefore stays a run-time value. Rows that fit `TILES` tiles are read once; longer ones twice, the first
time for their maximum and sum alone.
"""

# ruff: noqa: RUF005 - Triton knows no starred tuples

import triton
import triton.language as tl

CHUNK = tl.constexpr(16)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _find_rows(spans_ptr, long_rows, batch, heads, rows, block, ROWS: tl.constexpr):
    """Find what this program owns: batch and head (int64), and the span (first row of the head, first block, chunks)."""
    tiles = block // ROWS
    place = tl.program_id(0) // tiles
    is_long = place < long_rows * batch
    # neighbours in memory stay neighbours in time, but for the long rows
    first = tl.where(is_long, 0, long_rows)
    count = tl.where(is_long, long_rows, heads * rows - long_rows)
    place -= first * batch
    span_ptr = spans_ptr + (first + place % count) * 3
    block_row = tl.load(span_ptr)
    first_block = tl.load(span_ptr + 1)
    width = tl.load(span_ptr + 2) * (block // CHUNK)
    first_row = block_row % rows * block + tl.program_id(0) % tiles * ROWS
    return (place // count).to(tl.int64), (block_row // rows).to(tl.int64), (first_row, first_block, width)


@triton.jit
def _place_tile(start, span, block, ROWS: tl.constexpr, CHUNKS: tl.constexpr):
    """Place the chunks [start, start + CHUNKS) of a span in the sparse tensor.

    Returns the block (int64) and the first column in it of each chunk, which chunks exist (all [CHUNKS]), the rows of
    the head and their lines in the block (both [ROWS]).
    """
    first_row, first_block, width = span
    chunks = start + tl.arange(0, CHUNKS)
    # block is 16 << shift: a shift is far cheaper than a division
    shift = (block >= 32).to(tl.int32) + (block >= 64).to(tl.int32) + (block >= 128).to(tl.int32)
    blocks = (first_block + (chunks >> shift)).to(tl.int64)
    in_block = (chunks & ((block // CHUNK) - 1)) * CHUNK
    rows = first_row + tl.arange(0, ROWS)
    return blocks, in_block, chunks < width, rows, rows & (block - 1)


@triton.jit
def _point_at(sparse, blocks, in_block, lines):
    """Return pointers [ROWS, CHUNKS, 16] into a sparse tensor, given as (pointer, block, row and column stride)."""
    ptr, stride_b, stride_r, stride_c = sparse
    cols = in_block[:, None] + tl.arange(0, CHUNK)[None, :]
    tile = blocks[:, None] * stride_b + cols.to(tl.int64) * stride_c
    return ptr + (lines.to(tl.int64)[:, None, None] * stride_r + tile[None, :, :])


@triton.jit
def _dense_columns(columns_ptr, blocks, in_block, block, live):
    """Return the columns [CHUNKS, 16] of the dense matrix that the chunks of `blocks` stand for."""
    block_cols = tl.load(columns_ptr + blocks, mask=live, other=0)
    return (block_cols * block + in_block)[:, None] + tl.arange(0, CHUNK)[None, :]


@triton.jit
def _mask_term(value, multiplies):
    """Return what a mask adds to the scores: its value, or, if it `multiplies`, -inf where it is 0 and 0 elsewhere."""
    return tl.where(multiplies != 0, tl.where(value == 0.0, float("-inf"), 0.0), value)


@triton.jit
def _row_max(tile):
    """Return the maximum of each row of a [ROWS, CHUNKS, 16] tile."""
    return tl.max(tl.max(tile, 2), 1)


@triton.jit
def _row_sum(tile):
    """Return the sum of each row of a [ROWS, CHUNKS, 16] tile."""
    return tl.sum(tl.sum(tile, 2), 1)


@triton.jit
def _load_scores(
    start,
    span,
    block,
    x,
    scale,
    columns_ptr,
    rpe_ptr,
    stride_rm,
    stride_rn,
    kpm_ptr,
    stride_kn,
    kpm_multiplies,
    am_ptr,
    stride_am,
    stride_an,
    am_multiplies,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Load a tile of scores (fp32, [ROWS, CHUNKS, 16]); what is masked or past the row's end is -inf.

    The pointers of `x`, rpe and kpm point at this program's batch and head already.
    """
    blocks, in_block, live, rows, lines = _place_tile(start, span, block, ROWS, CHUNKS)
    mask = live[None, :, None]
    scores = tl.load(_point_at(x, blocks, in_block, lines), mask=mask, other=0.0).to(tl.float32) * scale
    wide_rows = rows.to(tl.int64)[:, None, None]
    # each term finds its columns anew: a call without terms, the common one, must not pay for them
    if rpe_ptr is not None:
        cols = _dense_columns(columns_ptr, blocks, in_block, block, live).to(tl.int64)
        rpe_ptrs = rpe_ptr + (wide_rows * stride_rm + (cols * stride_rn)[None, :, :])
        scores += tl.load(rpe_ptrs, mask=mask, other=0.0).to(tl.float32)
    if kpm_ptr is not None:
        cols = _dense_columns(columns_ptr, blocks, in_block, block, live).to(tl.int64)
        kpm = tl.load(kpm_ptr + cols * stride_kn, mask=live[:, None], other=0.0).to(tl.float32)
        scores += _mask_term(kpm, kpm_multiplies)[None, :, :]
    if am_ptr is not None:
        cols = _dense_columns(columns_ptr, blocks, in_block, block, live).to(tl.int64)
        am_ptrs = am_ptr + (wide_rows * stride_am + (cols * stride_an)[None, :, :])
        scores += _mask_term(tl.load(am_ptrs, mask=mask, other=0.0).to(tl.float32), am_multiplies)
    if CAUSAL:
        nearest = _dense_columns(columns_ptr, blocks, in_block, block, live)
        mask = mask & (nearest[None, :, :] <= rows[:, None, None])
    return tl.where(mask, scores, float("-inf"))


@triton.jit
def _shift(row_max):
    """Return what to take off a row's base-two scores: its scaled maximum, or 0 if it has seen nothing yet."""
    return tl.where(row_max == float("-inf"), 0.0, row_max) * LOG2_E


@triton.jit
def _exponentials(scores, shift):
    """Return ``exp(scores)`` divided by two to the `shift` of each row, 0 where the score is -inf.

    Base two, as its exponential is one instruction. The product is not rounded before the shift is taken off, so that
    large scores lose nothing; how the shift itself is rounded cancels out of the softmax.
    """
    return tl.exp2(tl.fma(scores, tl.full(scores.shape, LOG2_E, tl.float32), -shift[:, None, None]))


@triton.jit
def _store_tile(values, start, span, block, out, ROWS: tl.constexpr, CHUNKS: tl.constexpr):
    """Write a tile of fp32 values to the sparse tensor `out`, rounded to its type."""
    blocks, in_block, live, _, lines = _place_tile(start, span, block, ROWS, CHUNKS)
    ptrs = _point_at(out, blocks, in_block, lines)
    tl.store(ptrs, values.to(ptrs.dtype.element_ty), mask=live[None, :, None])


@triton.jit
def _inverse(row_sum):
    """Return ``1 / row_sum`` for [ROWS, 1, 1] tiles; a row whose sum is 0 saw nothing, and stays 0."""
    return (1.0 / tl.where(row_sum == 0.0, 1.0, row_sum))[:, None, None]


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
    heads,
    rows,
    block,
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

    x and out are [batch, nnz, block, block], rpe dense [batch, heads, M, N], kpm [batch, N], am [M, N], each with any
    strides, the last three optional. `kpm_multiplies` and `am_multiplies` are 0 or 1. out may be x: a program
    reads all it needs of a tile before it writes it. With `WHOLE` no row is wider than 16 * CHUNKS * TILES columns.
    The grid is ``batch * heads * rows * (block // ROWS)``, in x alone.
    """
    z, head, span = _find_rows(spans_ptr, long_rows, batch, heads, rows, block, ROWS)
    x = (x_ptr + z * stride_xz, stride_xb, stride_xr, stride_xc)
    out = (out_ptr + z * stride_oz, stride_ob, stride_or, stride_oc)
    if rpe_ptr is not None:
        rpe_ptr += z * stride_rz + head * stride_rh
    if kpm_ptr is not None:
        kpm_ptr += z * stride_kz
    width = span[2]
    if WHOLE or width <= CHUNKS * TILES:
        scores = ()
        row_max = tl.full([ROWS], float("-inf"), tl.float32)
        for tile in tl.static_range(TILES):
            part = _load_scores(
                tile * CHUNKS, span, block, x, scale, columns_ptr, rpe_ptr, stride_rm, stride_rn, kpm_ptr, stride_kn,
                kpm_multiplies, am_ptr, stride_am, stride_an, am_multiplies, CAUSAL, ROWS, CHUNKS,
            )  # fmt: skip
            row_max = tl.maximum(row_max, _row_max(part))
            scores = scores + (part,)
        weights = ()
        row_sum = tl.zeros([ROWS], tl.float32)
        for tile in tl.static_range(TILES):
            part = _exponentials(scores[tile], _shift(row_max))
            row_sum += _row_sum(part)
            weights = weights + (part,)
        for tile in tl.static_range(TILES):
            _store_tile(weights[tile] * _inverse(row_sum), tile * CHUNKS, span, block, out, ROWS, CHUNKS)
    else:
        row_max = tl.full([ROWS], float("-inf"), tl.float32)
        row_sum = tl.zeros([ROWS], tl.float32)
        for start in range(0, width, CHUNKS):
            scores = _load_scores(
                start, span, block, x, scale, columns_ptr, rpe_ptr, stride_rm, stride_rn, kpm_ptr, stride_kn,
                kpm_multiplies, am_ptr, stride_am, stride_an, am_multiplies, CAUSAL, ROWS, CHUNKS,
            )  # fmt: skip
            new_max = tl.maximum(row_max, _row_max(scores))
            # a row that has seen nothing has nothing to keep, and its factor may be infinite
            keep = tl.where(row_max == float("-inf"), 0.0, tl.exp2(_shift(row_max) - _shift(new_max)))
            row_sum = row_sum * keep + _row_sum(_exponentials(scores, _shift(new_max)))
            row_max = new_max
        for start in range(0, width, CHUNKS):
            scores = _load_scores(
                start, span, block, x, scale, columns_ptr, rpe_ptr, stride_rm, stride_rn, kpm_ptr, stride_kn,
                kpm_multiplies, am_ptr, stride_am, stride_an, am_multiplies, CAUSAL, ROWS, CHUNKS,
            )  # fmt: skip
            weights = _exponentials(scores, _shift(row_max)) * _inverse(row_sum)
            _store_tile(weights, start, span, block, out, ROWS, CHUNKS)


@triton.jit
def _load_tile(start, span, block, sparse, ROWS: tl.constexpr, CHUNKS: tl.constexpr):
    """Load a tile of a sparse tensor as fp32, 0 past the row's end."""
    blocks, in_block, live, _, lines = _place_tile(start, span, block, ROWS, CHUNKS)
    return tl.load(_point_at(sparse, blocks, in_block, lines), mask=live[None, :, None], other=0.0).to(tl.float32)


@triton.jit
def _store_gradients(
    y,
    dy,
    dot,
    start,
    span,
    block,
    dx,
    scale,
    columns_ptr,
    drpe_ptr,
    stride_rm,
    stride_rn,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Write ``y * (dy - dot)`` for a tile: times `scale` to dx, as it is to the dense drpe."""
    ds = y * (dy - dot[:, None, None])
    _store_tile(ds * scale, start, span, block, dx, ROWS, CHUNKS)
    if drpe_ptr is not None:
        blocks, in_block, live, rows, _ = _place_tile(start, span, block, ROWS, CHUNKS)
        cols = _dense_columns(columns_ptr, blocks, in_block, block, live).to(tl.int64)
        drpe_ptrs = drpe_ptr + (rows.to(tl.int64)[:, None, None] * stride_rm + (cols * stride_rn)[None, :, :])
        tl.store(drpe_ptrs, ds.to(drpe_ptr.dtype.element_ty), mask=live[None, :, None])


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
    heads,
    rows,
    block,
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
    """Write dx = y * (dy - sum(y * dy)) * scale and, if asked, the gradient of the dense bias (dx without the scale).

    y, dy and dx are [batch, nnz, block, block] with any strides (`stride_g*` are those of dy, all 0 for the gradient of
    a sum); drpe is dense [batch, heads, M, N], and only what active blocks cover is written: the rest must be 0 before.
    Tiles, grid and `WHOLE` as in the forward kernel.
    """
    z, head, span = _find_rows(spans_ptr, long_rows, batch, heads, rows, block, ROWS)
    y = (y_ptr + z * stride_yz, stride_yb, stride_yr, stride_yc)
    dy = (dy_ptr + z * stride_gz, stride_gb, stride_gr, stride_gc)
    dx = (dx_ptr + z * stride_dz, stride_db, stride_dr, stride_dc)
    if drpe_ptr is not None:
        drpe_ptr += z * stride_rz + head * stride_rh
    width = span[2]
    if WHOLE or width <= CHUNKS * TILES:
        tiles = ()
        dot = tl.zeros([ROWS], tl.float32)
        for tile in tl.static_range(TILES):
            y_tile = _load_tile(tile * CHUNKS, span, block, y, ROWS, CHUNKS)
            dy_tile = _load_tile(tile * CHUNKS, span, block, dy, ROWS, CHUNKS)
            dot += _row_sum(y_tile * dy_tile)
            tiles = tiles + ((y_tile, dy_tile),)
        for tile in tl.static_range(TILES):
            y_tile, dy_tile = tiles[tile]
            _store_gradients(
                y_tile, dy_tile, dot, tile * CHUNKS, span, block, dx, scale, columns_ptr, drpe_ptr, stride_rm,
                stride_rn, ROWS, CHUNKS,
            )  # fmt: skip
    else:
        dot = tl.zeros([ROWS], tl.float32)
        for start in range(0, width, CHUNKS):
            y_tile = _load_tile(start, span, block, y, ROWS, CHUNKS)
            dot += _row_sum(y_tile * _load_tile(start, span, block, dy, ROWS, CHUNKS))
        for start in range(0, width, CHUNKS):
            y_tile = _load_tile(start, span, block, y, ROWS, CHUNKS)
            dy_tile = _load_tile(start, span, block, dy, ROWS, CHUNKS)
            _store_gradients(
                y_tile, dy_tile, dot, start, span, block, dx, scale, columns_ptr, drpe_ptr, stride_rm, stride_rn, ROWS,
                CHUNKS,
            )  # fmt: skip
