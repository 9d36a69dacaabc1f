"""Into how many parts the depth of a product is cut, so that few tiles keep a device busy.

Parts are summed up in order by a second kernel: results repeat to the bit.
"""

from __future__ import annotations

from typing import Final

__all__ = ["padded_width", "splits_of"]

TILE: Final = 64
"""The sides of the smallest tiles that products run with."""
LEAST_DEPTH: Final = 512
"""The least depth of a part: a shallower one costs more to write and to add than it saves."""
MOST: Final = 16
UNIT: Final = 16
"""What the rows of partial sums are padded to."""


def splits_of(batch: int, rows: int, cols: int, depth: int, processors: int) -> int:
    """Choose the number of parts: one, unless the tiles leave more than two thirds of the processors idle."""
    tiles = batch * -(-rows // TILE) * -(-cols // TILE)
    if not tiles or 3 * tiles > processors:
        return 1
    return max(1, min(processors // tiles, depth // LEAST_DEPTH, MOST))


def padded_width(cols: int) -> int:
    """Return the columns of partial sums, those that are only there for alignment included."""
    return -(-cols // UNIT) * UNIT
