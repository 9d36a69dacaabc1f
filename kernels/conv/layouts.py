"""Memory layouts of convolution operands: five-dimensional strides, views, channels-last or contiguous results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.strides import merged_stride
from nojit.kernels.calls.tensor_maps import MAP_BYTES
from nojit.kernels.conv.sweeps import PADDED_DIM, three
from torch import Tensor

__all__ = [
    "HALF",
    "allocate",
    "by_channels",
    "copied_by_channels",
    "formatted",
    "has_adjacent_channels",
    "is_by_channels",
    "is_described",
    "is_half",
    "is_half_image",
    "merged",
    "new_like",
    "part_of",
    "piece_of",
    "positions_of",
    "strides_of",
]

HALF: Final = 2
"""Bytes of an element."""
FORMATS: Final = {4: torch.channels_last, 5: torch.channels_last_3d}


def is_by_channels(value: Tensor) -> bool:
    """Return whether `value` is channels-last: the channels of a position are adjacent; gaps between positions are allowed.

    False if the strides fit contiguous layout as well, as in torch's own rule.
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
    """Return whether the result is channels-last, which it is if any operand is."""
    return any(map(is_by_channels, operands))


def has_adjacent_channels(value: Tensor) -> bool:
    """Return whether the channels of a position are adjacent in memory; a single channel always is."""
    return bool(value.stride(1) == 1) or value.shape[1] == 1


def is_half(value: Tensor) -> bool:
    """Return whether the elements of `value` have 16 bits."""
    return bool(value.element_size() == HALF)


def is_half_image(value: Tensor) -> bool:
    """Return whether `value` holds images, [N, C, H, W], of 16 bits."""
    return is_half(value) and value.dim() == PADDED_DIM + 2


def copied_by_channels(writer: RecipeWriter, value: Tensor) -> Tensor:
    """Return a channels-last copy of `value`.

    `writer`: allocates, and records that for replays.
    """
    return writer.make(_copied, value, value.dim())


def _copied(value: Tensor, dims: int) -> Tensor:
    """Return a channels-last copy with `dims` dimensions."""
    return _batched(value, dims).clone(memory_format=FORMATS[dims])


def _batched(value: Tensor, dims: int) -> Tensor:
    """Return `value` with `dims` dimensions: a replayed call gives an operand without the batch as it is."""
    return value if value.dim() == dims else value.unsqueeze(0)


def formatted(channels: bool, dims: int) -> torch.memory_format:
    """Return torch's memory format: channels-last if `channels`, else contiguous."""
    return FORMATS[dims] if channels else torch.contiguous_format


def allocate(
    writer: RecipeWriter, like: Tensor, shape: tuple[int, ...], channels: bool, single: bool = False
) -> Tensor:
    """Allocate a tensor, channels-last if `channels`, else contiguous; `single` drops the first dimension, of size 1.

    `writer`: allocates and launches, and records both for replays.
    """
    strides = torch.empty(shape, device="meta", memory_format=formatted(channels, len(shape))).stride()
    # use torch's own function, so that a replayed call runs no Python code of nojit here
    made: Tensor = writer.make(Tensor.new_empty_strided, like, shape[single:], strides[single:])
    return made


def new_like(value: Tensor, shape: Sequence[int], channels: bool) -> Tensor:
    """Return an uninitialized tensor with the dtype and device of `value`, channels-last if `channels`, else contiguous."""
    return torch.empty(shape, dtype=value.dtype, device=value.device, memory_format=formatted(channels, len(shape)))


def positions_of(value: Tensor) -> tuple[int, int, int]:
    """Return the size of `value` in depth, height and width; images have depth 1."""
    return three(value.shape[2:], 1)


def strides_of(value: Tensor) -> tuple[int, int, int, int, int]:
    """Return the strides of [N, C, D, H, W]; that of D is 0 for images."""
    outer, channel, *rest = value.stride()
    return (outer, channel, *three(rest, 0))


def merged(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the stride of a single dimension that covers several, outermost first; None if no single stride does.

    It is 1 if all have size 1.
    """
    return 1 if all(size == 1 for size in sizes) else merged_stride(sizes, strides)


def part_of(value: Tensor, first: Sequence[int], sizes: Sequence[int], apart: Sequence[int]) -> Tensor:
    """Return a view of `value` with a first index, a number of elements and a step (`apart`) for each leading dimension."""
    spans: list[Any] = [slice(f, f + (n - 1) * a + 1, a) for f, n, a in zip(first, sizes, apart, strict=True)]
    return value[tuple(spans)]


def piece_of(value: Tensor, dims: int, first: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Return a view of a part of the batch and of the positions, with all channels.

    Args:
        value: the tensor.
        dims: its dimensions, with the batch.
        first: first index of batch, depth, height and width.
        sizes: their sizes.
    """
    batched, skip = _batched(value, dims), PADDED_DIM + 3 - dims
    starts = (first[0], 0, *first[1 + skip :])
    lengths = (sizes[0], batched.shape[1], *sizes[1 + skip :])
    return part_of(batched, starts, lengths, (1,) * dims)


def is_described(value: Tensor) -> bool:
    """Return whether TMA descriptors can hold `value`: channels adjacent, the rest at multiples of 16 bytes."""
    strides = value.stride()
    if strides[1] != 1 or value.data_ptr() % MAP_BYTES or not value.numel():
        return False
    unit, adjacent = MAP_BYTES // value.element_size(), 0
    for size, stride in zip(value.shape, strides, strict=True):
        if size > 1:
            if stride != 1 and (stride <= 0 or stride % unit):
                return False
            adjacent += stride == 1
    return adjacent <= 1
