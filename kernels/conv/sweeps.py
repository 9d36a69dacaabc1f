"""Sweeps of a convolution and its gradients over positions: sizes and steps, computed without tensors.

All sweeps have three dimensions; the first is 1 for images. A *sweep* maps each position of a result and each tap of the
weight to a position of the source: ``p * mul + t * step + start``. A convolution is one sweep, and so is its input gradient
for a stride of 1. For any other stride, the input positions with equal remainders form a *class*, which meets a subset of the
taps. Each class is a sweep of its own over those taps, so that no product is wasted.
"""

# ruff: noqa: PLR0917 - a line has as many facts

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple, TypeVar

__all__ = ["LIMIT", "PADDED_DIM", "Class", "Sweep", "Window", "classes_of", "forward_sweep", "pieces_of", "three"]

T = TypeVar("T")
Triple = tuple[int, int, int]

LIMIT: Final = 2**31 - 2**16
"""The most result positions per launch: kernels count them in 32 bits, up to the end of the last tile."""
PADDED_DIM: Final = 2
"""The dimension of ``[N, C, D, H, W]`` that images lack."""


def three(values: Sequence[T], missing: T) -> tuple[T, T, T]:
    """Return three dimensions; for images, `missing` comes first."""
    first, *rest = (missing, *values) if len(values) == PADDED_DIM else values
    return first, rest[0], rest[1]


class Window(NamedTuple):
    """A convolution's arguments for positions, in each of two or three dimensions."""

    stride: tuple[int, ...]
    before: tuple[int, ...]
    """Padding before the first position."""
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    def sizes(self, source: Sequence[int], taps: Sequence[int]) -> tuple[int, ...]:
        """Return the size of the result in each dimension; less than one if the weight is larger than its padded source."""
        return tuple(
            (size + before + after - dilation * (count - 1) - 1) // stride + 1
            for size, count, stride, before, after, dilation in zip(source, taps, *self, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """The map from positions of a result to positions of a source."""

    out: Triple
    """The size of the result in each dimension."""
    source: Triple
    """The size of the source in each dimension; positions outside count as 0."""
    taps: Triple
    mul: Triple
    step: Triple
    start: Triple

    @property
    def numbers(self) -> tuple[int, ...]:
        """All numbers, in the kernels' order."""
        return (*self.out, *self.source, *self.taps, *self.mul, *self.step, *self.start)

    @property
    def is_pointwise(self) -> bool:
        """Whether each position of the result meets the same position of the source, and no other."""
        return (
            self.taps == self.mul == (1, 1, 1)
            and self.start == (0, 0, 0)
            and all(out <= source for out, source in zip(self.out, self.source, strict=True))
        )

    def part(self, first: Triple, sizes: Triple) -> Sweep:
        """Return the sweep over a part of the result's positions."""
        d, h, w = (s + f * m for s, f, m in zip(self.start, first, self.mul, strict=True))
        return replace(self, out=sizes, start=(d, h, w))


class Class(NamedTuple):
    """Input positions that meet the same taps, and the sweep that computes their gradient."""

    first: Triple
    """The first position, in each dimension."""
    apart: Triple
    """The step between positions."""
    first_tap: Triple
    taps_apart: Triple
    sweep: Sweep
    """The sweep over the gradient of the output; without taps the gradient is 0."""


def forward_sweep(window: Window, source: Sequence[int], taps: Sequence[int]) -> Sweep:
    """Return the sweep that computes a convolution: from positions of its result to positions of its input."""
    return Sweep(
        out=three(window.sizes(source, taps), 1),
        source=three(source, 1),
        taps=three(taps, 1),
        mul=three(window.stride, 1),
        step=three(window.dilation, 1),
        start=three([-before for before in window.before], 0),
    )


class _Line(NamedTuple):
    """A class in one dimension."""

    out: int
    source: int
    taps: int
    step: int
    start: int
    first: int
    apart: int
    first_tap: int
    taps_apart: int


def classes_of(forward: Sweep) -> Iterator[Class]:
    """List the classes of a convolution's input; together they cover all positions."""
    lines = [
        list(_lines_of(*facts))
        for facts in zip(
            forward.out, forward.source, forward.taps, forward.mul, forward.step, forward.start, strict=True
        )
    ]
    for chosen in product(*lines):
        out, source, taps, step, start, first, apart, first_tap, taps_apart = zip(*chosen, strict=True)
        sweep = Sweep(out, source, taps, (1, 1, 1), step, start)
        yield Class(first, apart, first_tap, taps_apart, sweep)


def _lines_of(out: int, source: int, taps: int, stride: int, dilation: int, start: int) -> Iterator[_Line]:
    # position p of the output meets p * stride + t * dilation + start
    taps_apart = stride // math.gcd(stride, dilation)
    for first in range(min(stride, source)):
        meeting = [tap for tap in range(min(taps, taps_apart)) if (first - start - tap * dilation) % stride == 0]
        first_tap = meeting[0] if meeting else 0
        count = len(range(first_tap, taps, taps_apart)) if meeting else 0
        yield _Line(
            out=len(range(first, source, stride)),
            source=out,
            taps=count,
            step=-dilation * taps_apart // stride,
            start=(first - start - first_tap * dilation) // stride,
            first=first,
            apart=stride,
            first_tap=first_tap,
            taps_apart=taps_apart,
        )


def pieces_of(sizes: Sequence[int], limit: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Split a box of positions into boxes of at most `limit` positions; yield the first position and the sizes of each.

    Args:
        sizes: positions in each dimension, the outermost first; it is split first.
        limit: at least 1.
    """
    inner = math.prod(sizes[1:])
    if inner <= limit:
        length = sizes[0] if not inner else max(1, limit // inner)
        for first in range(0, sizes[0], length):
            yield (first, *(0 for _ in sizes[1:])), (min(length, sizes[0] - first), *sizes[1:])
        return
    for first in range(sizes[0]):
        for rest, lengths in pieces_of(sizes[1:], limit):
            yield (first, *rest), (1, *lengths)
