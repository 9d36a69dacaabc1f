"""Maps from output positions to input positions for a convolution and its gradients: sizes and steps, without tensors.

There are always three spatial dimensions; the first has size 1 for images. A *tap* is a position in the weight. A
*sweep* maps each position p of a result and each tap t to the source position ``p * mul + t * step + start`` in each
dimension. A convolution is one sweep, and so is its input gradient if the stride is 1. For other strides, the input
gradient is cut into *classes*: input positions with equal remainders modulo the stride, which the same taps read. Each
class is a sweep over only these taps, so that no product is wasted.
"""

# ruff: noqa: PLR0917 - a line has as many facts

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple, TypeVar

from nojit.kernels.calls.strides import named

__all__ = ["LIMIT", "PADDED_DIM", "Class", "Sweep", "Window", "classes_of", "forward_sweep", "pieces_of", "three"]

T = TypeVar("T")
Triple = tuple[int, int, int]

LIMIT: Final = 2**31 - 2**16
"""The most output positions per launch: kernels number them with 32 bits, up to the end of the last tile."""
DIMS: Final = "dhw"
"""Letters of the three dimensions in the names of params."""
PADDED_DIM: Final = 2
"""The dimension of ``[N, C, D, H, W]`` that images lack: D."""


def three(values: Sequence[T], missing: T) -> tuple[T, T, T]:
    """Return a value for each of three dimensions; for images, which have two, `missing` is put first."""
    first, *rest = (missing, *values) if len(values) == PADDED_DIM else values
    return first, rest[0], rest[1]


class Window(NamedTuple):
    """Stride, padding and dilation of a convolution in each of its two or three dimensions."""

    stride: tuple[int, ...]
    before: tuple[int, ...]
    """Zeros before the first position."""
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    def sizes(self, source: Sequence[int], taps: Sequence[int]) -> tuple[int, ...]:
        """Return the size of the result in each dimension for an input of size `source` and a weight of size `taps`.

        It is less than one if the weight is larger than the padded input.
        """
        return tuple(
            (size + before + after - dilation * (count - 1) - 1) // stride + 1
            for size, count, stride, before, after, dilation in zip(source, taps, *self, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """A map from a result's positions and the weight's taps to source positions: ``p * mul + t * step + start``."""

    out: Triple
    """Size of the result in each dimension."""
    source: Triple
    """Size of the source in each dimension; positions outside count as 0."""
    taps: Triple
    mul: Triple
    step: Triple
    start: Triple

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the result and of the source by the names of the kernels' params."""
        return named("out_", DIMS, self.out) | named("x_", DIMS, self.source)

    @property
    def map(self) -> dict[str, int]:
        """Numbers of taps, and the map to source positions, by the names of the kernels' params."""
        return (
            named("taps_", DIMS, self.taps)
            | named("mul_", DIMS, self.mul)
            | named("step_", DIMS, self.step)
            | named("start_", DIMS, self.start)
        )

    @property
    def is_pointwise(self) -> bool:
        """True if each position of the result reads only the same position of the source."""
        return (
            self.taps == self.mul == (1, 1, 1)
            and self.start == (0, 0, 0)
            and all(out <= source for out, source in zip(self.out, self.source, strict=True))
        )

    def part(self, first: Triple, sizes: Triple) -> Sweep:
        """Return the sweep for the part of the result that starts at `first` and has the given sizes."""
        d, h, w = (s + f * m for s, f, m in zip(self.start, first, self.mul, strict=True))
        return replace(self, out=sizes, start=(d, h, w))

    def reading(self, first: Triple, sizes: Triple) -> tuple[Triple, Sweep]:
        """Return the first source position that a part of the result reads, and the part's sweep over only what it reads.

        A dimension that is not cut keeps all of its source. `first` and `sizes` are those of `part`.
        """
        own = self.part(first, sizes)
        spans = [
            (0, source) if size == whole else _span(size, source, *facts)
            for size, whole, source, *facts in zip(
                sizes, self.out, own.source, own.taps, own.mul, own.step, own.start, strict=True
            )
        ]
        (d, m), (h, n), (w, o) = spans
        starts = (own.start[0] - d, own.start[1] - h, own.start[2] - w)
        return (d, h, w), replace(own, source=(m, n, o), start=starts)


def _span(out: int, source: int, taps: int, mul: int, step: int, start: int) -> tuple[int, int]:
    """Return the first source position that is read, and the number of positions up to the last; at least one."""
    reach = (taps - 1) * step
    first = min(max(start + min(reach, 0), 0), source - 1)
    last = min(start + (out - 1) * mul + max(reach, 0), source - 1)
    return first, max(last - first + 1, 1)


class Class(NamedTuple):
    """Input positions that the same taps read, and the sweep that computes their gradient."""

    first: Triple
    """The first of these positions, in each dimension."""
    apart: Triple
    """Distance between neighbouring positions, in each dimension."""
    first_tap: Triple
    taps_apart: Triple
    sweep: Sweep
    """The sweep from these positions to positions of the output's gradient; without taps the gradient is 0."""


def forward_sweep(window: Window, source: Sequence[int], taps: Sequence[int]) -> Sweep:
    """Return the sweep of a convolution: from its output positions to its input positions."""
    return Sweep(
        out=three(window.sizes(source, taps), 1),
        source=three(source, 1),
        taps=three(taps, 1),
        mul=three(window.stride, 1),
        step=three(window.dilation, 1),
        start=three([-before for before in window.before], 0),
    )


class _Line(NamedTuple):
    """The part of a `Class` (outputs of a strided input gradient that share taps) in one dimension."""

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
    """Yield the classes of a convolution's input positions; together they cover all positions.

    `forward` is the sweep of the convolution.
    """
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
    # position p of the output reads p * stride + t * dilation + start at tap t
    taps_apart = stride // math.gcd(stride, dilation)
    for first in range(min(stride, source)):
        valid = [tap for tap in range(min(taps, taps_apart)) if (first - start - tap * dilation) % stride == 0]
        first_tap = valid[0] if valid else 0
        count = len(range(first_tap, taps, taps_apart)) if valid else 0
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
    """Split a range of positions into ranges of at most `limit` positions; yield the first position and sizes of each range.

    Args:
        sizes: number of positions in each dimension, outermost first; the outermost is split first.
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
