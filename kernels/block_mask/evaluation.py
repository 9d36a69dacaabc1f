"""Evaluation of any mask function, one row of blocks at a time: block states, bitmaps, and intervals if the mask has them.

A few million (query, key) pairs are evaluated at a time, so memory does not limit sequence lengths.
"""

# ruff: noqa: PLR0917 - a mask has many sizes

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.block_mask.intervals import PARTIAL, Spans, clip
from nojit.kernels.block_mask.tables import packed
from nojit.kernels.calls.arguments import refuse_type
from torch import Tensor

__all__ = ["Evaluated", "MaskMod", "evaluate", "evaluate_states", "explained"]

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Torch's `mask_mod`: takes batch, head, query index and key index as scalars; returns True if the query sees the key."""

_PAIRS: Final = 1 << 22
"""Number of (query, key) pairs to evaluate at a time."""
# an odd factor without a pattern, so that unequal bitmaps hardly ever have equal hashes
_MIX: Final = 0x5851F42D4C957F2D


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A mask that was evaluated for all pairs of queries and keys."""

    states: Tensor
    """Int8 [Bm, Hm, block rows, block columns]: 0 absent (fully masked), 1 partial, 2 full (nothing masked)."""
    numbers: Tensor
    """Int64 [Bm, Hm, block rows, block columns]: the index in `bits` of each partial block's bitmap."""
    bits: Tensor
    """Int32 [bitmaps, block, block / 32]: the distinct bitmaps of partial blocks."""
    spans: Spans | None
    """Intervals [Bm, Hm, M, 2] and [Bm, Hm, N, 2]; None unless each row and column of the mask is one interval."""


