"""How operands of convolutions lie in memory: strides of five dimensions, matrices, and results by channels or by planes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import torch
from nojit.kernels.conv.sweeps import three
from torch import Tensor

__all__ = ["by_channels", "formatted", "is_by_channels", "merged", "new_like", "part_of", "positions_of", "strides_of"]

FORMATS: Final = {4: torch.channels_last, 5: torch.channels_last_3d}


def is_by_channels(value: Tensor) -> bool:
    """Return whether strides are those of torch's channels_last, gaps allowed: the channels of a position lie together.

    Where that cannot be told from the other way, by planes, it is no, as torch's own rule has it.
    """
    strides, least = value.stride(), 0
    if strides[1] == 0:
        return False
    for dim in (1, *range(value.dim() - 1, 1, -1), 0):
        size = value.shape[dim]
        if size == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * size if size > 1 else strides[dim]
    return True


def by_channels(*operands: Tensor) -> bool:
    """Return whether what is computed of operands is stored by channels, as any of them is."""
    return any(map(is_by_channels, operands))


def formatted(channels: bool, dims: int) -> torch.memory_format:
    """Return what torch calls a result by channels, or by planes."""
    return FORMATS[dims] if channels else torch.contiguous_format


def new_like(value: Tensor, shape: Sequence[int], channels: bool) -> Tensor:
    """Make a tensor of a dtype and device, with nothing in it, by channels or by planes."""
    return torch.empty(shape, dtype=value.dtype, device=value.device, memory_format=formatted(channels, len(shape)))


def positions_of(value: Tensor) -> tuple[int, int, int]:
    """Return how many positions a tensor has in each of three dimensions."""
    return three(value.shape[2:], 1)


def strides_of(value: Tensor) -> tuple[int, int, int, int, int]:
    """Return the strides of five dimensions; 0 where there is only one position."""
    outer, channel, *rest = value.stride()
    return (outer, channel, *three(rest, 0))


def merged(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the stride of the one dimension that several are, as seen in order; None where they are not one."""
    known = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    for (_, outer), (size, inner) in pairwise(known):
        if outer != size * inner:
            return None
    return known[-1][1] if known else 1


def part_of(value: Tensor, first: Sequence[int], sizes: Sequence[int], apart: Sequence[int]) -> Tensor:
    """View some of a tensor: in each dimension from a first index on, so many, so far apart."""
    spans: list[Any] = [slice(f, f + (n - 1) * a + 1, a) for f, n, a in zip(first, sizes, apart, strict=True)]
    return value[tuple(spans)]
