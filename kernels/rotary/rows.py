"""Operands of rotary embeddings as kernels take them: rows with strides, and copies of uneven tensors."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from nojit.kernels.calls.memos import Caller
from nojit.kernels.calls.strides import merged_stride
from nojit.kernels.calls.tensor_maps import nothing
from torch import Tensor

__all__ = ["NONE", "Rows", "Strides", "cached", "dense", "row_stride", "rows_of", "strides_of", "tokens_of"]

Strides = tuple[int, int, int]
NONE: Final[Strides] = (0, 0, 0)


class Rows(NamedTuple):
    """A tensor [..., tokens, heads, dim] or a cache [pages, heads, page size, dim], as the kernel takes it."""

    value: Tensor
    strides: Strides
    """Of sequences, tokens and heads, or of pages, their rows and heads, in elements."""


def strides_of(value: Tensor) -> Strides:
    """Return the strides of sequences, tokens and heads; 0 for dimensions of size 1."""
    *_, tokens, heads, _ = value.shape
    *outer, of_tokens, of_heads, _ = value.stride()
    lead = merged_stride(value.shape[:-3], outer)
    assert lead is not None  # noqa: S101 - the caller has checked it
    return lead, of_tokens if tokens > 1 else 0, of_heads if heads > 1 else 0


def rows_of(value: Tensor, caller: Caller) -> Rows:
    """Return `value`, or a copy if its rows are not contiguous or its sequences not evenly spaced.

    `caller`: allocates and launches, or also records both for replays.
    """
    if value.stride(-1) != 1 or merged_stride(value.shape[:-3], value.stride()[:-3]) is None:
        value = caller.make(Tensor.contiguous, value)
    return Rows(value, strides_of(value))


def cached(cache: Tensor) -> Rows:
    """Return a cache with its strides; 0 for dimensions of size 1."""
    pages, heads, rows = (
        stride if size > 1 else 0 for size, stride in zip(cache.shape, cache.stride()[:3], strict=False)
    )
    return Rows(cache, (pages, rows, heads))


def dense(value: Tensor, caller: Caller) -> Tensor:
    """Return `value`, or a copy if its rows are not contiguous.

    `caller`: allocates and launches, or also records both for replays.
    """
    return value if value.stride(-1) == 1 else caller.make(Tensor.contiguous, value)


def row_stride(table: Tensor) -> int:
    """Return the stride of a table's rows; 0 if it has one row."""
    return table.stride(0) if table.shape[0] > 1 else 0


def tokens_of(value: Tensor | None, query: Tensor, caller: Caller) -> tuple[Tensor, tuple[int, int]]:
    """Return an integer of each token as int64, and the strides of sequences and tokens; an unread tensor for None.

    `caller`: allocates and launches, or also records both for replays.
    """
    if value is None:
        unread = nothing(torch.int64, query.device)
        caller.constant(unread)
        return unread, (0, 0)
    if value.dtype != torch.int64:
        value = caller.make(Tensor.long, value)
    lead = merged_stride(value.shape[:-1], value.stride()[:-1])
    if lead is None:
        value = caller.make(Tensor.contiguous, value)
        lead = value.stride(-2)
    return value, (lead, value.stride(-1))
