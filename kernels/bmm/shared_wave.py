"""How programs share the last wave of a product (stream-K), and copies of right operands.

`nojit.kernels.bmm.kernel_wave_shares` describes how programs share a wave. If rows of both operands, or of the right one, start at
odd multiples of 16 bytes, each step takes longer, as measured; presumably because TMA copies by sectors of 32 bytes. A copy of
the right operand whose rows start on lines of 128 bytes avoids that.
"""

from __future__ import annotations

from typing import Final

from nojit.kernels.products.matrices import Mapped

__all__ = ["COLS", "GROUP", "ROWS", "aligned", "sums_shape"]

ROWS: Final = 128
"""Rows of the tile of `bmm_waves_sm90`."""
COLS: Final = 256
"""Columns of the tile of `bmm_waves_sm90`."""
GROUP: Final = 8
LINE: Final = 64
"""Elements of a line of memory."""


def aligned(of: Mapped) -> Mapped:
    """Return the description of a copy of a matrix, or of a batch, whose rows start on lines."""
    _, _, rows, cols = of.shape
    pitch = -(-cols // LINE) * LINE
    return of._replace(strides=(of.strides[0], rows * pitch, pitch, 1))


def sums_shape(batch: int, rows: int, cols: int, processors: int) -> tuple[int, int, int]:
    """Return the shape of the workspace, fp32: a tile for each program, and one for each tile of the last wave."""
    return processors + batch * -(-rows // ROWS) * -(-cols // COLS) % processors, ROWS, COLS