def evaluate(
    mask_mod: MaskMod, batches: int, heads: int, q_len: int, kv_len: int, device: torch.device, block: int
) -> Evaluated:
    """Evaluate a mask function for every batch, head, query and key.

    Args:
        mask_mod: the function; any that torch's `vmap` takes.
        batches: number of batches to evaluate.
        heads: number of heads to evaluate.
        q_len: number of queries.
        kv_len: number of keys.
        device: the device for the evaluation and the results.
        block: rows and columns of a block, a multiple of 32.
    """
    found = [
        _evaluate_head(mask_mod, (batch, head), q_len, kv_len, device, block)
        for batch in range(batches)
        for head in range(heads)
    ]
    rows, cols = -(-q_len // block), -(-kv_len // block)
    states = torch.stack([one.states for one in found]).view(batches, heads, rows, cols)
    numbers = torch.zeros(states.shape, dtype=torch.int64, device=device)
    bits, places = _distinct(torch.cat([one.bits for one in found]))
    numbers[states == PARTIAL] = places[torch.cat(_shifted(found))]
    spans = None
    if all(one.spans is not None for one in found):
        tables = zip(*(one.spans for one in found if one.spans is not None), strict=True)
        spans = Spans(*(torch.stack(each).view(batches, heads, -1, 2) for each in tables))
    return Evaluated(states, numbers, bits, spans)


@dataclass(frozen=True, slots=True)
class _Head:
    """The evaluated mask of one batch and head; `numbers` has one bitmap index for each partial block, in order."""

    states: Tensor
    numbers: Tensor
    bits: Tensor
    spans: Spans | None


def _shifted(found: list[_Head]) -> list[Tensor]:
    """Return the bitmap indices of each head, shifted to the concatenation of all heads' bitmaps."""
    starts = [0]
    for one in found:
        starts.append(starts[-1] + len(one.bits))
    return [one.numbers + start for one, start in zip(found, starts, strict=False)]


def _evaluate_head(
    mask_mod: MaskMod, place: tuple[int, int], q_len: int, kv_len: int, device: torch.device, block: int
) -> _Head:
    keys = torch.arange(kv_len, device=device)
    counts, first, end = _no_columns(kv_len, q_len, device)
    states, rows, bits, is_intervals = [], [], [], True
    for start, seen in _strips(mask_mod, place, q_len, keys, block):
        padded = _padded(seen, block)
        state = _states_of(padded)
        states.append(state)
        bits.append(_distinct(packed(padded.transpose(1, 2)[state == PARTIAL])))
        row_counts = seen.sum(1)
        spans = clip(_first(seen, kv_len), kv_len - _first(seen.flip(1), kv_len), kv_len)
        rows.append(spans)
        is_intervals &= bool(((spans[:, 1] - spans[:, 0]).clamp(min=0) == row_counts).all())
        counts += seen.sum(0)
        first = torch.minimum(first, start + _first(seen.T, q_len))
        end = torch.maximum(end, (start + len(seen) - _first(seen.T.flip(1), q_len)) * seen.any(0))
    cols = clip(first, end, q_len)
    is_intervals &= bool(((cols[:, 1] - cols[:, 0]).clamp(min=0) == counts).all())
    spans = Spans(torch.cat(rows), cols) if is_intervals else None
    heads = [_Head(torch.empty(0), places, each, None) for each, places in bits]
    return _Head(torch.cat(states), torch.cat(_shifted(heads)), torch.cat([each for each, _ in bits]), spans)


def _no_columns(kv_len: int, q_len: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return number, first and end of the queries that see each key, as they are before any row is evaluated."""
    counts = torch.zeros(kv_len, dtype=torch.int64, device=device)
    return counts, counts + q_len, counts.clone()


def _strips(
    mask_mod: MaskMod, place: tuple[int, int], q_len: int, keys: Tensor, block: int
) -> Iterator[tuple[int, Tensor]]:
    """Evaluate some rows of blocks at a time; yield their first query, and their mask, bool [rows, N].

    `place`: batch and head; `keys`: indices of all keys.
    """
    batch, head = (torch.tensor(each, device=keys.device) for each in place)
    over_keys = torch.vmap(mask_mod, in_dims=(None, None, None, 0))
    over_both = torch.vmap(over_keys, in_dims=(None, None, 0, None))
    height = max(_PAIRS // (max(len(keys), 1) * block), 1) * block
    for start in range(0, q_len, height):
        queries = torch.arange(start, min(start + height, q_len), device=keys.device)
        with explained(place):
            seen = over_both(batch, head, queries, keys)
        if seen.dtype != torch.bool:
            refuse_type("mask_mod", "a function that returns bools", f"one that returns {seen.dtype}")
        yield start, seen.expand(len(queries), len(keys))


@contextmanager
def explained(place: tuple[int, int]) -> Iterator[None]:
    """Context that adds a note to any error of a mask function: batch and head, and the rules for mask functions.

    `place`: batch and head.
    """
    try:
        yield
    except Exception as error:
        error.add_note(
            f"mask_mod: raised for batch {place[0]}, head {place[1]}; it takes the numbers b, h, q_idx and kv_idx as tensors, runs "
            "under torch.vmap, which takes no branches on them, and returns a bool as a tensor"
        )
        raise


def _padded(seen: Tensor, block: int) -> Tensor:
    """Return a mask [rows, N] as blocks, padded with False: [block rows, block, block columns, block].

    `seen`: bools, True for visible keys.
    """
    rows, cols = seen.shape
    padded = torch.nn.functional.pad(seen, (0, -cols % block, 0, -rows % block))
    return padded.view(padded.shape[0] // block, block, padded.shape[1] // block, block)


def _states_of(padded: Tensor) -> Tensor:
    return padded.any(3).any(1).to(torch.int8) + padded.all(3).all(1).to(torch.int8)


def _first(seen: Tensor, none: int) -> Tensor:
    """Return the first column that is True in each row; `none` for a row without True.

    `seen`: bools, True for visible keys.
    """
    if not seen.shape[1]:
        return torch.full((len(seen),), none, device=seen.device)
    return torch.where(seen.any(1), seen.to(torch.int8).argmax(1), none)


def _distinct(bits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct bitmaps, and for each input bitmap its index among them.

    Args:
        bits: int32 [count, block, block / 32].
    """
    if not len(bits):
        return bits, torch.zeros(0, dtype=torch.int64, device=bits.device)
    words = bits.flatten(1).long()
    weights = (torch.arange(1, words.shape[1] + 1, device=bits.device) * _MIX) | 1
    sums = ((words ^ (words >> 15)) * weights).sum(1)
    _, places = sums.unique(return_inverse=True)
    last = torch.zeros(int(places.max()) + 1, dtype=torch.int64, device=bits.device)
    last[places] = torch.arange(len(bits), device=bits.device)
    distinct = bits[last]
    if not torch.equal(distinct[places], bits):
        # a hash collision: keep all, duplicates too
        return bits, torch.arange(len(bits), device=bits.device)
    return distinct, places


def evaluate_states(
    mask_mod: MaskMod, batches: int, heads: int, q_len: int, kv_len: int, device: torch.device, sizes: tuple[int, int]
) -> Tensor:
    """Return block states as in `Evaluated.states`, for blocks of `sizes` (queries, keys)."""
    q_block, kv_block = sizes
    keys = torch.arange(kv_len, device=device)
    states = []
    for place in ((batch, head) for batch in range(batches) for head in range(heads)):
        for _, seen in _strips(mask_mod, place, q_len, keys, q_block):
            missing = (0, -seen.shape[1] % kv_block, 0, -seen.shape[0] % q_block)
            padded = torch.nn.functional.pad(seen, missing)
            states.append(_states_of(padded.unflatten(1, (-1, kv_block)).unflatten(0, (-1, q_block))))
    return torch.cat(states).view(batches, heads, -(-q_len // q_block), -(-kv_len // kv_block))
