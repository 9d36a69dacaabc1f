"""Coefficients of the estimated times of convolutions and input gradients on an H200, by kernel and tile: nanoseconds."""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.tile_costs import read_tiles

__all__ = [
    "COPY",
    "FEW",
    "FEW_DEPTHS",
    "FEW_GRAD",
    "FEW_ONES",
    "MAPPED",
    "PARTED",
    "POINTERS",
    "PRODUCT",
    "PRODUCT_SHARE",
    "STEP",
    "STRIPS",
    "STRIPS_KEPT",
    "ZEROS",
]

STEP: Final = 64
"""Elements of K of a step: channels of one tap, or of several."""
MAPPED: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64   128   5422   910   281        0     0      0     0    0.00         0      0     0      0.00000
     128    64   6133   621   291        0     0      0     0    0.00         0      0     0      0.00000
     128   128   5409  1789   401        0     0      0     0    0.00         0      0     0      0.00000
     128   192   4913  2270   582        0     0      0     0    0.00         0      0     0      0.00000
     128   256   3998  3048   723        0     0      0     0    0.00         0      0     0      0.00000
     192    64   6262   860   416        0     0      0     0    0.00         0      0     0      0.00000
     192   128   5503  2508   530        0     0      0     0    0.00         0      0     0      0.00000
     192   192   5589  2800   763        0     0      0     0    0.00         0      0     0      0.00000
""")
"""Tiles of `conv_sm90` for sums without split-K."""
PARTED: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   5422   800   200        0     0      0     0    0.00         0   2152    29      0.00300
      64   128   5422   910   281        0     0      0     0    0.00         0   2152    29      0.00300
     128   128   5409  1789   401        0     0      0     0    0.00         0   2152    29      0.00300
     128   192   4913  2270   582        0     0      0     0    0.00         0   2152    29      0.00300
     128   256   3998  3048   723        0     0      0     0    0.00         0   2152    29      0.00300
     192   128   5503  2508   530        0     0      0     0    0.00         0   2152    29      0.00300
""")
"""Tiles of `conv_sm90` for split-K parts."""
STRIPS: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    64   6133   621   680        0     0      0     0    0.00         0      0     0      0.00000
     128   128   5409  1789  1050        0     0      0     0    0.00         0      0     0      0.00000
""")
"""Tiles of `conv_halo_sm90`, which copies the weights in each step: a step is a column of three taps."""
(STRIPS_KEPT,) = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    64   6133   621   560        0     0      0     0    0.00         0      0     0      0.00000
""")
"""Its tile if all weights stay in shared memory."""
FEW: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32   6768   580   180        0     0      0     0    0.00         0   2152    29      0.00300
     128    32   6917   814   311        0     0      0     0    0.00         0   2152    29      0.00300
     128    64   7132   970   375        0     0      0     0    0.00         0   2152    29      0.00300
     128   128   6130  2142   537        0     0      0     0    0.00         0   2152    29      0.00300
     256    32   7576   625   244        0     0      0     0    0.00         0   2152    29      0.00300
     256    64   7131  1930   389        0     0      0     0    0.00         0   2152    29      0.00300
""")
"""Tiles of `conv_few` for results whose channels fill vectors."""
FEW_ONES: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   6768   900   300        0     0      0     0    0.00         0   2152    29      0.00300
""")
"""Its tile for other results."""
FEW_DEPTHS: Final = {(256, 32): 16, (256, 64): 32}
"""Elements of K of a step of these tiles of `conv_few`; the others take 64."""
FEW_GRAD: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    16   6917   600   280        0     0      0     0    0.00         0   2152    29      0.00300
      64    32   6768   580   180        0     0      0     0    0.00         0   2152    29      0.00300
      64    64   6768   900   300        0     0      0     0    0.00         0   2152    29      0.00300
     128    64   7132   970   375        0     0      0     0    0.00         0   2152    29      0.00300
""")
"""Tiles of `conv_few_grad`, the first for results whose channels do not fill vectors, too."""
POINTERS: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    16   9000  1000   500        0     0      0     0    0.20         0      0     0      0.00000
     128    64   9000  1500   700        0     0      0     0    0.20         0      0     0      0.00000
     128   128   9000  2500  1200        0     0      0     0    0.20         0      0     0      0.00000
""")
"""Tiles of `conv` for images whose channels do not fill vectors: a step is 64 products of single elements."""
COPY: Final = 2500
"""Time to copy a transposed weight, or a part of one."""
ZEROS: Final = 2500
"""Time to write zeros."""
PRODUCT: Final = 0
"""Time that a dense product of few channels takes longer than that of `nojit.kernels.bmm.cost`."""
PRODUCT_SHARE: Final = 1.0
"""And the factor."""
