"""How a 16-bit product runs on sm_90: its tile, its parts of K, whether programs share the last wave, whether b is copied.

A *schedule* says all of this. Its estimated time is linear in coefficients of its tile; `schedule_of` takes the schedule with the
least. The coefficients are nanoseconds, fitted to 1,488 random products on an H200, those of 192 columns to 1,095; `docs/gemm.md` has the result on
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from nojit.kernels.bmm.shared_wave import COLS, ROWS
from nojit.kernels.products.matrices import Mapped
from nojit.kernels.products.problem_shapes import TUNED
from nojit.kernels.products.splits import TILE

__all__ = ["Schedule", "schedule_of"]

Sizes = tuple[int, int, int, int]
"""(B, M, N, K)."""


class Schedule(NamedTuple):
    """How a product runs on sm_90."""

    rows: int
    """Rows of the tile."""
    cols: int
    """Columns of the tile."""
    parts: int = 1
    """Parts of K (split-K)."""
    is_shared: bool = False
    """Whether programs share the last wave (stream-K)."""
    is_copied: bool = False
    """Whether the right operand is copied to rows that start on lines of memory."""


class Tile(NamedTuple):
    """A tile, and the times of a product of such tiles."""

    rows: int
    cols: int
    start: int
    """Time of a product without tiles."""
    wave: int
    """Time of a wave without steps: pipeline fill and epilogue."""
    step: int
    """Time of a step of 64 of K."""
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


def _read(table: str) -> tuple[Tile, ...]:
    """Return the tiles of a table whose first line names the fields."""
    names, *rows = (line.split() for line in table.strip().splitlines())
    return tuple(Tile(**dict(zip(names, map(_number, row), strict=True))) for row in rows)


def _number(word: str) -> Any:
    return float(word) if "." in word else int(word)


TILES: Final = _read("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   2897   743    84       91    32     30    60    0.26        62   1391   169      0.00844
      64   128   2226  1205   114      139    36     85   114    0.33        53   1421   287      0.00323
      64   256   2722  1713   190      262     3    130   167    0.36         9   1420   226      0.00258
     128    64   3276   693   110      151   102     34   140    0.44         0   1379   368      0.00185
     128   128   3564  1196   182      180    90     78   166    0.35         0    911   332      0.00226
     128   192   4524  1710   266      236    22     59   114    0.30         0    879    25      0.00245
     128   256   4260  2257   412      212     2    132   174    0.26         0    254   461      0.00209
     192   128   3843  1928   256      258    59     62   163    0.20         0   2048   156      0.00196
     192   192   4732  2574   425      259    31     45   104    0.25         0   3107    27      0.00147
""")
"""The tiles of `bmm_tiles_sm90`."""
SHARED: Final = Tile(
    rows=ROWS,
    cols=COLS,
    start=49,
    wave=2174,
    step=692,
    crowded=0,
    left=5,
    right=96,
    both=192,
    memory=0.06,
    few_rows=0,
    merge=0,
    part=106,
    partial_sum=0.0,
)
"""The tile of `bmm_waves_sm90`; `part` is the time of a tile's sums."""
MEASURED: Final = frozenset((shape.batch, shape.m, shape.n, shape.k) for shape in TUNED)
"""Products that the tuned table of `bmm_sm90` has measured."""
PLAIN: Final = frozenset(Schedule(tile.rows, tile.cols) for tile in TILES if 192 not in {tile.rows, tile.cols})
"""Schedules with each tile of that table."""
EPILOGUE_TILES: Final = {(64, 64), (128, 128)}
"""Tiles whose kernels apply an epilogue."""
EPILOGUE_TILES_OF_FEW_ROWS: Final = {(64, 64), (64, 128)}
"""Those for few rows."""
UNSPLIT_TILES: Final = {(128, 64)}
"""Tiles without kernels for parts of K."""
SPLIT_TILES_OF_FEW_ROWS: Final = {(64, 64), (64, 128)}
"""Tiles with such kernels for few rows."""
PARTS: Final = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
STEP: Final = 64
LEAST_DEPTH: Final = 192
"""The least K of a part."""
MOST_SUMS: Final = 1 << 25
MOST_WAVES: Final = 2.5
"""K is divided only if the parts of all tiles run in so many waves."""
LEAST_STEPS: Final = 6
"""A program computes at least so many steps of a shared last wave."""
MOST_STEPS: Final = 1 << 31
"""The steps of all tiles of the last wave must be fewer."""
MOST_ROWS: Final = 1 << 30
"""An operand with more rows is not copied."""
COPY_NS: Final = 3257
"""Time of the launch of a copy."""
COPIED_PER_NS: Final = 2143
"""Rate at which an operand is copied, in bytes."""
BYTES_PER_NS: Final = 4300
ELEMENT_BYTES: Final = 2
SECTOR: Final = 16
"""Elements of a sector of memory."""
VECTOR: Final = 8


