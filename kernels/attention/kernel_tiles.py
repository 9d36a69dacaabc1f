"""Device functions that the Triton attention kernels share: loads and stores of tiles, and which keys a query sees.

A mask is a band: query m sees the keys from m + `left` to m + `right`. `MASK` tells which bounds exist: ``"none"``,
``"causal"`` (only `right`) or ``"window"`` (both). Kernels skip tiles outside the band, and mask only tiles that its
edges or the end of the keys cut.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


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
