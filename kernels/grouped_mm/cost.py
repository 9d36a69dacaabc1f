"""With which tile a grouped product of 16-bit operands runs on sm_90.

The coefficients are nanoseconds, fitted to 245 random layers on an H200; decision 0085 has the result.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.group_costs import GroupWork, chosen_tile, read_group_tiles, usual_tile

__all__ = ["TILES", "tile_of"]

TILES: Final = read_group_tiles("""
    rows  cols  start  wave  step  crowded  memory  groups
      64    64   4381   484   102       43    0.15   189.7
      64   128   4252   546   118       50     0.4   161.6
      64   256   4215   798   234       67    0.43   168.5
     128   128   1875   865     0      363     0.0    82.1
     128   256   3473  1441   487      162    0.08    82.4
""")
"""The tiles of `grouped_mm_sm90`."""
ELEMENT_BYTES: Final = 2
TALL_FROM: Final = 128
"""Rows of each group on average from which tiles of 128 rows may pay: programs that share columns drift apart at cut tiles."""


def tile_of(sizes: tuple[int, int, int, int], processors: int) -> tuple[int, int]:
    """Choose the rows and columns of the tile.

    `sizes`: (groups, M, N, K); `processors`: number of SMs.
    """
    return chosen_tile(TILES, GroupWork(*sizes, ELEMENT_BYTES, processors), usual_tile(sizes), TALL_FROM)
