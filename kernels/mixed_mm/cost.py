"""With which tile, and in how many parts of K, a product with 4-bit weights runs on sm_90, or whether the kernel of few rows is faster.

The coefficients are nanoseconds, fitted to 1,000 random products on an H200, those of few rows to 372; decisions 0083 and 0084 have
the result on others.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.tile_costs import BYTES_PER_NS, Tiling, Work, read_tiles

__all__ = ["DIVIDED", "FEW_COLS", "TILES", "few_is_faster", "tiling_of"]

TILES: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   3211   739   181       35     0      0     0    0.21         0   1145   187      0.00308
      64   128   3537   812   269       41     0      0     0    0.16         0   1302   164      0.00274
     128    64   3679   726   205       39     0      0     0    0.45         0   1183   167      0.00261
     128   128   4336   907   336       62     0      0     0    0.09         0   1113   149      0.00228
     128   192   5324  1226   453       76     0      0     0     0.0         0    779    94      0.00208
     192   128   5194  1626   446       76     0      0     0    0.02         0      0   134      0.00198
     256   128   4601  2070   522       78     0      0     0    0.13         0    238    83      0.00216
""")
"""The tiles of `mixed_mm_tiles_sm90`."""
DIVIDED: Final = tuple((tile.rows, tile.cols) for tile in TILES)
"""Rows and columns of those that have kernels for parts of K: all."""
STEP: Final = 64
ELEMENT_BYTES: Final = 2
WEIGHTS: Final = 2
"""Weights in a byte."""
FEW_COLS: Final = 32
"""Columns of the narrowest tile of `mixed_mm_few`."""
FEW_PROGRAMS: Final = 2
"""Programs of it that an SM runs at once."""
FEW_START: Final = 4682
"""Time of a product by `mixed_mm_few` without its steps."""
FEW_DEEP: Final = 1.198
"""Time of a row of b in a wave."""
FEW_WEIGHT: Final = 0.0001647
"""Time of a weight."""
FEW_MERGE: Final = 2803
"""Time of the launch that adds up parts of K."""


def tiling_of(rows: int, cols: int, depth: int, processors: int) -> Tiling:
    """Choose the tile and the parts of K of a product.

    `depth`: length of K; `processors`: number of SMs.
    """
    return _fastest(rows, cols, depth, processors)[1]


def few_is_faster(sizes: tuple[int, int, int], parts: int, processors: int) -> bool:
    """Return whether `mixed_mm_few` is estimated to be faster than the fastest tile, for 17 to 32 rows.

    `sizes`: (M, N, K); `parts`: its parts of K; `processors`: number of SMs.
    """
    rows, cols, depth = sizes
    waves = -(-parts * -(-cols // FEW_COLS) // (FEW_PROGRAMS * processors))
    time = FEW_START + FEW_DEEP * waves * depth / parts + FEW_WEIGHT * cols * depth + FEW_MERGE * (parts > 1)
    return time <= _fastest(rows, cols, depth, processors)[0]


def _fastest(rows: int, cols: int, depth: int, processors: int) -> tuple[float, Tiling]:
    moved = (ELEMENT_BYTES * rows * (depth + cols) + depth * cols / WEIGHTS) / BYTES_PER_NS
    work = Work((1, rows, cols, depth), processors, STEP, moved, (False, False))
    return min(work.tilings(TILES, DIVIDED))
