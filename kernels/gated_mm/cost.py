"""Choose the tile of a gated product on sm_90, or a product and a pointwise operator where these are faster.

The times are those of `nojit.kernels.bmm.cost`, and of the gate, in nanoseconds; `docs/gemm.md` has the result on random products.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.bmm.cost import ELEMENT_BYTES, STEP, TILES, fastest
from nojit.kernels.products.matrices import Mapped
from nojit.kernels.products.splits import TILE, copied_rows
from nojit.kernels.products.tile_costs import BYTES_PER_NS, Work, straddling

__all__ = ["FIXED", "SIDES", "tile_of"]

GATE_NS: Final = {(64, 128): (0, 700), (128, 256): (1500, 0)}
"""Time that the gate adds to a launch and to a wave, by rows and columns of the tiles of `gated_mm_sm90`."""
SIDES: Final = tuple(GATE_NS)
"""Rows and columns of these tiles."""
GATED: Final = tuple(
    tile._replace(start=tile.start + GATE_NS[side][0], wave=tile.wave + GATE_NS[side][1])
    for tile in TILES
    if (side := (tile.rows, tile.cols)) in GATE_NS
)
FIXED: Final = (128, 256)
"""The tile of all products under batch invariance."""
APART_NS: Final = 2000
"""Time of a pointwise operator without operands."""
APART_BYTES_PER_NS: Final = 2650
"""Rate at which it moves operands and result."""
APART_BYTES: Final = 6
"""Bytes that it moves for each result: two factors and the result."""


def tile_of(maps: tuple[Mapped, Mapped], sizes: tuple[int, int, int], processors: int) -> tuple[int, int] | None:
    """Choose the tile of a gated product, (rows, columns of both halves); None if separate kernels are faster.

    Args:
        maps: TMA descriptions of the left and the right operand.
        sizes: (M, N, K).
        processors: number of SMs.
    """
    rows, cols, depth = sizes
    straddles = straddling(maps[0].strides[2], maps[1].strides[2], ELEMENT_BYTES)
    operands, halves = rows * depth + 2 * depth * cols, rows * cols

    def work(results: int, copied: int = TILE) -> Work:
        moved = ELEMENT_BYTES * (operands + results) / BYTES_PER_NS
        return Work((1, rows, 2 * cols, depth), processors, STEP, moved, straddles, copied)

    time, best = min(
        (work(halves).time(tile), (tile.rows, tile.cols)) for tile in GATED if rows > TILE or tile.rows == TILE
    )
    product, _ = fastest(work(2 * halves, copied_rows(rows, whole=False)))
    apart = product + APART_NS + APART_BYTES * halves / APART_BYTES_PER_NS
    return best if time < apart else None
