"""Device functions that the Triton attention kernels share: places and tiles, which keys a query sees, the online softmax.

A mask is a band: query m sees the keys from m + `left` to m + `right`. `MASK` tells which bounds exist: ``"none"``,
``"causal"`` (only `right`) or ``"window"`` (both). Kernels skip tiles outside the band, and mask only tiles that its
edges or the end of the keys cut.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def place_queries(heads, group, q_len, BLOCK_M: tl.constexpr):
    """Return this program's first query, batch and head as one number, batch, head, and key head; the grid is in x.

    Under a causal mask the last tiles take longest: they start first, so that short ones fill the end of the last wave.
    """
    tiles = tl.cdiv(q_len, BLOCK_M)
    tile = tiles - 1 - tl.program_id(0) % tiles
    batch_head = tl.program_id(0) // tiles
    index_b = (batch_head // heads).to(tl.int64)
    index_h = (batch_head % heads).to(tl.int64)
    index_kv = index_h // group
    row_start = tile * BLOCK_M
    return row_start, batch_head, index_b, index_h, index_kv


@triton.jit
def place_keys(kv_heads, kv_len, BLOCK_N: tl.constexpr):
    """Return this program's first key, batch and key head as one number, batch, and key head; the grid is in x.

    Under a causal mask the first tiles take longest, and start first.
    """
    tiles = tl.cdiv(kv_len, BLOCK_N)
    tile = tl.program_id(0) % tiles
    batch_head = tl.program_id(0) // tiles
    index_b = (batch_head // kv_heads).to(tl.int64)
    index_kv = (batch_head % kv_heads).to(tl.int64)
    return tile * BLOCK_N, batch_head, index_b, index_kv


@triton.jit
def load_tile(ptrs, rows, row_count, cols, col_count, MASK_ROWS: tl.constexpr, MASK_COLS: tl.constexpr):
    """Load a tile [rows, cols]; elements outside the tensor read as 0, so that NaN in padding has no effect."""
    if MASK_ROWS and MASK_COLS:
        return tl.load(ptrs, mask=(rows[:, None] < row_count) & (cols[None, :] < col_count), other=0.0)
    elif MASK_ROWS:  # noqa: RET505 - Triton needs both branches: it compiles the one taken
        return tl.load(ptrs, mask=rows[:, None] < row_count, other=0.0)
    elif MASK_COLS:
        return tl.load(ptrs, mask=cols[None, :] < col_count, other=0.0)
    else:
        return tl.load(ptrs)


@triton.jit
def store_tile(ptrs, values, rows, row_count, cols, col_count, MASK_COLS: tl.constexpr):
    """Store a tile [rows, cols]; elements outside the tensor are skipped."""
    inside = rows[:, None] < row_count
    if MASK_COLS:
        inside = inside & (cols[None, :] < col_count)
    tl.store(ptrs, values.to(ptrs.dtype.element_ty), mask=inside)


@triton.jit
def span_of(
    start, left, right, count, OWN: tl.constexpr, STEP: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr
):
    """Return the tiles that positions [start, start + `OWN`) see, where position p sees positions p + `left` to p + `right`.

    There are `count` positions to see, in tiles of `STEP`. `HAS_LEFT` and `HAS_RIGHT` tell which bounds exist.

    Returns:
        The start of the first visible tile; start and end of the tiles that all positions see in full; the end of
        visible positions. All but the last are multiples of `STEP`, in ascending order; the last may be smaller if no
        position sees anything.
    """
    first = 0
    full_first = 0
    full_last = count
    last = count
    if HAS_RIGHT:
        last = tl.maximum(0, tl.minimum(count, start + OWN + right))
        full_last = tl.maximum(0, tl.minimum(count, start + 1 + right))
    full_last = full_last // STEP * STEP
    if HAS_LEFT:
        first = tl.maximum(0, start + left) // STEP * STEP
        full_first = tl.cdiv(tl.maximum(0, start + OWN - 1 + left), STEP) * STEP
        full_last = tl.maximum(first, full_last)
        full_first = tl.minimum(full_first, full_last)
    return first, full_first, full_last, last


@triton.jit
def hidden_tile(place, full_first, full_last, HAS_LEFT: tl.constexpr):
    """Return the start of a tile from `place`, its start if the tiles that all queries see in full are not counted.

    Those are the tiles from `full_first` to `full_last`, which another loop processes.
    """
    if HAS_LEFT:
        return place + tl.where(place >= full_first, full_last - full_first, 0)
    else:  # noqa: RET505 - as above
        return place + full_last


@triton.jit
def in_band(rows, keys, left, right, MASK: tl.constexpr):
    """Return which keys each row sees; `rows` and `keys` are positions with shapes that broadcast."""
    seen = keys <= rows + right
    if MASK == "window":
        seen = seen & (keys >= rows + left)
    return seen


@triton.jit
def weigh(scores, row_max, row_sum):
    """Return the exponentials of base-2 scores, the factor for previous sums, the new maximum and the new sum of each row."""
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    # a row without visible keys so far has maximum -inf: shift by 0, since -inf - -inf is NaN
    shift = tl.where(new_max == float("-inf"), 0.0, new_max)
    weights = tl.exp2(scores - shift[:, None])
    keep = tl.exp2(row_max - shift)
    return weights, keep, new_max, row_sum * keep + tl.sum(weights, 1)


@triton.jit
def outputs_of(acc, row_sum):
    """Return weighted sums of values divided by the sums of weights; a fully masked row gives 0."""
    return acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]


@triton.jit
def log_sums(row_max, row_sum):
    """Return the log-sum of each row in base 2: a fully masked row has sum 0 and maximum -inf, and log2(0) is -inf already."""
    return row_max + tl.log2(row_sum)
