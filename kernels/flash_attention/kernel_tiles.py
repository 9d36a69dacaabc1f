"""What the attention kernels over pointers share: tiles of rows, and which keys a query sees.

A mask is a band: query m sees the keys from m + `left` to m + `right`. `MASK` says which of the two bounds there are:
``"none"``, ``"causal"`` (`right` alone) or ``"window"`` (both). Whole tiles outside of the band are never visited, and of
the others only those that its edges or the end of the keys cut are masked.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def load_tile(ptrs, rows, row_count, cols, col_count, MASK_ROWS: tl.constexpr, MASK_COLS: tl.constexpr):
    """Load a [rows, cols] tile; what lies outside the tensor reads as 0, so that NaNs in padding never enter."""
    if MASK_ROWS and MASK_COLS:
        return tl.load(ptrs, mask=(rows[:, None] < row_count) & (cols[None, :] < col_count), other=0.0)
    elif MASK_ROWS:  # noqa: RET505 - Triton needs both arms: it compiles the one that is taken
        return tl.load(ptrs, mask=rows[:, None] < row_count, other=0.0)
    elif MASK_COLS:
        return tl.load(ptrs, mask=cols[None, :] < col_count, other=0.0)
    else:
        return tl.load(ptrs)


@triton.jit
def store_tile(ptrs, values, rows, row_count, cols, col_count, MASK_COLS: tl.constexpr):
    """Store what of a [rows, cols] tile lies in the tensor."""
    inside = rows[:, None] < row_count
    if MASK_COLS:
        inside = inside & (cols[None, :] < col_count)
    tl.store(ptrs, values.to(ptrs.dtype.element_ty), mask=inside)


@triton.jit
def span_of(
    start, left, right, count, OWN: tl.constexpr, STEP: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr
):
    """Find the tiles that the places [start, start + `OWN`) see, where place p sees from p + `left` to p + `right`.

    Seen are `count` places in tiles of `STEP`; a bound that there is not, by `HAS_LEFT` and `HAS_RIGHT`, is not read.

    Returns:
        Where the tiles start that any place sees, where those start and end that all see in full, and the end of what
        any sees. All but the last are multiples of `STEP`, and in this order; the last may lie before them, if no place
        sees anything.
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
    """Return where the tile starts that lies at `place` if the ones seen in full are left out."""
    if HAS_LEFT:
        return place + tl.where(place >= full_first, full_last - full_first, 0)
    else:  # noqa: RET505 - as above
        return place + full_last


@triton.jit
def in_band(rows, keys, left, right, MASK: tl.constexpr):
    """Say which keys each row sees; both are places, shaped to be broadcast."""
    seen = keys <= rows + right
    if MASK == "window":
        seen = seen & (keys >= rows + left)
    return seen
