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
      64   128   1806  1761   158      167    76      1   153    0.00         0      0     0      0.00000
     128    64   3488  1599   121      192   140     44   157    0.00         0      0     0      0.00000
     128   128   3940  1628   214      285    19     21   140    0.00         0      0     0      0.00000
     128   192   3927  1529   338      373    64     45   187    0.43         0      0     0      0.00000
     128   256   3597  2730   410      328     0      5   132    0.00         0      0     0      0.00000
     192    64   3889  1241   198      221   147     82   266    0.28         0      0     0      0.00000
     192   128   4300  1791   345      262    52    253   337    0.00         0      0     0      0.00000
     192   192   3231  3341   427      363   139    189   367    0.05         0      0     0      0.00000
""")
"""Tiles of `conv_sm90` for sums without split-K."""
PARTED: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   2141  2167     0      234    75      6   192    0.32         0   1201   254      0.00353
     128   128   3609  2443     0      522   260    155   330    1.20         0   1683   190      0.00088
     128   192   3804  2350   101      488   294    247   270    1.48         0   1851   192      0.00119
     128   256   3130  2471   729       59   178      0   171    1.01         0   1924   109      0.00189
""")
"""Tiles of `conv_sm90` for split-K parts."""
STRIPS: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    64   1240  2011   368      468   153     62   259    2.54         0      0     0      0.00000
     128   128   6334  4116  1154       21     0      0   315    0.08         0      0     0      0.00000
""")
"""Tiles of `conv_halo_sm90`, which copies the weights in each step: a step is a column of three taps."""
(STRIPS_KEPT,) = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    64   5349     0   352      290   229      0   154    1.61         0      0     0      0.00000
""")
"""Its tile if all weights stay in shared memory."""
FEW: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32      0  1194   227        0    46    108    50    0.00         0   2781   203      0.00045
     128    32   1987  1011   266        0   161    142   185    0.16         0   2404   131      0.00941
     128    64   2740   643   356        0   141      0   174    0.33         0   3397   187      0.00393
     128   128   2616  2026   535        0   148     14    19    0.48         0   2012   155      0.00370
     256    32   3009   337   174        0    81     84   165    0.72         0   1318   399      0.00254
     256    64   3904   623   354        0   162     37   247    1.04         0    794   625      0.00273
""")
"""Tiles of `conv_few` for results whose channels fill vectors."""
FEW_ONES: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   1942  1122   241        3     0      0    34    0.00         0      3   337      0.02910
""")
"""Its tile for other results."""
FEW_DEPTHS: Final = {(256, 32): 16, (256, 64): 32}
"""Elements of K of a step of these tiles of `conv_few`; the others take 64."""
FEW_GRAD: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    16      0  1529   275        0   224      0    16    0.00         0   6842     0      0.03971
      64    32   2668   849   121      109   208     19   170    0.03         0   1958   102      0.01241
      64    64   3844   695   353        0    53     34     5    2.64         0   2866    60      0.00242
     128    64   2299  1991   518        2    50     82   138    0.00         0   4279    27      0.00340
      64    16   2672   717   192        0    79      0     0    0.00         0   2212   178      0.00674
     128    32   2970  1767   340        0    40     72   114    0.20         0   2358    88      0.00135
""")
"""Tiles of `conv_few_grad`, the first for results whose channels do not fill vectors, too."""
POINTERS: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    16  12172  1793   514        2     1      0     0    0.20         0      0     0      0.00000
     128    64  15380  10040  1124      108    34      0     1    0.32         0      0     0      0.00000
     128   128  23095  9556  1354       37     6      0    14    0.40         0      0     0      0.00000
""")
"""Tiles of `conv` for images whose channels do not fill vectors: a step is 64 products of single elements."""
COPY: Final = 5079
"""Time to copy a transposed weight, or a part of one."""
ZEROS: Final = 1964
"""Time to write zeros."""
PRODUCT: Final = 0
"""Time that a dense product of few channels takes longer than that of `nojit.kernels.bmm.cost`."""
PRODUCT_SHARE: Final = 0.99
"""And the factor."""
