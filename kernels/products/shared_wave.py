"""How programs share the last wave of a product (stream-K): the tile, and the workspace. `kernel_wave_shares.py` divides the work."""

from __future__ import annotations

from typing import Final

__all__ = ["COLS", "GROUP", "MOST_STEPS", "ROWS", "sums_shape"]

ROWS: Final = 128
"""Rows of the tile of the kernels."""
COLS: Final = 256
"""Columns of the tile of the kernels."""
GROUP: Final = 8
MOST_STEPS: Final = 1 << 31
"""The steps of all tiles of the last wave must be fewer."""


def sums_shape(batch: int, rows: int, cols: int, processors: int) -> tuple[int, int, int]:
    """Return the shape of the workspace, fp32: a tile for each program, and one for each tile of the last wave."""
    return processors + batch * -(-rows // ROWS) * -(-cols // COLS) % processors, ROWS, COLS
