"""In how many parts of K an fp8 product runs on sm_90, and with which tile.

The coefficients are nanoseconds, fitted to 1,000 random products on an H200, those of scales of blocks to 992; decisions 0083 and
0084 have the result on others.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.agreed_sizes import SHARED_FP8_STEPS
from nojit.kernels.products.launch_fp8 import FP8_BYTES
from nojit.kernels.products.shared_wave import COLS, ROWS
from nojit.kernels.products.splits import TILE, copied_rows
from nojit.kernels.products.tile_costs import BYTES_PER_NS, Tile, Tiling, Work, read_tiles, straddling

__all__ = ["DIVIDED", "SHARED_STEP", "TWO_WIDTHS", "box_of", "is_shared", "parts_of_blocks", "tiling_of"]

TILES: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   3159   687   103       78     0      0    38    0.38         0   1382   233      0.00285
      64   128   2994  1169   129      126     0      0    62    0.37         0   1520   248      0.00246
     128   128   3763  1513   121      241     0      0   127    0.41         0   1682   208      0.00172
     128   256   4063  2689   261      393     0      0   151    0.48         0      0     0      0.0
""")
"""Tiles of `scaled_mm_sm90`."""
TWO_WIDTHS: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
     128   160   3439  2169   352      130     0      0    67    0.37         0      0     0      0.0
     128   192   3252  2296   438      124     0      0    92    0.39         0      0     0      0.0
""")
"""Tiles of `scaled_mm_tiles_sm90`: 128 columns, and more that are copied and multiplied apart."""
BLOCK_TILES: Final = read_tiles("""
    rows  cols  start  wave  step  crowded  left  right  both  memory  few_rows  merge  part  partial_sum
      64    64   3045   160   322        0     0      0     0    0.69       125   1153   226      0.00414
      64   128   2780   576   382        0     0      0     0    0.63       145   1231   238      0.00272
     128   128   3726  1058   392       66     0      0     0    0.38         0   1136   194      0.00219
     128   256   4387  1894   656      158     0      0     0    0.41         0      0     0      0.0
""")
"""Tiles of `scaled_mm_sm90` with scales of blocks."""
SHARED: Final = Tile(
    rows=ROWS,
    cols=COLS,
    start=0,
    wave=2689,
    step=261,
    crowded=393,
    left=0,
    right=0,
    both=151,
    memory=0.40,
    few_rows=0,
    merge=0,
    part=125,
    partial_sum=0.0,
)
"""The tile of `scaled_mm_waves_sm90`; `part` is the time of a tile's sums."""
DIVIDED: Final = ((64, 64), (64, 128), (128, 128))
"""Rows and columns of the tiles of `scaled_mm_parts_sm90`. For few rows, only those of 64 rows are built."""
STEP: Final = 128
SHARED_STEP: Final = SHARED_FP8_STEPS * STEP
"""Elements of K between which programs of `scaled_mm_waves_sm90` divide the last wave."""
RESULT_BYTES: Final = 2


def tiling_of(rows: int, cols: int, depth: int, processors: int, two_widths: bool) -> Tiling:
    """Choose the tile and the parts of K of a product with a result in bf16.

    `depth`: length of K; `processors`: number of SMs; `two_widths`: whether the tiles `TWO_WIDTHS` can run.
    """
    return _fastest(_work(rows, cols, depth, processors), two_widths)[1]


def box_of(tiling: Tiling) -> int:
    """Return the columns past the first 128 of one of the tiles `TWO_WIDTHS`; 0 for other tiles."""
    return next((one.cols - 128 for one in TWO_WIDTHS if (one.rows, one.cols) == tiling[:2]), 0)


def is_shared(rows: int, cols: int, depth: int, processors: int, two_widths: bool) -> bool:
    """Return whether a product with a result in bf16 is fastest if programs share the last wave; as for `tiling_of`."""
    work = _work(rows, cols, depth, processors)
    return work.can_share(SHARED) and work.time_shared(SHARED, SHARED_FP8_STEPS) < _fastest(work, two_widths)[0]


def _fastest(work: Work, two_widths: bool) -> tuple[float, Tiling]:
    """Return the time of the fastest tiling of a product, and that tiling."""
    divided = [side for side in DIVIDED if side[0] == TILE or copied_rows(work.sizes[1], whole=False) == TILE]
    return min(work.tilings(TILES + TWO_WIDTHS if two_widths else TILES, divided))


def _work(rows: int, cols: int, depth: int, processors: int) -> Work:
    """Return a product with a result in bf16, as the estimates see it."""
    moved = (rows * depth + depth * cols + RESULT_BYTES * rows * cols) / BYTES_PER_NS
    # rows of both operands are as long
    straddles = straddling(depth, depth, FP8_BYTES)
    return Work((1, rows, cols, depth), processors, STEP, moved, straddles)


def parts_of_blocks(rows: int, cols: int, depth: int, processors: int) -> int:
    """Choose the parts of K of a product with scales of blocks.

    `depth`: length of K; `processors`: number of SMs.
    """
    boxes = copied_rows(rows, whole=False)
    moved = (rows * depth + depth * cols + RESULT_BYTES * rows * cols) / BYTES_PER_NS
    work = Work((1, rows, cols, depth), processors, STEP, moved, (False, False), boxes)
    tiles = [tile for tile in BLOCK_TILES if TILE in {tile.rows, boxes}]
    divided = [
        (work.time_in_parts(tile, parts), parts)
        for tile in tiles
        for parts in work.divisions(tile)
        if (tile.rows, tile.cols) == _tile_of_parts(rows, cols, parts, processors)
    ]
    return min([(work.time(tile), 1) for tile in tiles] + divided)[1]


def _tile_of_parts(rows: int, cols: int, parts: int, processors: int) -> tuple[int, int]:
    """Return the tile that the manifest selects for parts of K with scales of blocks."""
    if copied_rows(rows, whole=False) < TILE:
        return (TILE, 2 * TILE) if parts * -(-cols // TILE) > processors else (TILE, TILE)
    tiles = -(-rows // (2 * TILE)) * -(-cols // (2 * TILE))
    return (2 * TILE, 2 * TILE) if rows > TILE and 3 * tiles >= processors else (TILE, TILE)
