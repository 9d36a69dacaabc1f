"""Choose `bmm_row` or `bmm_few`, the sm_90 kernels for few rows by a column-major weight, where they are faster.

`bmm_sm90` computes 64 rows at least, and splits K where tiles are few, which takes a second launch. `bmm_row` always pays for
one row; the others pay where `bmm_sm90` would leave most multiprocessors idle or split K, unless K is so deep that parts of it
are faster. The limits come from 293 random products on an H200.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.products.matrices import Layout, mapped

__all__ = ["FewRows", "few_rows_of"]

MOST_ROWS: Final = 16
ROWS: Final = (1, 2, 8, 16)
"""Rows for which there are variants: a product takes the fewest that hold all of its own."""
IN_REGISTERS: Final = 2
"""The most rows that `bmm_row` multiplies."""
BLOCK_N: Final = 16
"""Columns of the tiles of `bmm_few`."""
DEPTH: Final = 4096
DEPTH_OF_COLUMN: Final = 4
"""K is too deep if it exceeds `DEPTH` and so much for each column."""
ELEMENT_BYTES: Final = 2
VECTOR: Final = 8
"""Elements that a lane loads at once."""


class FewRows(NamedTuple):
    """A product of few rows."""

    kernel: str
    is_turned: bool
    """Whether the kernel computes the transposed product, whose left operand is the given right one."""
    rows: int
    """Rows of the variant."""
    strides: tuple[int, int]
    """Distances of rows of the left operand, and of columns of the right one."""


def few_rows_of(left: Layout, right: Layout, processors: int) -> FewRows | None:
    """Return how to compute a product of 16-bit operands at multiples of 16 bytes, or None if no kernel here does or pays.

    Args:
        left: layout of the left operand.
        right: layout of the right operand.
        processors: number of SMs.
    """
    batch, rows, depth = left.shape
    cols = right.shape[2]
    if batch != 1 or min(rows, cols) > MOST_ROWS or depth % VECTOR:
        return None
    of_a, of_b = mapped(left, ELEMENT_BYTES), mapped(right, ELEMENT_BYTES)
    if of_a is None or of_b is None or of_a.is_transposed or not of_b.is_transposed:
        return None
    is_turned = rows > MOST_ROWS
    if is_turned:
        rows, cols, of_a, of_b = cols, rows, of_b, of_a
    if rows > 1 and (cols > BLOCK_N * processors or depth > DEPTH + DEPTH_OF_COLUMN * cols):
        return None
    kernel = "bmm_row" if rows <= IN_REGISTERS else "bmm_few"
    fitting = next(most for most in ROWS if rows <= most)
    return FewRows(kernel, is_turned, fitting, (of_a.strides[2], of_b.strides[2]))
