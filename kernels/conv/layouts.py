"""Memory layouts of convolution operands: five-dimensional strides, matrices, and channels-last or contiguous results."""

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
    """Return whether strides are channels-last, gaps allowed: the channels of a position are adjacent.

    False if strides fit both layouts, as in torch's own rule.
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
    """Return whether the result is channels-last: True if any operand is."""
    return any(map(is_by_channels, operands))


def formatted(channels: bool, dims: int) -> torch.memory_format:
    """Return torch's memory format: channels-last if `channels`, else contiguous."""
    return FORMATS[dims] if channels else torch.contiguous_format


def new_like(value: Tensor, shape: Sequence[int], channels: bool) -> Tensor:
    """Return an uninitialized tensor of a given dtype and device, channels-last or contiguous."""
    return torch.empty(shape, dtype=value.dtype, device=value.device, memory_format=formatted(channels, len(shape)))


def positions_of(value: Tensor) -> tuple[int, int, int]:
    """Return a tensor's size in each of three spatial dimensions."""
    return three(value.shape[2:], 1)


def strides_of(value: Tensor) -> tuple[int, int, int, int, int]:
    """Return the strides of five dimensions; 0 for spatial dimensions that images lack."""
    outer, channel, *rest = value.stride()
    return (outer, channel, *three(rest, 0))


def merged(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the stride of one dimension that merges several, outermost first; None if they do not merge."""
    known = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    for (_, outer), (size, inner) in pairwise(known):
        if outer != size * inner:
            return None
    return known[-1][1] if known else 1


def part_of(value: Tensor, first: Sequence[int], sizes: Sequence[int], apart: Sequence[int]) -> Tensor:
    """Return a view of a tensor: in each dimension a first index, a count and a step."""
    spans: list[Any] = [slice(f, f + (n - 1) * a + 1, a) for f, n, a in zip(first, sizes, apart, strict=True)]
    return value[tuple(spans)]
