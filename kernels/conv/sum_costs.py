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
    "FEW_GRAD_DEEP",
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
      64   128   2434  1534    85      196   129     45   189    0.12         0      0     0      0.00000
     128    64   3453  1306    87      225    93     46   187    0.09         0      0     0      0.00000
     128   128   2760  2231   186      270    73     23   228    0.18         0      0     0      0.00000
     128   192   3775  2562   297      305   118    112   114    0.20         0      0     0      0.00000
     128   256   3878  2878   424      229   120     99   150    0.42         0      0     0      0.00000
     192    64   4421   680   185      294   112     15   204    0.61         0      0     0      0.00000
     192   128   4895  2064   319      228   208     53   270    0.13         0      0     0      0.00000
     192   192   4482  2546   426      316   172     65   229    0.36         0      0     0      0.00000
""")
"""Tiles of `conv_sm90` for sums without split-K."""
PARTED: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   1267  2982    82      101    87      5   141    0.00         0   1305   247      0.00287
     128   128   2916  4555    92      383   207      4   182    0.47         0   1652   167      0.00000
     128   192   3743  4498   240      417    99     75   128    0.80         0   1858   195      0.00000
     128   256   2286  6656   333      373   157    101   282    0.37         0   1554   236      0.00058
""")
"""Tiles of `conv_sm90` for split-K parts."""
STRIPS: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    64   1451  1602   305      465   236     98   482    0.00         0      0     0      0.00000
     128   128   3910  2632  1058      201   246     95   397    0.00         0      0     0      0.00000
""")
"""Tiles of `conv_halo_sm90`, which copies the weights in each step: a step is a column of three taps."""
(STRIPS_KEPT,) = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    64   3499     0   517      113   136      0   246    0.41         0      0     0      0.00000
""")
"""Its tile if all weights stay in shared memory."""
FEW: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32   2006   461   243        0    33     30    50    0.31         0   1662   167      0.00092
     128    32   3139   590   253        0   101     65   168    0.32         0   1203   135      0.01006
     128    64   3073   644   355        0    84      1   126    0.45         0   3545   181      0.00400
     128   128   2745  1676   487        0   104     34    79    0.42         0   2804   155      0.00271
     256    32   3359     0   178        0    95     41   172    1.28         0   2323   212      0.00357
     256    64   3642  1985   318        0   160      7   197    0.83         0   2454   349      0.00218
""")
"""Tiles of `conv_few` for images and results whose channels fill vectors."""
FEW_DEEP: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    32   1567   931   209        0    66      0    61    0.00         0   2590   149      0.00171
     128    32   3947  1464   235        0   132      0    99    0.02         0    609    61      0.01596
     128    64   3830   980   336        0   102     12   119    0.59         0   4662    33      0.00369
     128   128    846  3909   616        9    71     30     0    0.63         0   3108    85      0.00128
     256    32   3324   778   221        0    39      0   147    0.78         0   2988   205      0.00295
     256    64   4235  1455   401        0   158      0   182    0.69         0   4197   243      0.00160
""")
"""The same for volumes, whose variants compute more addresses."""
FEW_ONES: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   1484  2893   251        0     0      0    33    0.00         0     30   373      0.01809
""")
"""Its tile for other results."""
FEW_DEPTHS: Final = {(256, 32): 16, (256, 64): 32}
"""Elements of K of a step of these tiles of `conv_few`; the others take 64."""
FEW_GRAD: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    16   1300  1580   218        0   152    114    74    0.00         0   4644   291      0.03555
      64    32   2734   911   205        0   111     23    48    0.04         0   2391   184      0.00923
      64    64   4154   823   280        0     0     57   127    0.58         0   2522   164      0.00249
     128    64   3347  1352   411        0    82      0   122    0.40         0   3835   145      0.00389
      64    16   2131   775   183        0   102      0     0    0.00         0   2766   223      0.00409
     128    32   2791  1562   301        0   120     82   125    0.09         0   2299   170      0.00134
""")
"""Tiles of `conv_few_grad`, the first for results whose channels do not fill vectors, too."""
FEW_GRAD_DEEP: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128    16   3990  1700   160        0   136     83   174    0.14         0   2300   120      0.04655
      64    32   3222  1000   220        0     0      0    41    0.12         0   3243   173      0.01295
      64    64   4206  1100   300        0     0      8    12    0.37         0   3452     0      0.00331
     128    64   4211  1650   425        0    25      0    50    0.18         0   5165     0      0.00315
      64    16   3365   750   180        0    36      3    35    0.24         0   2509   278      0.01092
     128    32   3794  1600   312        0    62      4    92    0.01         0   3779     0      0.00292
""")
"""The same for volumes, whose variants compute more addresses."""
COPY: Final = 3868
"""Time to copy a weight that is transposed, by planes, or a part of one."""
ZEROS: Final = 1978
"""Time to write zeros."""
PRODUCT: Final = 0
"""Time that a dense product of few channels takes longer than that of `nojit.kernels.bmm.cost`."""
PRODUCT_SHARE: Final = 1.00
"""And the factor."""
