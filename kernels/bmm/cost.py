"""How a 16-bit product runs on sm_90: its tile, its parts of K, whether programs share the last wave, whether b is copied.

A *schedule* says all of this. Its estimated time is linear in coefficients of its tile; `schedule_of` takes the schedule with the
least. The coefficients are nanoseconds, fitted to 1,488 random products on an H200, those of 192 columns to 1,095; decisions 0080 and 0082 have the
result on others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from nojit.kernels.products.matrices import Mapped
from nojit.kernels.products.problem_shapes import TUNED
from nojit.kernels.products.shared_wave import COLS, ROWS
from nojit.kernels.products.splits import TILE
from nojit.kernels.products.tile_costs import BYTES_PER_NS, Sizes, Tile, Work, read_tiles, straddling

__all__ = ["ELEMENT_BYTES", "STEP", "TILES", "Schedule", "fastest", "fastest_sums", "schedule_of"]


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


TILES: Final = read_tiles("""
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
STEP: Final = 64
MOST_ROWS: Final = 1 << 30
"""An operand with more rows is not copied."""
COPY_NS: Final = 3257
"""Time of the launch of a copy."""
COPIED_PER_NS: Final = 2143
"""Rate at which an operand is copied, in bytes per ns."""
ELEMENT_BYTES: Final = 2
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
    left, right = straddling(maps[0].strides[2], maps[1].strides[2], ELEMENT_BYTES)
    work = Work(sizes, processors, STEP, moved, (left, right), copied_rows)
    best = min(_schedules(work, has_epilogue=has_epilogue))
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
    even = min(_schedules(work._replace(straddles=(left, False)), has_epilogue=has_epilogue, splits=False))
    copy = COPY_NS + matrices * height * width * ELEMENT_BYTES / COPIED_PER_NS
    return even[1]._replace(is_copied=True) if even[0] + copy < best[0] else best[1]


def fastest(work: Work) -> tuple[float, Schedule]:
    """Choose how a product without epilogue runs, its operands as they are; return its time, with the schedule."""
    return min(_schedules(work, has_epilogue=False))


def fastest_sums(work: Work) -> tuple[float, Schedule]:
    """Choose how a product writes fp32 sums, in one part of K or in several; return its time, with that to add its sums up."""
    return min(_sums(work))


def _sums(work: Work) -> Iterator[tuple[float, Schedule]]:
    batch, rows, cols, _ = work.sizes
    for tile in TILES:
        if rows <= TILE < tile.rows or not _divides(tile, work):
            continue
        for parts in (1, *work.divisions(tile)):
            sums = parts * (tile.part + batch * rows * cols * tile.partial_sum)
            yield work.time(tile, parts) + sums, Schedule(tile.rows, tile.cols, parts)


def _divides(tile: Tile, work: Work) -> bool:
    """Return whether a tile has a kernel for parts of K."""
    side = tile.rows, tile.cols
    return side not in UNSPLIT_TILES and (work.copied_rows == TILE or side in SPLIT_TILES_OF_FEW_ROWS)


def _schedules(work: Work, *, has_epilogue: bool, splits: bool = True) -> Iterator[tuple[float, Schedule]]:
    """List the schedules of a product, with their times.

    Args:
        work: the product.
        has_epilogue: whether an epilogue follows.
        splits: whether K may be divided.
    """
    few_rows = work.copied_rows < TILE
    epilogue_tiles = EPILOGUE_TILES_OF_FEW_ROWS if few_rows else EPILOGUE_TILES
    for tile in TILES:
        side = tile.rows, tile.cols
        if work.sizes[1] <= TILE < tile.rows:
            continue
        if not has_epilogue or side in epilogue_tiles:
            yield work.time(tile), Schedule(*side)
        if splits and _divides(tile, work):
            for parts in work.divisions(tile):
                yield work.time_in_parts(tile, parts), Schedule(*side, parts)
    if not has_epilogue and work.can_share(SHARED):
        yield work.time_shared(SHARED), Schedule(SHARED.rows, SHARED.cols, is_shared=True)
