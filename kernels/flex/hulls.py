"""Hulls of neighbouring queries or keys, and whether walks along them are orderly.

A *hull* is four int32 positions of a block of neighbours: the first that any neighbour sees, the first that all see, the end of
the range that all see, and the end of the range that any sees. Ends are exclusive.

In the sm_90 backward kernel, tiles of keys take turns to add to a tile of queries, and each counts the tiles before it. They
can be counted if the visiting tiles are consecutive, which `are_orderly` checks: the keys that visit a tile of queries then lie
between the bounds in the queries' hull, and the queries that a tile of keys visits between those in the keys' hull, and both
describe the same visits.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

__all__ = ["KEYS", "QUERIES", "are_orderly", "hulls_of"]

QUERIES: Final = 64
"""Queries per hull."""
KEYS: Final = 128
"""Keys per hull: those of a tile."""
_STRIP: Final = 1 << 26
"""The number of tile pairs compared at a time."""


def hulls_of(spans: Tensor, count: int, size: int) -> Tensor:
    """Return the least and greatest start and end of every `size` neighbouring spans.

    Args:
        spans: [Bm, Hm, length, 2]: start and end of each.
        count: the number of positions that spans may cover.
        size: spans of one hull.

    Returns:
        int32 [Bm, Hm, cdiv(length, size), 4]: least start, greatest start, least end, greatest end.
    """
    missing = -spans.shape[2] % size

    def blocked(place: int, fill: int) -> Tensor:
        return torch.nn.functional.pad(spans[..., place], (0, missing), value=fill).unflatten(-1, (-1, size))

    # the padding of the last hull must not change its bounds
    bounds = (
        blocked(0, count).amin(-1),
        blocked(0, 0).amax(-1),
        blocked(1, count).amin(-1),
        blocked(1, 0).amax(-1),
    )
    return torch.stack(bounds, -1).contiguous()


def are_orderly(by_query: Tensor, by_key: Tensor) -> bool:
    """Return whether query hulls and key hulls describe the same visits, for tiles of 64 and of 128 queries.

    Args:
        by_query: int32 [Bm, Hm, hulls of `QUERIES`, 4], over keys.
        by_key: int32 [Bm, Hm, hulls of `KEYS`, 4], over queries.
    """
    first, end = by_query[..., 0], by_query[..., 3]
    odd = first.shape[-1] % 2
    wide_first = torch.nn.functional.pad(first, (0, odd), value=torch.iinfo(torch.int32).max).unflatten(-1, (-1, 2))
    wide_end = torch.nn.functional.pad(end, (0, odd)).unflatten(-1, (-1, 2))
    return _agree(first, end, by_key, QUERIES) and _agree(wide_first.amin(-1), wide_end.amax(-1), by_key, 2 * QUERIES)


def _agree(first: Tensor, end: Tensor, by_key: Tensor, step: int) -> bool:
    """Compare visits for tiles of `step` queries, whose hulls over keys start at `first` and end at `end`."""
    tiles = torch.arange(first.shape[-1], device=first.device)
    strip = max(1, _STRIP // first.numel())
    alike = torch.ones((), dtype=torch.bool, device=first.device)
    for start in range(0, by_key.shape[2], strip):
        keys = by_key[:, :, start : start + strip, None]
        numbers = torch.arange(start, start + keys.shape[2], device=first.device)[:, None]
        by_queries = (first[..., None, :] // KEYS <= numbers) & (end[..., None, :] > numbers * KEYS)
        by_keys = (keys[..., 0] // step <= tiles) & (keys[..., 3] > tiles * step)
        alike &= (by_queries == by_keys).all()
    return bool(alike)
