"""Coefficients of the estimated times of weight gradients on an H200, by kernel and tile.

They are nanoseconds, fitted to random images and volumes; decision 0095 has the result.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.tile_costs import read_tiles

__all__ = ["BOX", "FEW", "MAPPED", "REORDERED", "STRIPS"]

BOX: Final = 64
"""Positions of a step."""
REORDERED: Final = 0.044
"""Time to write an element of the weight in another order, as after unfolding."""
FEW: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32   2448   488   280        0     0      0     0    0.09         0   2235    27      0.00281
      64    64   3772     0   318        0     0      0     0    0.00         0   2235    27      0.00281
     128    32   4503   661   362        0     0      0     0    0.56         0   2235    27      0.00281
     256    64   1194  4089   762        0     0      0     0    0.18         0   2235    27      0.00281
""")
"""Tiles of `conv_few_weight_grad`: taps and channels of the input, channels of the output."""
MAPPED: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64   128   1820  2155   176      223     0      0     0    0.02         0   2235    27      0.00281
     128   128   4072     0   341      156     0      0     0    0.16         0   2235    27      0.00281
     128   256   3578  2018   592      228     0      0     0    0.08         0   2235    27      0.00281
""")
"""Tiles of `conv_weight_grad_sm90`: channels of the output, taps and padded channels of the input."""
STRIPS: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64   192    859  3206   192       49    28     31    75    0.00         0   2235    27      0.00281
     128   192    885  2469   407       40    25      0    35    0.00         0   2235    27      0.00281
      64   384   2438  3181   394       38     0     20     0    0.00         0   2235    27      0.00281
      64   320   1680  1819   386        0     0      0     0    0.00         0   2235    27      0.00281
""")
"""Tiles of `conv_weight_grad_halo_sm90`: channels of the output, and 64 or 128 of the input at all taps of a column."""
