"""How products of few tiles or rows keep a device busy: into how many parts their depth is cut, and how many rows a copy takes.

Parts are summed up in order by a second kernel: results repeat to the bit.
"""

from __future__ import annotations

from typing import Final

__all__ = ["copied_rows", "padded_width", "splits_of"]

TILE: Final = 64
"""The sides of the smallest tiles that products run with."""
LEAST_DEPTH: Final = 512
"""The least depth of a part: a shallower one costs more to write and to add than it saves."""
MOST: Final = 16
UNIT: Final = 16
"""What the rows of partial sums are padded to."""
FEW: Final = (16, 32)
"""How few rows kernels over tensor maps may copy at once, instead of `TILE` of them."""


def splits_of(batch: int, rows: int, cols: int, depth: int, processors: int) -> int:
    """Choose the number of parts: one, unless the tiles leave more than two thirds of the processors idle."""
    tiles = batch * -(-rows // TILE) * -(-cols // TILE)
    if not tiles or 3 * tiles > processors:
        return 1
    return max(1, min(processors // tiles, depth // LEAST_DEPTH, MOST))


def padded_width(cols: int) -> int:
    """Return the columns of partial sums, those that are only there for alignment included."""
    return -(-cols // UNIT) * UNIT


def copied_rows(rows: int, *, whole: bool) -> int:
    """Choose how many rows of the left operand a copy takes: those behind the last one would take as long as others.

    `whole` says that there is no choice: for an operand that is described as its transpose, whose rows lie across, and where
    nothing may depend on the batch.
    """
    return next((few for few in FEW if rows <= few and not whole), TILE)
