"""Estimate the time of a product on an H200 for each plan: a tile, and split-K parts that keep the device busy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from nojit.kernels.products.tile_costs import BYTES_PER_NS, Tile, Work

__all__ = ["Limit", "Plan", "divisions", "moving", "plans", "unfolding"]

FEWEST: Final = (1, 2, 3, 4)
"""Numbers of parts that are tried in any case."""
WAVES: Final = (1, 2, 3)
"""Other parts of all tiles fill so many waves, or half of the first."""
MOST_SUMS: Final = 1 << 27
"""The most partial sums of all parts."""
UNFOLD: Final = 2565
"""Time to launch the kernel that unfolds."""
UNFOLDED: Final = 3.46
"""Time to unfold, relative to that of moving the copy once."""


class Plan(NamedTuple):
    """A tile of a product, and its split-K parts."""

    ns: float
    """Estimated time."""
    rows: int
    cols: int
    parts: int


class Limit:
    """The least time so far, in ns: plans that take longer need not be listed."""

    def __init__(self, ns: float = math.inf) -> None:
        self.ns = ns


def plans(
    tiles: Sequence[Tile],
    work: Work,
    *,
    merges: bool = False,
    divided: bool = True,
    more: float = 0.0,
    limit: Limit | None = None,
) -> Iterator[Plan]:
    """List the tiles and numbers of parts of a product, with their times.

    Args:
        tiles: the tiles of a kernel.
        work: the product, padding included; all rows of its left operand are copied.
        merges: whether a single part is merged, too: the result has another order.
        divided: whether there may be several parts.
        more: time of other launches, in ns.
        limit: leaves out slower plans; the caller may lower it meanwhile. None lists all.
    """
    batch, rows, cols, _ = work.sizes
    processors, steps = work.processors, work.steps
    found: Sequence[tuple[float, Tile]] = [(more, tile) for tile in tiles]
    if limit is None:
        limit = Limit()
    else:
        found = sorted((_least(tile, work, steps) + more, tile) for tile in tiles)
    for least, tile in found:
        if least > limit.ns:
            return
        for parts in divisions(tile.count(work.sizes), steps, processors) if divided else (1,):
            if parts > 1 and parts * batch * rows * cols > MOST_SUMS:
                break
            ns = more + (work.time_in_parts(tile, parts) if parts > 1 or merges else work.time(tile))
            if ns <= limit.ns:
                yield Plan(ns, tile.rows, tile.cols, parts)


def _least(tile: Tile, work: Work, steps: int) -> float:
    """Return a time that no plan with a tile is below: waves and steps are not rounded up, nor slower on a busy device."""
    waves = tile.count(work.sizes) / work.processors
    return tile.start + max(waves, 1.0) * tile.wave + waves * steps * tile.step + tile.memory * work.moved


def divisions(tiles: int, steps: int, processors: int) -> Sequence[int]:
    """List the numbers of parts to try, lowest first: each part has a step."""
    filling = [waves * processors // tiles for waves in WAVES]
    if filling[-1] <= FEWEST[-1]:
        return FEWEST[: max(1, steps)]
    tried = {*FEWEST, filling[0] // 2, *filling}
    return sorted({max(1, min(parts, steps)) for parts in tried})


def moving(count: int, element_bytes: int) -> float:
    """Return the time to move `count` elements."""
    return count * element_bytes / BYTES_PER_NS


def unfolding(copied: float) -> float:
    """Return the time to unfold an input, given the time to move the copy."""
    return UNFOLD + UNFOLDED * copied
