"""Estimated times of grouped products on sm_90 by tile, from the sizes that the host knows, without the ends of groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from nojit.kernels.products.tile_costs import BYTES_PER_NS, read_table

__all__ = ["GroupTile", "GroupWork", "chosen_tile", "read_group_tiles", "usual_tile"]

HALF: Final = 0.5
"""Share of the last wave that is idle, and of the last tile of a group, on average."""
READ: Final = 32
"""Groups that a cursor reads at once with tiles of `LOW` rows; with taller tiles it reads one."""
LOW: Final = 64
RESULT_BYTES: Final = 2
GAIN: Final = 0.97
"""Share of the usual tile's time below which another tile runs instead."""
LONGEST: Final = 450_000
"""The longest estimated time, in nanoseconds: of longer products too few were measured."""

SOME_ROWS: Final = 64
"""Rows of each group on average above which tiles usually have 256 columns; from `MANY_ROWS` on, also 128 rows."""
MANY_ROWS: Final = 1024
NARROW: Final = 128


class GroupTile(NamedTuple):
    """A tile, and the times of a product of such tiles in nanoseconds."""

    rows: int
    cols: int
    start: float
    """Time of a product without tiles."""
    wave: float
    """Time of a wave without steps: pipeline fill and epilogue."""
    step: float
    """Time of a step of K, 128 bytes of a row."""
    crowded: float
    """Time that a step takes longer if all SMs are busy."""
    memory: float
    """Share of the time to move operands and result once that other work does not hide."""
    groups: float
    """Time to read the ends of groups once: of `READ` groups, or of one with tall tiles."""


class GroupWork(NamedTuple):
    """A grouped product."""

    groups: int
    rows: int
    """Rows of all groups."""
    cols: int
    depth: int
    """Length of K."""
    element_bytes: int
    """Bytes of an element of the operands."""
    processors: int
    """Number of SMs."""

    @property
    def full(self) -> float:
        """Number of groups with rows, if each row's group is random."""
        return self.groups * (1 - (1 - 1 / self.groups) ** self.rows)

    def time(self, tile: GroupTile) -> float:
        """Return the estimated time with a tile."""
        full = self.full
        down = max(full, self.rows / tile.rows + HALF * full)
        load = down * -(-self.cols // tile.cols) / self.processors
        waves = max(1.0, load + HALF)
        steps = waves * -(-self.depth * self.element_bytes // 128)
        weights = full * self.cols * self.depth
        moved = self.element_bytes * (self.rows * self.depth + weights) + RESULT_BYTES * self.rows * self.cols
        reads = self.groups / READ if tile.rows == LOW else self.groups
        step = tile.step + tile.crowded * min(load, 1.0)
        moving = tile.memory * moved / BYTES_PER_NS
        return tile.start + waves * tile.wave + steps * step + moving + tile.groups * reads


def read_group_tiles(table: str) -> tuple[GroupTile, ...]:
    """Return the tiles of a table whose first line names the fields."""
    return tuple(GroupTile(**fields) for fields in read_table(table))


def chosen_tile(tiles: Iterable[GroupTile], work: GroupWork, usual: tuple[int, int], tall_from: int) -> tuple[int, int]:
    """Return the rows and columns of the tile with the least estimated time, or `usual` if that is nearly as fast.

    `tall_from`: rows of each group on average from which tiles of more than `LOW` rows take part.
    """
    times = {(tile.rows, tile.cols): work.time(tile) for tile in tiles}
    if times[usual] > LONGEST:
        return usual
    tall = work.rows >= tall_from * work.groups
    best = min((side for side in times if tall or side[0] == LOW), key=times.__getitem__)
    return best if times[best] < GAIN * times[usual] else usual


def usual_tile(sizes: tuple[int, int, int, int]) -> tuple[int, int]:
    """Choose the tile of 16-bit groups by the rows of each group on average. `sizes`: (groups, M, N, K)."""
    groups, rows, cols, _ = sizes
    if cols <= NARROW or rows <= groups * SOME_ROWS:
        return 64, 128
    return (128, 256) if rows >= groups * MANY_ROWS else (64, 256)
