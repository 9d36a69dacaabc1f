"""How a convolution, and each of its gradients, sweeps over positions: sizes and steps, worked out without a tensor.

All have three dimensions here; of an image the first is 1. A *sweep* says which position of a source each position of a
result meets at each tap of the weight: ``p * mul + t * step + start``. A convolution is one sweep. So is the gradient of its
input where the stride is 1; for any other stride, positions whose remainders by it are equal meet the same taps, and each
such *class* of positions is a sweep of its own, over a part of the taps, none of which it computes in vain.
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
"""How many positions of a result one launch takes at most: kernels count them in 32 bits, and whole tiles of them."""
PADDED_DIM: Final = 2
"""Which dimension of ``[N, C, D, H, W]`` images do not have."""


def three(values: Sequence[T], missing: T) -> tuple[T, T, T]:
    """Return what the three dimensions have; that of images before their own is `missing`."""
    first, *rest = (missing, *values) if len(values) == PADDED_DIM else values
    return first, rest[0], rest[1]


class Window(NamedTuple):
    """What the arguments of a convolution say of its positions, in each of two or three dimensions."""

    stride: tuple[int, ...]
    before: tuple[int, ...]
    """What is padded before the first position."""
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    def sizes(self, source: Sequence[int], taps: Sequence[int]) -> tuple[int, ...]:
        """Return how many positions the result has; less than one where the weight is larger than its padded source."""
        return tuple(
            (size + before + after - dilation * (count - 1) - 1) // stride + 1
            for size, count, stride, before, after, dilation in zip(source, taps, *self, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """Which positions of a source the positions of a result meet."""

    out: Triple
    """How many positions the result has."""
    source: Triple
    """How many the source has; what lies outside counts as 0."""
    taps: Triple
    mul: Triple
    step: Triple
    start: Triple

    @property
    def numbers(self) -> tuple[int, ...]:
        """List all of it, as kernels take it."""
        return (*self.out, *self.source, *self.taps, *self.mul, *self.step, *self.start)

    @property
    def is_pointwise(self) -> bool:
        """Return whether each position of the result meets the same one of the source, and no other."""
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
    """The positions of an input that meet the same taps, and the sweep that computes their gradient."""

    first: Triple
    """The first of them, in each dimension."""
    apart: Triple
    """How far they lie from one another."""
    first_tap: Triple
    taps_apart: Triple
    sweep: Sweep
    """From the gradient of the output; without any tap the gradient is 0."""


def forward_sweep(window: Window, source: Sequence[int], taps: Sequence[int]) -> Sweep:
    """Return the sweep of a convolution over positions of its input."""
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
    """List the classes of a convolution's input, which together are all of its positions."""
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
    # position p of the output met p * stride + t * dilation + start
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
    """Cut a box of positions into boxes of at most `limit` of them: the first position of each, and its sizes.

    Args:
        sizes: positions in each dimension, the outermost first; it is cut first.
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
