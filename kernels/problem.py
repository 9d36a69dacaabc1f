"""What a tuner needs to know of a family of kernels: the calls to measure, and which constexprs it may choose.

A family's ``problems.py`` has a function ``problems(use)`` that lists `TuningProblem`, and ``ROLES``, which says for each
kernel what its constexprs are there for. The uses are ``tune`` (what tables are made of), ``held_out`` (drawn by a fixed
seed and never in ``tune``: what keys, spaces and problems are judged by while they are worked on), ``fresh`` (drawn by
another seed, for a last look that nothing was fitted to) and ``bars`` (what speed is promised for).
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import torch
from nojit.kernels import library
from torch import Tensor

__all__ = [
    "DRAWN",
    "NAMED",
    "USES",
    "Launch",
    "Roles",
    "TuningProblem",
    "Work",
    "check_use",
    "draws",
    "generator",
    "listed_and_drawn",
    "recorded",
    "rounding",
    "spread",
]

T = TypeVar("T")

DRAWN: Final = ("held_out", "fresh")
"""The uses whose problems are drawn by a seed."""
USES: Final = ("tune", *DRAWN, "bars")
NAMED: Final = 3.0
"""How much a shape of a known model weighs beside one that was drawn."""
FRESH: Final = 5
"""Which draw ``fresh`` is: raised whenever tables, keys or problems change after a look at the last one."""
# for each problem that fills a gap: more would only go to the edges
_CANDIDATES: Final = 4


@dataclass(frozen=True, slots=True)
class Roles:
    """What the constexprs and options of a kernel are there for."""

    tunables: tuple[str, ...]
    """They change speed only."""
    numerics: tuple[str, ...]
    """They change how results are rounded: arguments of the operator, never tuned."""
    semantics: tuple[str, ...]
    """They change what is computed, or follow from the shape."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch as an operator asks for it."""

    kernel: str
    args: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Work:
    """A call that can be launched in any config, and what it must write."""

    kernel: str
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    """The constexprs that say what is computed."""
    outputs: tuple[Tensor, ...]
    """What a launch writes, or the parts of it that are looked at."""
    expected: tuple[Tensor, ...]
    """For each output."""
    tolerances: tuple[float, ...]
    """For each output, the largest absolute error."""
    moved_bytes: int
    """What has to be read and written at least."""
    flops: int


class TuningProblem(Protocol):
    """One call shape of one kernel.

    It may have a ``weight`` too, a number above 0: how much it counts beside others when configs are chosen; 1 without it.
    """

    @property
    def name(self) -> str:
        """Say it in words; one name per kernel, use and dtype."""

    @property
    def kernel(self) -> str:
        """Name the kernel, as its manifest does."""

    @property
    def shape_class(self) -> str:
        """Name the kind of shape, for reports."""

    @property
    def dtype(self) -> str:
        """Name the dtype, in Triton's spelling."""

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Say how large it is, for reports."""

    def prepare(self, device: str) -> Work:
        """Make the arguments, and what they must come to."""


class _Recorder:
    """A kernel that notes what it is asked for, and launches nothing."""

    def __init__(self, name: str, launches: list[Launch]) -> None:
        self._name = name
        self._launches = launches

    def __call__(self, *args: Any, **named: Any) -> None:
        self._launches.append(Launch(self._name, args, named))

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        raise TypeError(f"expected {self._name} to be launched with its own grid, got {grid!r}")


def recorded(call: Callable[[], T]) -> tuple[Launch, T]:
    """Run an operator without its kernel; return the one launch that it asks for, and its results, not yet written.

    Raises:
        ValueError: it asks for none, or for several.
    """
    launches: list[Launch] = []
    with library.override(lambda name: _Recorder(name, launches), devices=frozenset({"cpu", "cuda"})):
        result = call()
    if len(launches) != 1:
        raise ValueError(f"expected one launch, got {len(launches)}")
    # memos keep the recorder, which is not to keep the tensors
    return launches.pop(), result


def check_use(use: str) -> None:
    """Refuse a word that is no use.

    Raises:
        ValueError: it is none.
    """
    if use not in USES:
        raise ValueError(f"use: expected {', '.join(USES[:-1])} or {USES[-1]}, got {use!r}")


def draws(name: str, use: str) -> random.Random:
    """Return numbers that are the same everywhere and always: `name` and the use are the seed."""
    seeds = {"held_out": name, "fresh": f"{name} fresh {FRESH}"}
    return random.Random(seeds.get(use, f"{name} {use}"))  # noqa: S311 - shapes, no secrets


def listed_and_drawn(
    use: str,
    name: str,
    listed: Sequence[T],
    draw: Callable[[random.Random], T],
    *,
    counts: Mapping[str, int],
    key: Callable[[T], Hashable],
) -> list[T]:
    """List what problems are made of: for ``tune`` all that is listed and as much drawn, for another use drawn alone.

    Args:
        use: one of `counts`.
        name: as for `draws`.
        listed: distinct ones.
        draw: another one each time, perhaps one that is there already.
        counts: how many to draw for each use, ``tune`` among them.
        key: what two that are alike have in common; no two uses have alike ones.
    """
    found = {key(one): one for one in listed}
    uses = ("tune",) if use == "tune" else ("tune", use)
    for which in uses:
        numbers, most = draws(name, which), len(found) + counts[which]
        while len(found) < most:
            one = draw(numbers)
            found.setdefault(key(one), one)
    every = list(found.values())
    return every if use == "tune" else every[len(every) - counts[use] :]


def spread(known: Sequence[T], draw: Callable[[], T], far: Callable[[T, T], float], count: int) -> tuple[T, ...]:
    """Draw problems into the gaps between those that are known: of a few candidates the one that is farthest from all.

    Mitchell, "Spectrally optimal sampling for distribution ray tracing", 1991, section 4.

    Args:
        known: what there is.
        draw: a candidate, another one each time.
        far: how far two are from one another.
        count: of problems to draw.
    """
    found: list[T] = []
    while len(found) < count:
        there = [*known, *found]
        candidates = [draw() for _ in range(_CANDIDATES)]
        found.append(max(candidates, key=lambda one: min((far(one, other) for other in there), default=math.inf)))
    return tuple(found)


def generator(name: str, device: str) -> torch.Generator:
    """Return a source of values that are the same every time on one kind of device: `name` is the seed."""
    return torch.Generator(device).manual_seed(zlib.crc32(name.encode()))


def rounding(expected: Tensor, dtype: torch.dtype) -> float:
    """Bound the error of a result that is computed in fp32 and rounded once: one unit in the last place of the largest.

    Half of it is the rounding; the rest is room for fp32 itself, which `dtype` fp32 gets four more units for.
    """
    units = 5.0 if dtype == torch.float32 else 1.0
    return units * torch.finfo(dtype).eps * float(expected.abs().max()) if expected.numel() else 0.0
