"""Masks where each query sees one interval of keys, and each key is seen by one interval of queries.

A table of *spans* is int32 [..., length, 2]: the first visible position and the exclusive end for each query (or key).
An empty span is (count, 0), where count is the number of positions, so that it does not change the bounds of its
neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ABSENT", "FULL", "PARTIAL", "Spans", "band_of", "block_states", "clip", "intersect", "is_compact"]

ABSENT, PARTIAL, FULL = range(3)


class Spans(NamedTuple):
    """The interval of keys of each query, and the interval of queries of each key; both describe the same mask."""

    rows: Tensor
    """Int32 [..., M, 2]: the keys that each query sees."""
    cols: Tensor
    """Int32 [..., N, 2]: the queries that see each key."""


def clip(first: Tensor, end: Tensor, count: int) -> Tensor:
    """Return spans over `count` positions from first positions and ends, clipped to these positions.

    Args:
        first: the first position, an integer tensor.
        end: the exclusive end, of the same shape.
        count: number of positions.
    """
    first, end = first.clamp(0, count), end.clamp(0, count)
    empty = first >= end
    spans = torch.stack([first.masked_fill(empty, count), end.masked_fill(empty, 0)], -1)
    return spans.to(torch.int32).contiguous()


def intersect(one: Spans, other: Spans) -> Spans:
    """Return the spans of the mask that is True where both masks are."""
    rows, cols = (
        clip(torch.maximum(a[..., 0], b[..., 0]), torch.minimum(a[..., 1], b[..., 1]), count)
        for a, b, count in (
            (one.rows, other.rows, one.cols.shape[-2]),
            (one.cols, other.cols, one.rows.shape[-2]),
        )
    )
    return Spans(rows, cols)


def band_of(rows: Tensor, kv_len: int) -> tuple[int, int] | None:
    """Return (left, right) if the mask is a band: query m sees the keys from m + left to m + right. None otherwise.

    Args:
        rows: int32 [..., M, 2], the interval of each query, not empty.
        kv_len: number of keys N.

    Returns:
        left and right; -M and N for a bound that masks nothing.
    """
    q_len = rows.shape[-2]
    places = torch.arange(q_len, device=rows.device)
    first, end = rows[..., 0].long(), rows[..., 1].long()
    some = first < end
    # rows that end before the last key determine the right bound; rows that start after the first key determine the
    # left bound
    rights = (end - 1 - places)[some & (end < kv_len)]
    lefts = (first - places)[some & (first > 0)]
    # an empty row must lie entirely outside the keys, on the left or the right
    right = int(rights[0]) if rights.numel() else kv_len
    left = int(lefts[0]) if lefts.numel() else -q_len
    if not rights.numel() and not bool(some.all()) and not lefts.numel():
        ahead = int(some.flatten(0, -2).all(0).long().argmax()) if bool(some.any()) else q_len
        right = -ahead
    band = clip(places + left, places + right + 1, kv_len)
    return (left, right) if torch.equal(band.expand_as(rows), rows) else None


def block_states(spans: Spans, q_block: int, kv_block: int) -> Tensor:
    """Return the state of each block of a mask: 0 absent (fully masked), 1 partial, 2 full. Positions past an end are masked.

    Args:
        spans: intervals of one head: [M, 2] and [N, 2].
        q_block: queries in a block.
        kv_block: keys in a block.

    Returns:
        Int8 [cdiv(M, q_block), cdiv(N, kv_block)].
    """
    rows, kv_len = spans.rows, spans.cols.shape[0]
    first, end = (_blocked(rows[:, at], q_block, fill)[..., None] for at, fill in ((0, kv_len), (1, 0)))
    starts = torch.arange(0, kv_len, kv_block, device=rows.device)
    some = (first < starts + kv_block) & (end > starts) & (first < end)
    every = (first <= starts) & (end >= starts + kv_block)
    return some.any(1).to(torch.int8) + every.all(1).to(torch.int8)


def _blocked(values: Tensor, block: int, fill: int) -> Tensor:
    """Return values [M] as [blocks, block]; `fill` pads the last block."""
    missing = -values.shape[0] % block
    return torch.nn.functional.pad(values, (0, missing), value=fill).view(-1, block)


def is_compact(states: Tensor) -> bool:
    """Return whether the present blocks of each row and of each column are consecutive.

    If so, a program that goes from the first to the last present block visits no absent one.

    Args:
        states: [..., block rows, block columns] from `block_states`.
    """
    there = states > 0
    return all(_is_one_piece(lines) for lines in (there, there.transpose(-1, -2)))


def _is_one_piece(there: Tensor) -> bool:
    """Return whether the True values of each row are consecutive."""
    starts = there[..., :1].sum(-1) + (there[..., 1:] & ~there[..., :-1]).sum(-1)
    return bool((starts <= 1).all())
