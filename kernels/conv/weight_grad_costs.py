"""Coefficients of the estimated times of weight gradients on an H200, by kernel and tile.

They are nanoseconds, fitted to random images; docs/conv.md has the result on others.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.tile_costs import read_tiles

__all__ = ["BOX", "FEW", "MAPPED"]

BOX: Final = 64
"""Positions of a step."""
FEW: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32   4468     0   246        0     0      0     0    0.36         0   2152    29      0.00300
      64    64   4067     0   321        0     0      0     0    0.00         0   2152    29      0.00300
     128    32   4607   815   376        0     0      0     0    0.46         0   2152    29      0.00300
     256    64   6007     0   814        0     0      0     0    0.10         0   2152    29      0.00300
""")
"""Tiles of `conv_few_weight_grad`: taps and channels of the input, channels of the output."""
MAPPED: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64   128   1550  1655   329      135     0      0     0    0.34         0   3000     0      0.00300
     128   128   3985     0   372      179     0      0     0    0.17         0   3000     0      0.00300
     128   256   6893   392   313      569     0      0     0    0.32         0   3000     0      0.00300
""")
"""Tiles of `conv_weight_grad_sm90`: channels of the output, taps and padded channels of the input."""
