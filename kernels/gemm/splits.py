"""Split-K and copy heights, so that products of few tiles or rows keep a device busy.

A second kernel adds up the parts in order: results repeat to the bit.
"""

from __future__ import annotations

from typing import Final

__all__ = ["copied_rows", "padded_width", "splits_of"]

TILE: Final = 64
"""The sides of the smallest tiles of products."""
LEAST_DEPTH: Final = 512
"""The least depth of a part: a shallower one costs more to write and add than it saves."""
MOST: Final = 16
UNIT: Final = 16
"""Alignment of the rows of partial sums."""
FEW: Final = (16, 32)
"""The heights below `TILE` that the boxes of kernels over TMA descriptors may have."""


def splits_of(batch: int, rows: int, cols: int, depth: int, processors: int) -> int:
    """Choose the number of parts for split-K: 1, unless tiles leave more than two thirds of the multiprocessors idle."""
    tiles = batch * -(-rows // TILE) * -(-cols // TILE)
    if not tiles or 3 * tiles > processors:
        return 1
    return max(1, min(processors // tiles, depth // LEAST_DEPTH, MOST))


def padded_width(cols: int) -> int:
    """Return the columns of partial sums, with padding for alignment."""
    return -(-cols // UNIT) * UNIT


def copied_rows(rows: int, *, whole: bool) -> int:
    """Choose how many rows of the left operand a copy has: copying rows past the last one takes as long as copying others.

    `whole` forces full copies: for an operand that is described as its transpose, and under batch invariance.
    """
    return next((few for few in FEW if rows <= few and not whole), TILE)
