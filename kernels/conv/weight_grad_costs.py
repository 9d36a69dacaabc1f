"""Estimated times of weight gradients on an H200 by kernel, tile and split-K parts.

The coefficients are nanoseconds, fitted to random images; docs/conv.md has the result on others.
"""

# ruff: noqa: PLR0917 - a product has many facts

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from nojit.kernels.products.tile_costs import BYTES_PER_NS, Tile, Work, read_tiles

__all__ = ["BOX", "FEW", "MAPPED", "Plan", "divisions", "moving", "plans", "unfolding"]

BOX: Final = 64
"""Positions of a step."""
FEWEST: Final = (1, 2, 3, 4)
"""Numbers of parts that are tried in any case."""
WAVES: Final = (1, 2, 3)
"""Other parts of all tiles fill so many waves, or half of the first."""
MOST_SUMS: Final = 1 << 27
"""The most partial sums of all parts."""
UNFOLD: Final = 2300
"""Time to launch the kernel that unfolds."""
UNFOLDED: Final = 7.4
"""Time to unfold, relative to that of moving the copy once."""

FEW: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32   4468     0   246        0     0      0     0    0.36         0   2152    29      0.00300
      64    64   4067     0   321        0     0      0     0    0.00         0   2152    29      0.00300
     128    32   4607   815   376        0     0      0     0    0.46         0   2152    29      0.00300
     256    64   6007     0   814        0     0      0     0    0.10         0   2152    29      0.00300
""")
"""Tiles of `conv_few_weight_grad`: taps and channels of the input, channels of the output."""
MAPPED: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64   128   1550  1655   329      135     0      0     0    0.34         0   3000     0      0.00300
     128   128   3985     0   372      179     0      0     0    0.17         0   3000     0      0.00300
     128   256   6893   392   313      569     0      0     0    0.32         0   3000     0      0.00300
""")
"""Tiles of `conv_weight_grad_sm90`: channels of the output, taps and padded channels of the input."""


class Plan(NamedTuple):
    """A tile of a weight gradient, and its split-K parts."""

    ns: float
    """Estimated time."""
    rows: int
    cols: int
    parts: int


def plans(
    tiles: Sequence[Tile], rows: int, cols: int, boxes: int, moved: float, processors: int, *, merges: bool
) -> Iterator[Plan]:
    """List the tiles and numbers of parts of a product of `rows` by `cols` over `boxes` of positions, with their times.

    Args:
        tiles: `FEW` or `MAPPED`.
        rows: rows of the product, padding included.
        cols: its columns.
        boxes: number of boxes of positions.
        moved: time to move operands and result once.
        processors: number of SMs.
        merges: whether a single part is merged, too: the result has another order.
    """
    work = Work((1, rows, cols, BOX * boxes), processors, BOX, moved, (False, False))
    for tile in tiles:
        for parts in divisions(tile.count(work.sizes), boxes, processors):
            if parts > 1 and parts * rows * cols > MOST_SUMS:
                break
            ns = work.time_in_parts(tile, parts) if parts > 1 or merges else work.time(tile)
            yield Plan(ns, tile.rows, tile.cols, parts)


def divisions(tiles: int, boxes: int, processors: int) -> list[int]:
    """List the numbers of parts to try, lowest first: each part has a box."""
    filling = [waves * processors // tiles for waves in WAVES]
    tried = {*FEWEST, filling[0] // 2, *filling}
    return sorted({max(1, min(parts, boxes)) for parts in tried})


def moving(count: int, element_bytes: int) -> float:
    """Return the time to move `count` elements."""
    return count * element_bytes / BYTES_PER_NS


def unfolding(copied: float) -> float:
    """Return the time to unfold an image, given the time to move the copy."""
    return UNFOLD + UNFOLDED * copied
