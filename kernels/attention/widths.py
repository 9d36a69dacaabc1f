"""Widths of the tiles of attention kernels: head dimensions, padded to a power of two."""

from __future__ import annotations

from typing import Final

__all__ = ["FLEX_WIDTH_MIN", "tile_width", "tile_widths"]

FLEX_WIDTH_MIN: Final = 64
"""The smallest width for which the kernels of flex attention and flex decoding are built."""


def tile_width(dim: int, least: int) -> int:
    """Return the tile width for a head dimension: the next power of two, at least `least`."""
    return max(least, 1 << (dim - 1).bit_length())


def tile_widths(dim: int, v_dim: int, least: int) -> tuple[int, int]:
    """Return BLOCK_D and BLOCK_DV, the padded head dimensions of keys and of values: a pair for which kernels are built.

    Built pairs are equal widths, and 256 with 128. `least`: the smallest width for which the kernel is built.
    """
    widths = tile_width(dim, least), tile_width(v_dim, least)
    return widths if widths == (256, 128) else (max(widths), max(widths))
