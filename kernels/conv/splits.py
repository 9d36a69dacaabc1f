"""Choose the number of split-K parts of a convolution or its gradient, so that results of few tiles keep a device busy."""

from __future__ import annotations

from typing import Final

__all__ = ["TILE", "parts_of", "tile_words", "tiles_of"]

TILE: Final = 128
"""Rows and columns of a tile, assumed to estimate the number of programs."""
LEAST_DEPTH: Final = 512
"""The least K of a split-K part: a shorter part costs more to write and add up than it saves."""
MOST: Final = 32
COST: Final = 600
"""Cost of writing and reading the sums of one split-K part, in the time that one element of K takes."""
ENOUGH: Final = 0.9
"""Fewer split-K parts are preferred if they reach this fraction of the best gain."""


def parts_of(tiles: int, depth: int, device_processors: int) -> int:
    """Choose the number of parts for split-K.

    It is the fewest parts that keep the device nearly as busy as possible, after the cost of adding the parts up.

    Args:
        tiles: number of tiles of the result.
        depth: K, the number of products per output element.
        device_processors: number of SMs.
    """
    if not tiles:
        return 1

    def gain(parts: int) -> float:
        programs = tiles * parts
        busy = programs / (-(-programs // device_processors) * device_processors)
        return busy if parts == 1 else busy / (1 + COST * parts / depth)

    choices = range(1, max(1, min(depth // LEAST_DEPTH, MOST)) + 1)
    best = max(map(gain, choices))
    return next(parts for parts in choices if gain(parts) >= ENOUGH * best)


def tiles_of(groups: int, rows: int, cols: int) -> int:
    """Return an estimate of the number of tiles of a result of `rows` positions by `cols` channels, in `groups` groups."""
    return groups * -(-rows // TILE) * -(-cols // TILE)


def tile_words(tile: tuple[int, ...] | None) -> dict[str, int]:
    """Return rows and columns, the first two of `tile`, by the names of the kernels' constexprs; none if the bundle chooses the tile."""
    return {} if tile is None else {"BLOCK_M": tile[0], "BLOCK_N": tile[1]}