def schedule_of(
    maps: tuple[Mapped, Mapped], sizes: Sizes, processors: int, *, copied_rows: int = TILE, has_epilogue: bool = False
) -> Schedule | None:
    """Choose how a product runs; return None if the tuned table has measured which tile is fastest.

    Args:
        maps: TMA descriptions of the left and the right operand.
        sizes: (B, M, N, K).
        processors: number of SMs.
        copied_rows: rows of a box of the left operand.
        has_epilogue: whether the product has an epilogue.
    """
    batch, rows, cols, depth = sizes
    moved = ELEMENT_BYTES * batch * (rows * depth + depth * cols + rows * cols) / BYTES_PER_NS
    left, right = (bool(of.strides[2] % SECTOR) for of in maps)
    work = _Work(sizes, processors, -(-depth // STEP), moved, (left, right), copied_rows)
    best = min(work.schedules(has_epilogue=has_epilogue))
    if (
        sizes in MEASURED
        and best[1] in PLAIN
        and copied_rows == TILE
        and not maps[0].is_transposed
        and not has_epilogue
    ):
        return None
    _, matrices, height, width = maps[1].shape
    if not right or width % VECTOR or matrices * height > MOST_ROWS:
        return best[1]
    even = min(work._replace(straddles=(left, False)).schedules(has_epilogue=has_epilogue, splits=False))
    copy = COPY_NS + matrices * height * width * ELEMENT_BYTES / COPIED_PER_NS
    return even[1]._replace(is_copied=True) if even[0] + copy < best[0] else best[1]


class _Work(NamedTuple):
    """A product, as the estimates of its schedules see it."""

    sizes: Sizes
    processors: int
    steps: int
    """Steps of K."""
    moved: float
    """Time to move operands and result."""
    straddles: tuple[bool, bool]
    """Whether rows of the left and the right operand straddle sectors."""
    copied_rows: int
    """Rows of a box of the left operand."""

    def schedules(self, *, has_epilogue: bool, splits: bool = True) -> Iterator[tuple[float, Schedule]]:
        """List the schedules of the product, with their times.

        Args:
            has_epilogue: whether an epilogue follows.
            splits: whether K may be divided.
        """
        few_rows = self.copied_rows < TILE
        epilogue_tiles = EPILOGUE_TILES_OF_FEW_ROWS if few_rows else EPILOGUE_TILES
        for tile in TILES:
            side = tile.rows, tile.cols
            if self.sizes[1] <= TILE < tile.rows:
                continue
            if not has_epilogue or side in epilogue_tiles:
                yield self.time(tile), Schedule(*side)
            if splits and side not in UNSPLIT_TILES and (not few_rows or side in SPLIT_TILES_OF_FEW_ROWS):
                for parts in PARTS:
                    if not self.can_divide(tile, parts):
                        break
                    yield self.time_in_parts(tile, parts), Schedule(*side, parts)
        if not has_epilogue and self.can_share():
            yield self.time_shared(), Schedule(SHARED.rows, SHARED.cols, is_shared=True)

    def time(self, tile: Tile, parts: int = 1) -> float:
        """Return the time of a launch with a tile, which computes all parts of K."""
        count = tile.count(self.sizes) * parts
        waves = -(-count // self.processors)
        steps = waves * -(-self.steps // parts)
        saved = tile.few_rows * (TILE - self.copied_rows) / TILE
        load = min(count / self.processors, 1)
        return tile.time(waves, steps, load, self.moved, self.straddles) - saved * steps

    def can_divide(self, tile: Tile, parts: int) -> bool:
        """Return whether K may be divided: each part stays deep, and the sums and waves few."""
        batch, rows, cols, depth = self.sizes
        count = tile.count(self.sizes) * parts
        return (
            depth >= LEAST_DEPTH * parts
            and parts * batch * rows * cols <= MOST_SUMS
            and count <= MOST_WAVES * self.processors
        )

    def time_in_parts(self, tile: Tile, parts: int) -> float:
        """Return the time of a product whose K is divided."""
        batch, rows, cols, _ = self.sizes
        merge = tile.merge + parts * tile.part + parts * batch * rows * cols * tile.partial_sum
        return self.time(tile, parts) + merge

    def can_share(self) -> bool:
        """Return whether programs can share the last wave: it follows a whole one."""
        waves, rest = divmod(SHARED.count(self.sizes), self.processors)
        return waves > 0 and rest > 0 and self.steps * self.processors < MOST_STEPS

    def time_shared(self) -> float:
        """Return the time of a product whose programs share the last wave."""
        waves, rest = divmod(SHARED.count(self.sizes), self.processors)
        steps = waves * self.steps + max(rest * self.steps / self.processors, LEAST_STEPS)
        merge = SHARED.merge + SHARED.part * (self.processors + rest)
        return SHARED.time(waves, steps, 1, self.moved, self.straddles) + merge
