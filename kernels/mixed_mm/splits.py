"""Number of split-K parts of products with 4-bit weights, so that results of few tiles keep a device busy."""

from __future__ import annotations

from typing import Final

from nojit.kernels.products import splits

__all__ = ["mapped_parts", "parts_of"]

LEAST_DEPTH: Final = 1024
"""The least K of a split-K part: a shorter part costs more to write and add up than it saves."""
TILE: Final = 64
"""Rows and columns of the smallest tile of `mixed_mm_sm90`."""


def parts_of(tiles: int, depth: int, count: int) -> int:
    """Choose the number of split-K parts on `count` SMs: 1, unless half of them would be idle.

    `tiles`: number of tiles of the result; `depth`: length of K.
    """
    return splits.parts_of(tiles, depth, count, share=2, least_depth=LEAST_DEPTH)


def mapped_parts(rows: int, cols: int, depth: int, count: int) -> int:
    """Choose the number of split-K parts of `mixed_mm_sm90` on `count` SMs.

    `depth`: length of K.
    """
    return parts_of(-(-rows // TILE) * -(-cols // TILE), depth, count)
