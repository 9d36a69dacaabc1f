"""Estimated times of products on sm_90 by tile: linear in coefficients of the tile, in nanoseconds."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, Final, NamedTuple

from nojit.kernels.products.agreed_sizes import LEAST_SHARED_STEPS
from nojit.kernels.products.shared_wave import MOST_STEPS
from nojit.kernels.products.splits import TILE

__all__ = ["BYTES_PER_NS", "MOST_SUMS", "Sizes", "Tile", "Tiling", "Work", "read_table", "read_tiles", "straddling"]

Sizes = tuple[int, int, int, int]
"""(B, M, N, K)."""

PARTS: Final = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
LEAST_STEPS: Final = 3
"""The least steps of a part of K."""
MOST_SUMS: Final = 1 << 25
"""The most partial sums of all parts."""
MOST_WAVES: Final = 2.5
"""K is divided only if the parts of all tiles run in so many waves."""
BYTES_PER_NS: Final = 4300
SECTOR_BYTES: Final = 32
"""Bytes of a sector of memory."""


class Tiling(NamedTuple):
    """The tile of a product, and its parts of K (split-K)."""

    rows: int
    cols: int
    parts: int


class Tile(NamedTuple):
    """A tile, and the times of a product of such tiles."""

    rows: int
    cols: int
    start: int
    """Time of a product without tiles."""
    wave: int
    """Time of a wave without steps: pipeline fill and epilogue."""
    step: int
    """Time of a step of K, 128 bytes of the left operand."""
    crowded: int
    """Time that a step takes longer if all SMs are busy."""
    left: int
    """Time that rows of the left operand alone add to a step if they straddle sectors of memory."""
    right: int
    """Time that those of the right operand alone add."""
    both: int
    """Time that those of both operands add."""
    memory: float
    """Share of the time to move operands and result once that other work does not hide."""
    few_rows: int
    """Time that a step saves if no row of the left operand is copied."""
    merge: int
    """Time of the kernel that adds up the parts of K, or the sums of the last wave."""
    part: int
    """Time that each part of K adds to it."""
    partial_sum: float
    """Time that each partial sum adds to it."""

    def count(self, sizes: Sizes) -> int:
        """Return the number of tiles of a product."""
        batch, rows, cols, _ = sizes
        return batch * -(-rows // self.rows) * -(-cols // self.cols)

    def time(self, waves: int, steps: float, load: float, moved: float, straddles: tuple[bool, bool]) -> float:
        """Return the time of a product in one launch.

        Args:
            waves: number of waves.
            steps: steps of all waves.
            load: share of the SMs that are busy.
            moved: time to move operands and result.
            straddles: whether rows of the left and the right operand straddle sectors.
        """
        left, right = straddles
        uneven = self.both if left and right else self.left if left else self.right if right else 0
        step = self.step + self.crowded * load + uneven
        return self.start + waves * self.wave + steps * step + self.memory * moved


def read_tiles(table: str) -> tuple[Tile, ...]:
    """Return the tiles of a table whose first line names the fields."""
    return tuple(Tile(**fields) for fields in read_table(table))


def read_table(table: str) -> Iterator[dict[str, Any]]:
    """Yield the numbers of each row of a table, by the names in its first line."""
    names, *rows = (line.split() for line in table.strip().splitlines())
    for row in rows:
        yield dict(zip(names, map(_number, row), strict=True))


def _number(word: str) -> Any:
    return float(word) if "." in word else int(word)


def straddling(left: int, right: int, element_bytes: int) -> tuple[bool, bool]:
    """Return whether rows of the left and the right operand straddle sectors of memory.

    `left`, `right`: distances of rows, in elements.
    """
    return left * element_bytes % SECTOR_BYTES != 0, right * element_bytes % SECTOR_BYTES != 0


class Work(NamedTuple):
    """A product, as the estimates of its schedules see it."""

    sizes: Sizes
    processors: int
    deep: int
    """Elements of K of a step."""
    moved: float
    """Time to move operands and result."""
    straddles: tuple[bool, bool]
    """Whether rows of the left and the right operand straddle sectors."""
    copied_rows: int = TILE
    """Rows of a box of the left operand."""

    @property
    def steps(self) -> int:
        """Steps of K."""
        return -(-self.sizes[3] // self.deep)

    def time(self, tile: Tile, parts: int = 1) -> float:
        """Return the time of a launch with a tile, which computes all parts of K."""
        count = tile.count(self.sizes) * parts
        waves = -(-count // self.processors)
        steps = waves * -(-self.steps // parts)
        saved = tile.few_rows * (TILE - self.copied_rows) / TILE
        load = min(count / self.processors, 1)
        return tile.time(waves, steps, load, self.moved, self.straddles) - saved * steps

    def time_in_parts(self, tile: Tile, parts: int) -> float:
        """Return the time of a product whose K is divided."""
        batch, rows, cols, _ = self.sizes
        merge = tile.merge + parts * tile.part + parts * batch * rows * cols * tile.partial_sum
        return self.time(tile, parts) + merge

    def can_share(self, tile: Tile) -> bool:
        """Return whether programs can share the last wave of a tile: it follows a whole one."""
        waves, rest = divmod(tile.count(self.sizes), self.processors)
        return waves > 0 and rest > 0 and self.steps * self.processors < MOST_STEPS

    def time_shared(self, tile: Tile, together: int = 1) -> float:
        """Return the time of a product whose programs share the last wave; they divide it between each `together` steps."""
        waves, rest = divmod(tile.count(self.sizes), self.processors)
        steps = waves * self.steps + max(rest * self.steps / self.processors, LEAST_SHARED_STEPS * together)
        merge = tile.merge + tile.part * (self.processors + rest)
        return tile.time(waves, steps, 1, self.moved, self.straddles) + merge

    def divisions(self, tile: Tile) -> Iterator[int]:
        """List the numbers of parts of K with a tile: each part stays deep, and the sums and waves few."""
        batch, rows, cols, depth = self.sizes
        count = tile.count(self.sizes)
        for parts in PARTS:
            if (
                depth < LEAST_STEPS * self.deep * parts
                or parts * batch * rows * cols > MOST_SUMS
                or count * parts > MOST_WAVES * self.processors
            ):
                return
            yield parts

    def tilings(self, tiles: Iterable[Tile], divided: Container[tuple[int, int]]) -> Iterator[tuple[float, Tiling]]:
        """List the tiles of the product with their times, in parts of K if `divided` has the tile's rows and columns."""
        for tile in tiles:
            yield self.time(tile), Tiling(tile.rows, tile.cols, 1)
            if (tile.rows, tile.cols) in divided:
                for parts in self.divisions(tile):
                    yield self.time_in_parts(tile, parts), Tiling(tile.rows, tile.cols, parts)
