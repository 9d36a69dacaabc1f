"""Number of split-K parts, and rows per copy, so that products with few tiles or rows keep a device busy.

A second kernel adds up the split-K parts in order, so that results are bit-identical every time.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TILE", "copied_rows", "padded_width", "partial_shape", "parts_of", "splits_of"]

TILE: Final = 64
"""Rows and columns of the smallest tile."""
LEAST_DEPTH: Final = 512
"""The least K of a split-K part: a shorter part costs more to write and add up than it saves."""
MOST: Final = 16
UNIT: Final = 16
"""The columns of partial sums are padded to a multiple of this."""
FEW: Final = (16, 32)
"""Rows below `TILE` that a TMA box of the left operand may have."""


def splits_of(batch: int, rows: int, cols: int, depth: int, processors: int) -> int:
    """Choose the number of split-K parts: 1, unless tiles leave at least two thirds of the SMs idle.

    `depth`: length of K; `processors`: number of SMs.
    """
    return parts_of(batch * -(-rows // TILE) * -(-cols // TILE), depth, processors, share=3)


def parts_of(tiles: int, depth: int, processors: int, *, share: int, least_depth: int = LEAST_DEPTH) -> int:
    """Choose the number of split-K parts: 1, unless tiles keep at most 1 / `share` of the SMs busy.

    Args:
        tiles: number of tiles of the result.
        depth: length of K.
        processors: number of SMs.
        share: K is divided if there are at least so many SMs for each tile.
        least_depth: the least K of a part.
    """
    if not tiles or share * tiles > processors:
        return 1
    return max(1, min(processors // tiles, depth // least_depth, MOST))


def padded_width(cols: int) -> int:
    """Return the columns of partial sums, `cols` padded for alignment."""
    return -(-cols // UNIT) * UNIT


def partial_shape(splits: int, batch: int, rows: int, cols: int) -> tuple[int, int, int, int] | None:
    """Return the shape of the partial sums of `splits` parts of K, fp32; None for one part, which needs none."""
    return (splits, batch, rows, padded_width(cols)) if splits > 1 else None


def copied_rows(rows: int, *, whole: bool) -> int:
    """Return how many rows of the left operand a TMA copy takes: rows past the last one would take time as well.

    `whole` forces `TILE` rows: for an operand whose transpose is described, and under batch invariance.
    """
    return next((few for few in FEW if rows <= few and not whole), TILE)
