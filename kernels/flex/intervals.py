"""Masks whose rows and columns are intervals: what each query sees, and what each key is seen by, as two numbers.

A table of *spans* is int32 [..., length, 2]: the first place that is seen, and the one behind the last. What sees nothing has
the span (count, 0), so that neither of them widens what its neighbours see together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ABSENT", "FULL", "PARTIAL", "Spans", "band_of", "block_states", "clip", "intersect", "is_compact"]

ABSENT, PARTIAL, FULL = range(3)


class Spans(NamedTuple):
    """An interval of keys for each query, and one of queries for each key; both tell the same mask."""

    rows: Tensor
    """Int32 [..., M, 2]: the keys that each query sees."""
    cols: Tensor
    """Int32 [..., N, 2]: the queries that see each key."""


def clip(first: Tensor, end: Tensor, count: int) -> Tensor:
    """Make a table of spans of `count` places from bounds that may lie outside of them.

    Args:
        first: the first place, an integer tensor.
        end: the one behind the last, of the same shape.
        count: how many places there are.
    """
    first, end = first.clamp(0, count), end.clamp(0, count)
    empty = first >= end
    spans = torch.stack([first.masked_fill(empty, count), end.masked_fill(empty, 0)], -1)
    return spans.to(torch.int32).contiguous()


def intersect(one: Spans, other: Spans) -> Spans:
    """Return the spans of what both masks let through."""
    rows, cols = (
        clip(torch.maximum(a[..., 0], b[..., 0]), torch.minimum(a[..., 1], b[..., 1]), count)
        for a, b, count in (
            (one.rows, other.rows, one.cols.shape[-2]),
            (one.cols, other.cols, one.rows.shape[-2]),
        )
    )
    return Spans(rows, cols)


def band_of(rows: Tensor, kv_len: int) -> tuple[int, int] | None:
    """Find the band that a table of rows is: query m sees the keys from m + left to m + right; None if it is none.

    Args:
        rows: int32 [..., M, 2], not empty.
        kv_len: the number of keys.

    Returns:
        left and right; -M and N where a bound hides nothing.
    """
    q_len = rows.shape[-2]
    places = torch.arange(q_len, device=rows.device)
    first, end = rows[..., 0].long(), rows[..., 1].long()
    some = first < end
    # rows that end before the last key say where the right bound is, and those that start behind the first, the left one
    rights = (end - 1 - places)[some & (end < kv_len)]
    lefts = (first - places)[some & (first > 0)]
    # where nothing is seen, all of it lies beyond the keys: a band that is left behind, or one not yet reached
    right = int(rights[0]) if rights.numel() else kv_len
    left = int(lefts[0]) if lefts.numel() else -q_len
    if not rights.numel() and not bool(some.all()) and not lefts.numel():
        ahead = int(some.flatten(0, -2).all(0).long().argmax()) if bool(some.any()) else q_len
        right = -ahead
    band = clip(places + left, places + right + 1, kv_len)
    return (left, right) if torch.equal(band.expand_as(rows), rows) else None


def block_states(spans: Spans, q_block: int, kv_block: int) -> Tensor:
    """Say of each block whether nothing, some or all of it is seen; what lies past an end counts as not seen.

    Args:
        spans: of one head: [M, 2] and [N, 2].
        q_block: rows of a block.
        kv_block: its columns.

    Returns:
        int8 [cdiv(M, q_block), cdiv(N, kv_block)] of 0 (absent), 1 (partial) and 2 (full).
    """
    rows, kv_len = spans.rows, spans.cols.shape[0]
    first, end = (_blocked(rows[:, at], q_block, fill)[..., None] for at, fill in ((0, kv_len), (1, 0)))
    starts = torch.arange(0, kv_len, kv_block, device=rows.device)
    some = (first < starts + kv_block) & (end > starts) & (first < end)
    every = (first <= starts) & (end >= starts + kv_block)
    return some.any(1).to(torch.int8) + every.all(1).to(torch.int8)


def _blocked(values: Tensor, block: int, fill: int) -> Tensor:
    """Arrange [M] values as [blocks, block], the last block filled up."""
    missing = -values.shape[0] % block
    return torch.nn.functional.pad(values, (0, missing), value=fill).view(-1, block)


def is_compact(states: Tensor) -> bool:
    """Return whether in each row and each column of blocks those that are there are neighbours.

    If so, a tile that visits all from the first to the last visits none in vain.

    Args:
        states: [..., block rows, block columns] of `block_states`.
    """
    there = states > 0
    return all(_is_one_piece(lines) for lines in (there, there.transpose(-1, -2)))


def _is_one_piece(there: Tensor) -> bool:
    """Return whether in each row what is there is there in one piece."""
    starts = there[..., :1].sum(-1) + (there[..., 1:] & ~there[..., :-1]).sum(-1)
    return bool((starts <= 1).all())
