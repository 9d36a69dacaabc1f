"""Hulls: bounds of the positions that neighbouring queries or keys see; and the test that tiles can add in turn.

The *hull* of several neighbouring queries is four int32 key positions: the first that any of them sees, the first that
all of them see, the end of the range that all see, and the end of the range that any sees. Ends are exclusive. Hulls of
keys are query positions.

In the sm_90 backward kernel a program owns a tile of keys and *visits* the tiles of queries that see any of them. For
deterministic sums, tiles of keys add to a tile of queries in order: each must know how many tiles of keys come before
it. They can be counted if the tiles of keys that visit a tile of queries are consecutive, and the other way round.
`are_orderly` checks this: the hulls of queries and the hulls of keys must describe the same visits.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

__all__ = ["KEYS", "QUERIES", "are_orderly", "hulls_of"]

QUERIES: Final = 64
"""Number of neighbouring queries that share a hull."""
KEYS: Final = 128
"""Number of neighbouring keys that share a hull: those of a tile."""
_STRIP: Final = 1 << 26
"""Number of (query tile, key tile) pairs to compare at a time."""


def hulls_of(spans: Tensor, count: int, size: int) -> Tensor:
    """Return the hulls of every `size` neighbouring spans: least and greatest start and end.

    Args:
        spans: [Bm, Hm, length, 2]: first visible position and exclusive end for each query (or key).
        count: number of positions that spans may cover.
        size: number of spans in a hull.

    Returns:
        Int32 [Bm, Hm, cdiv(length, size), 4]: least start, greatest start, least end, greatest end.
    """
    missing = -spans.shape[2] % size

    def blocked(place: int, fill: int) -> Tensor:
        return torch.nn.functional.pad(spans[..., place], (0, missing), value=fill).unflatten(-1, (-1, size))

    # pad so that the bounds of the last hull do not change
    bounds = (
        blocked(0, count).amin(-1),
        blocked(0, 0).amax(-1),
        blocked(1, count).amin(-1),
        blocked(1, 0).amax(-1),
    )
    return torch.stack(bounds, -1).contiguous()


def are_orderly(by_query: Tensor, by_key: Tensor) -> bool:
    """Return whether hulls of queries and hulls of keys describe the same visits, for tiles of 64 and of 128 queries.

    Args:
        by_query: int32 [Bm, Hm, hulls of `QUERIES` queries, 4], key positions.
        by_key: int32 [Bm, Hm, hulls of `KEYS` keys, 4], query positions.
    """
    first, end = by_query[..., 0], by_query[..., 3]
    odd = first.shape[-1] % 2
    wide_first = torch.nn.functional.pad(first, (0, odd), value=torch.iinfo(torch.int32).max).unflatten(-1, (-1, 2))
    wide_end = torch.nn.functional.pad(end, (0, odd)).unflatten(-1, (-1, 2))
    return _agree(first, end, by_key, QUERIES) and _agree(wide_first.amin(-1), wide_end.amax(-1), by_key, 2 * QUERIES)


def _agree(first: Tensor, end: Tensor, by_key: Tensor, step: int) -> bool:
    """Return whether both kinds of hulls describe the same visits, for tiles of `step` queries.

    Args:
        first: first key that a tile of queries sees, [Bm, Hm, tiles].
        end: exclusive end of the keys that it sees, [Bm, Hm, tiles].
        by_key: hulls of keys, as in `are_orderly`.
        step: queries in a tile.
    """
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
