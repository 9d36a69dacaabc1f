"""Estimated times of the plans of a product on an H200: a tile, and split-K parts that keep the device busy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from nojit.kernels.products.tile_costs import BYTES_PER_NS, Tile, Work

__all__ = ["Plan", "divisions", "moving", "plans", "unfolding"]

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


class Plan(NamedTuple):
    """A tile of a product, and its split-K parts."""

    ns: float
    """Estimated time."""
    rows: int
    cols: int
    parts: int


def plans(tiles: Sequence[Tile], work: Work, *, merges: bool) -> Iterator[Plan]:
    """List the tiles and numbers of parts of a product, with their times.

    Args:
        tiles: the tiles of a kernel.
        work: the product, padding included.
        merges: whether a single part is merged, too: the result has another order.
    """
    batch, rows, cols, _ = work.sizes
    for tile in tiles:
        for parts in divisions(tile.count(work.sizes), work.steps, work.processors):
            if parts > 1 and parts * batch * rows * cols > MOST_SUMS:
                break
            ns = work.time_in_parts(tile, parts) if parts > 1 or merges else work.time(tile)
            yield Plan(ns, tile.rows, tile.cols, parts)


def divisions(tiles: int, steps: int, processors: int) -> list[int]:
    """List the numbers of parts to try, lowest first: each part has a step."""
    filling = [waves * processors // tiles for waves in WAVES]
    tried = {*FEWEST, filling[0] // 2, *filling}
    return sorted({max(1, min(parts, steps)) for parts in tried})


def moving(count: int, element_bytes: int) -> float:
    """Return the time to move `count` elements."""
    return count * element_bytes / BYTES_PER_NS


def unfolding(copied: float) -> float:
    """Return the time to unfold an image, given the time to move the copy."""
    return UNFOLD + UNFOLDED * copied
