"""Coefficients of the estimated times of convolutions and input gradients on an H200, by kernel and tile: nanoseconds."""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.tile_costs import read_tiles

__all__ = [
    "COPY",
    "FEW",
    "FEW_DEEP",
    "FEW_DEPTHS",
    "FEW_GRAD",
    "FEW_ONES",
    "MAPPED",
    "PARTED",
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
      64   128   1883  1599   128      163   162     65   196    0.00         0      0     0      0.00000
     128    64   3472  1391    81      227   141     98   177    0.11         0      0     0      0.00000
     128   128   3869  2032   162      313     0      9   203    0.01         0      0     0      0.00000
     128   192   3751  1675   323      381    40     28   149    0.43         0      0     0      0.00000
     128   256   3197  2889   484      262    12    107    83    0.03         0      0     0      0.00000
     192    64   4374  1396   154      278    78      0   261    0.35         0      0     0      0.00000
     192   128   4646  1714   383      221    38      0   238    0.15         0      0     0      0.00000
     192   192   2833  3955   476      278   126    109   298    0.17         0      0     0      0.00000
""")
"""Tiles of `conv_sm90` for sums without split-K."""
PARTED: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   1575  2177    63      125    74     16   159    0.00         0   1352   236      0.00433
     128   128   3388  2829   107      402   129     50   271    0.31         0   1800   198      0.00086
     128   192   4403  3980   430      218   100     44    37    0.47         0   1978   171      0.00066
     128   256   4529  5796   289      210   105     38   358    0.31         0   2012    38      0.00164
""")
"""Tiles of `conv_sm90` for split-K parts."""
STRIPS: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    64    472  2372   369      539   126     12   397    0.57         0      0     0      0.00000
     128   128   4026  3033  1096      197     0      0   197    0.33         0      0     0      0.00000
""")
"""Tiles of `conv_halo_sm90`, which copies the weights in each step: a step is a column of three taps."""
(STRIPS_KEPT,) = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    64   3192     0   551       31   128     63   274    0.68         0      0     0      0.00000
""")
"""Its tile if all weights stay in shared memory."""
FEW: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32   1290   681   229        0    51     36    70    0.05         0   2514   195      0.00223
     128    32   2311   944   256        0   120     68   152    0.34         0   1797   142      0.00952
     128    64   2857   653   391        0    75     25   155    0.14         0   2966   176      0.00323
     128   128   2632  1907   521        0   109      0    60    0.48         0   2314   186      0.00188
     256    32   2816   465   203        0    39     28   140    0.69         0   1651   297      0.00292
     256    64   3964   727   370        0   170     31   226    0.85         0   1549   260      0.00229
""")
"""Tiles of `conv_few` for images and results whose channels fill vectors."""
FEW_DEEP: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32   1290   681   229        0    51     36    70    0.05         0   2514   195      0.00223
     128    32   2311   944   256        0   120     68   152    0.34         0   1797   142      0.00952
     128    64   2857   653   391        0    75     25   155    0.14         0   2966   176      0.00323
     128   128   2632  1907   521        0   109      0    60    0.48         0   2314   186      0.00188
     256    32   2816   465   203        0    39     28   140    0.69         0   1651   297      0.00292
     256    64   3964   727   370        0   170     31   226    0.85         0   1549   260      0.00229
""")
"""The same for volumes, whose variants compute more addresses."""
FEW_ONES: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   2027  1334   253        0     0     48     0    0.06         0   2544   153      0.00948
""")
"""Its tile for other results."""
FEW_DEPTHS: Final = {(256, 32): 16, (256, 64): 32}
"""Elements of K of a step of these tiles of `conv_few`; the others take 64."""
FEW_GRAD: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    16      0  1869   245        0   174    109    59    0.00         0   5118   298      0.03030
      64    32   2630  1058   231        0   110     21    56    0.00         0   2383   153      0.00859
      64    64   4390  1051   357        0     0     56    72    0.26         0   1652   246      0.00294
     128    64   3911  1378   478        0    85      6    80    0.46         0   3024   107      0.00423
      64    16   2768   660   200        0    77      0     5    0.00         0   2082   203      0.00556
     128    32   2806  1958   320        0   134    102   159    0.03         0   1989   138      0.00202
""")
"""Tiles of `conv_few_grad`, the first for results whose channels do not fill vectors, too."""
COPY: Final = 4433
"""Time to copy a weight that is transposed, by planes, or a part of one."""
ZEROS: Final = 2677
"""Time to write zeros."""
PRODUCT: Final = 0
"""Time that a dense product of few channels takes longer than that of `nojit.kernels.bmm.cost`."""
PRODUCT_SHARE: Final = 1.03
"""And the factor."""
