"""How deep products of few tiles run on sm_90: into how many parts split-K divides K, and with which tile.

Tiles of 64 x 64, which keep most SMs busy, read the operands more often than a step's multiplications hide. Where K is deep, fewer
and larger tiles with parts of K are faster, although a second kernel adds up the parts.

Times are ns, fitted to 542 random products on an H200: half of the estimates are off by less than 5%.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.gemm.matrices import Mapped
from nojit.kernels.gemm.splits import splits_of

__all__ = ["Parts", "parts_of"]


class Tile(NamedTuple):
    """A tile, and the times of a product of such tiles."""

    rows: int
    cols: int
    start: int
    """Time of a product without tiles."""
    wave: int
    """Time of a wave without steps."""
    step: int
    """Time of a step of 64 of K on one SM."""
    crowded: int
    """Time that a step takes longer if all SMs are busy."""
    left: int
    """Time that rows of the left operand alone add to a step if they straddle sectors of memory."""
    right: int
    """Time that those of the right operand alone add."""
    both: int
    """Time that those of both operands add."""
    memory: float
    """Share of the time to read the operands once that other work does not hide."""
    second: int
    """Time of the kernel that adds up the parts."""
    part: int
    """Time of each part."""
    sums: float
    """Time of each partial sum."""


class Parts(NamedTuple):
    """How K is divided."""

    number: int
    rows: int
    """Rows of the tile."""
    cols: int
    """Columns of the tile."""


TILES: Final = (
    Tile(128, 256, 3730, 2561, 247, 342, 43, 89, 176, 0.4, 3644, 171, 0.00111),
    Tile(128, 128, 3858, 990, 80, 273, 63, 92, 150, 0.47, 2355, 168, 0.00162),
    Tile(64, 256, 3364, 1435, 35, 312, 50, 185, 222, 0.51, 1662, 191, 0.00228),
    Tile(64, 128, 3188, 735, 58, 164, 52, 102, 136, 0.45, 1149, 187, 0.00293),
    Tile(128, 64, 3553, 539, 25, 241, 80, 71, 136, 0.43, 1868, 173, 0.00221),
    Tile(64, 64, 3218, 380, 32, 132, 45, 50, 85, 0.51, 1339, 146, 0.00362),
)
"""The tiles of `bmm_sm90`."""
COUNTS: Final = (2, 3, 4, 5, 6, 8, 12, 16)
SMALL: Final = 64
"""Rows and columns of the smallest tile."""
LARGE: Final = 128
"""Rows of tiles with parts."""
STEP: Final = 64
LEAST_STEPS: Final = 4
"""The least steps of a part."""
MOST_SUMS: Final = 1 << 25
BYTES_PER_NS: Final = 4300
ELEMENT_BYTES: Final = 2
SECTOR: Final = 16
"""Elements of a sector of memory."""
GAIN: Final = 0.95
"""K is divided if that takes at most so much of the usual time: estimates are uncertain."""


def parts_of(maps: tuple[Mapped, Mapped], sizes: tuple[int, int, int, int], processors: int) -> Parts | None:
    """Choose the parts of K and their tile; None if other ways are faster.

    Args:
        maps: TMA descriptions of the left and the right operand.
        sizes: (B, M, N, K).
        processors: number of SMs.
    """
    batch, rows, cols, depth = sizes
    if rows <= SMALL or batch * -(-rows // LARGE) * -(-cols // LARGE) > processors:
        return None
    straddles = bool(maps[0].strides[2] % SECTOR), bool(maps[1].strides[2] % SECTOR)

    def estimate(tile: Tile, count: int) -> float:
        return _time(tile, count, sizes, straddles, processors)

    usual_count = splits_of(*sizes, processors)
    smallest = TILES[-1]
    usual = estimate(smallest, usual_count) if usual_count > 1 else min(estimate(tile, 1) for tile in TILES)
    times = {
        Parts(count, tile.rows, tile.cols): estimate(tile, count)
        for tile in TILES
        if tile.rows == LARGE <= tile.cols
        for count in COUNTS
        if depth >= LEAST_STEPS * STEP * count and count * batch * rows * cols <= MOST_SUMS
    }
    best = min(times, key=times.__getitem__, default=None)
    return best if best is not None and times[best] < GAIN * usual else None


def _time(
    tile: Tile, count: int, sizes: tuple[int, int, int, int], straddles: tuple[bool, bool], processors: int
) -> float:
    """Return the time of a product with `count` parts; `straddles` are of the left and the right operand."""
    batch, rows, cols, depth = sizes
    tiles = batch * -(-rows // tile.rows) * -(-cols // tile.cols) * count
    waves = -(-tiles // processors)
    depth_steps = -(-depth // STEP)
    steps = waves * -(-depth_steps // count)
    left, right = straddles
    step = tile.step + tile.crowded * min(tiles / processors, 1)
    step += tile.both if left and right else tile.left if left else tile.right if right else 0
    read = ELEMENT_BYTES * batch * (rows * depth + cols * depth + rows * cols) / BYTES_PER_NS
    time = tile.start + waves * tile.wave + steps * step + tile.memory * read
    if count > 1:
        time += tile.second + count * tile.part + count * batch * rows * cols * tile.sums
    return time
