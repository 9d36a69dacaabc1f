"""Choose how a sum of two products runs on sm_90: in one launch with some tile, or in three launches.

In parts, each product writes fp32 sums, with a tile and parts of K of its own, and a third launch adds them up. The times are those of
`nojit.kernels.bmm.cost`; decision 0080 has the result on random sums.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.bmm.cost import ELEMENT_BYTES, STEP, TILES, Schedule, fastest_sums
from nojit.kernels.products.matrices import Mapped
from nojit.kernels.products.splits import TILE, copied_rows, padded_width
from nojit.kernels.products.tile_costs import BYTES_PER_NS, MOST_SUMS, Tile, Work, straddling

__all__ = ["FIXED", "schedules_of"]

WHOLE: Final = tuple(tile for tile in TILES if (tile.rows, tile.cols) in {(64, 64), (64, 128), (128, 128), (128, 256)})
"""The tiles of `mm_plus_mm_sm90`."""
CORE_COLS: Final = 128
"""Columns of its tiles that every bundle has."""
FIXED: Final = Schedule(128, 128)
"""One launch with the tile that operands of any order in memory have."""
MERGE_NS: Final = 1000
"""Time of the kernel that adds up the sums, in nanoseconds."""


def schedules_of(
    maps: tuple[Mapped, ...], sizes: tuple[int, int, int, int], processors: int, *, divides: bool
) -> tuple[Schedule, ...]:
    """Choose the tile of one launch, or for parts the tile and the parts of K of each product.

    Args:
        maps: TMA descriptions of both factors of each product.
        sizes: (M, N, K, L).
        processors: number of SMs.
        divides: whether the bundle has the kernels of parts, and all tiles.
    """
    rows, cols, *depths = sizes
    works = [
        _work(maps[2 * number : 2 * number + 2], (1, rows, cols, depth), processors)
        for number, depth in enumerate(depths)
    ]
    time, whole = min((_time_whole(tile, works), Schedule(tile.rows, tile.cols)) for tile in _tiles(maps, divides))
    if not divides:
        return (whole,)
    (first_time, first), (second_time, second) = map(fastest_sums, works)
    is_faster = first_time + second_time + MERGE_NS < time
    fits = (first.parts + second.parts) * rows * padded_width(cols) <= MOST_SUMS
    return (first, second) if is_faster and fits else (whole,)


def _tiles(maps: tuple[Mapped, ...], divides: bool) -> list[Tile]:
    """List the tiles of one launch: operands of other orders in memory than their counterparts have `FIXED` alone."""
    turned = [of.is_transposed for of in maps]
    if turned[:2] != turned[2:]:
        return [tile for tile in WHOLE if (tile.rows, tile.cols) == FIXED[:2]]
    return [tile for tile in WHOLE if divides or tile.cols == CORE_COLS]


def _work(maps: tuple[Mapped, ...], sizes: tuple[int, int, int, int], processors: int) -> Work:
    of_a, of_b = maps
    _, rows, cols, depth = sizes
    moved = ELEMENT_BYTES * (rows * depth + depth * cols + rows * cols) / BYTES_PER_NS
    straddles = straddling(of_a.strides[2], of_b.strides[2], ELEMENT_BYTES)
    return Work(sizes, processors, STEP, moved, straddles, copied_rows(rows, whole=of_a.is_transposed))


def _time_whole(tile: Tile, works: list[Work]) -> float:
    """Return the time of both products in one launch, which copies whole boxes of rows."""
    first, second = (work._replace(copied_rows=TILE) for work in works)
    once = tile.time(-(-tile.count(first.sizes) // first.processors), 0, 0, 0, (False, False))
    return first.time(tile) + second.time(tile) - once
