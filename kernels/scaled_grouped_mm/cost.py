"""With which tile a grouped fp8 product runs on sm_90.

The coefficients are nanoseconds, fitted to 242 random layers or more with each kind of scales on an H200; decision 0085 has the result.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.group_costs import GroupWork, chosen_tile, read_group_tiles, usual_tile

__all__ = ["BLOCK_TILES", "TILES", "tile_of"]

TILES: Final = read_group_tiles("""
    rows  cols  start  wave  step  crowded  memory  groups
      64    64   5451   885    62      106     0.0   126.1
      64   128   5709   953   134      135    0.11   116.4
      64   256   6402  1078   351      113    0.19    63.8
     128   128   5538  1115   142      245    0.06    86.4
     128   256   7820  2083   182      536    0.06    84.4
""")
"""Tiles of `scaled_grouped_mm_sm90` with scales of rows and columns."""
BLOCK_TILES: Final = read_group_tiles("""
    rows  cols  start  wave  step  crowded  memory  groups
      64    64   4698   578   212       26     0.0   178.0
      64   128   4864   752   295       51    0.01   147.3
      64   256   5003  1077   363      140    0.12   156.5
     128   128   6050  1078   310      151     0.0     3.3
""")
"""Tiles with scales of blocks."""
TALL_FROM: Final = 64
"""Rows of each group on average from which tiles of 128 rows may pay."""
SOME_ROWS: Final = 48
"""Rows of each group on average above which tiles usually have 128 rows; from `MANY_ROWS` on, also 256 columns."""
MANY_ROWS: Final = 512
SOME_ROWS_OF_BLOCKS: Final = 16
"""With scales of blocks, rows of each group on average above which tiles usually have 256 columns."""
NARROW: Final = 128


def tile_of(sizes: tuple[int, int, int, int], processors: int, *, has_blocks: bool, fast: bool) -> tuple[int, int]:
    """Choose the rows and columns of the tile.

    `sizes`: (groups, M, N, K); `processors`: number of SMs; `has_blocks`: whether scales are those of blocks; `fast`:
    whether tensor cores add up.
    """
    if fast:
        return usual_tile(sizes)
    tiles, usual = (BLOCK_TILES, _usual_of_blocks(sizes)) if has_blocks else (TILES, _usual(sizes))
    return chosen_tile(tiles, GroupWork(*sizes, 1, processors), usual, TALL_FROM)


def _usual(sizes: tuple[int, int, int, int]) -> tuple[int, int]:
    groups, rows, cols, _ = sizes
    if rows >= groups * MANY_ROWS and cols > NARROW:
        return 128, 256
    return (128, 128) if rows > groups * SOME_ROWS else (64, 128)


def _usual_of_blocks(sizes: tuple[int, int, int, int]) -> tuple[int, int]:
    groups, rows, cols, _ = sizes
    return (64, 256) if rows > groups * SOME_ROWS_OF_BLOCKS and cols > NARROW else (64, 128)
