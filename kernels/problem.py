"""Interface of kernel families for the tuner: the calls to measure, and the constexprs that it may choose.

A family's ``problems.py`` has a function ``problems(use)`` that lists its `TuningProblem`, and ``ROLES``, which gives
the purpose of each kernel's constexprs. The uses are:

- ``tune``: the tuner measures these to make tuning tables;
- ``held_out``: drawn with a fixed seed and never in ``tune``; they test tuning keys, spaces and problems during
  development;
- ``fresh``: drawn with another seed, for a final test of choices that were not fitted to them;
- ``bars``: the shapes for which the documentation promises a speed.
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
from nojit.kernels.manifest_kernels import by_position
from torch import Tensor

__all__ = [
    "DRAWN",
    "NAMED",
    "USES",
    "RequestedLaunch",
    "Roles",
    "TuningProblem",
    "Work",
    "check_use",
    "draws",
    "generator",
    "listed_and_drawn",
    "requested",
    "rounding",
    "spread",
]

T = TypeVar("T")

DRAWN: Final = ("held_out", "fresh")
"""The uses whose problems are all random, from a fixed seed."""
USES: Final = ("tune", *DRAWN, "bars")
NAMED: Final = 3.0
"""Weight of a shape from a known model in tuning; a random shape has 1."""
FRESH: Final = 5
"""Number in the seed of the use ``fresh``: raise it when tables, keys or problems change after a look at the last draw."""
# candidates for each gap to fill; more would only move problems to the edges
_CANDIDATES: Final = 4


@dataclass(frozen=True, slots=True)
class Roles:
    """The purpose of each of a kernel's constexprs and options."""

    tunables: tuple[str, ...]
    """Constexprs and options that change only the speed; the tuner chooses them."""
    numerics: tuple[str, ...]
    """Constexprs that change how results are rounded: arguments of the operator, never tuned."""
    semantics: tuple[str, ...]
    """Constexprs that change the result, or follow from the shape."""


@dataclass(frozen=True, slots=True)
class Work:
    """A call that can be launched in any config, with its expected results."""

    kernel: str
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    """The constexprs that determine the result, by name."""
    outputs: tuple[Tensor, ...]
    """The tensors that a launch writes, or the parts of them that the check compares with `expected`."""
    expected: tuple[Tensor, ...]
    """The expected values of each output."""
    tolerances: tuple[float, ...]
    """The largest allowed absolute error of each output."""
    moved_bytes: int
    """The least number of bytes that a launch must read and write."""
    flops: int


@dataclass(frozen=True, slots=True)
class RequestedLaunch:
    """Kernel name and arguments of a launch that an operator requests."""

    kernel: str
    args: tuple[Any, ...]
    """The arguments in the order of the kernel's params."""
    named: Mapping[str, Any]
    """The constexprs by name."""

    def work(
        self,
        *,
        outputs: tuple[Tensor, ...],
        expected: tuple[Tensor, ...],
        tolerances: tuple[float, ...],
        moved_bytes: int,
        flops: int,
    ) -> Work:
        """Return the work of this launch; the arguments are the fields of `Work`."""
        return Work(self.kernel, self.args, self.named, outputs, expected, tolerances, moved_bytes, flops)


class TuningProblem(Protocol):
    """Interface of one call of one kernel, to tune or measure.

    It may also have a ``weight`` above 0: how much it counts when configs are chosen, 1 by default.
    """

    @property
    def name(self) -> str:
        """Return the name, unique for a kernel, use and dtype."""

    @property
    def kernel(self) -> str:
        """Return the kernel's name in its manifest."""

    @property
    def shape_class(self) -> str:
        """Return the class of similar shapes, for reports."""

    @property
    def dtype(self) -> str:
        """Return the dtype in Triton's spelling."""

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Return the size arguments by name, for reports."""

    def prepare(self, device: str) -> Work:
        """Allocate random arguments on `device`, and compute the expected results."""


class _Stub:
    """A kernel that lists its calls and launches nothing."""

    def __init__(self, name: str, launches: list[RequestedLaunch]) -> None:
        self._name = name
        self._launches = launches

    def __call__(self, *args: Any, **named: Any) -> None:
        self._launches.append(RequestedLaunch(self._name, *by_position(self._name, args, named)))

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        raise TypeError(f"expected {self._name} to be launched with its own grid, got {grid!r}")


def requested(call: Callable[[], T], kernel: str | None = None) -> tuple[RequestedLaunch, T]:
    """Run an operator without launching; return its launch, and its results, which have undefined values.

    Args:
        call: runs the operator.
        kernel: name of the kernel to return the first launch of; None if the operator launches once.

    Raises:
        ValueError: the operator launches no kernel, or several, or not `kernel`.
    """
    launches: list[RequestedLaunch] = []
    with library.override(lambda name: _Stub(name, launches), devices=frozenset({"cpu", "cuda"})):
        result = call()
    found = [launch for launch in launches if kernel in {None, launch.kernel}]
    # memos keep the stub alive, which must not keep the tensors alive
    launches.clear()
    if not found or (kernel is None and len(found) > 1):
        raise ValueError(f"expected {'one launch' if kernel is None else f'a launch of {kernel}'}, got {len(found)}")
    return found[0], result


def check_use(use: str) -> None:
    """Require that `use` is one of the `USES`.

    Raises:
        ValueError: it is not.
    """
    if use not in USES:
        raise ValueError(f"use: expected {', '.join(USES[:-1])} or {USES[-1]}, got {use!r}")


def draws(name: str, use: str) -> random.Random:
    """Return a generator of random numbers, seeded by `name` and `use`, that are the same on every machine."""
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
    """List the items for a use: for ``tune`` all of `listed` and random ones, for another use random ones only.

    Args:
        use: one of the keys of `counts`.
        name: seed of the random items, as in `draws`.
        listed: distinct items.
        draw: returns a random item, which may repeat.
        counts: number of random items for each use, including ``tune``.
        key: maps similar items to the same value; no two uses share a value.
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
    """Draw problems into the gaps between known ones: of a few random candidates, take the one farthest from all others.

    Mitchell, "Spectrally optimal sampling for distribution ray tracing", 1991, section 4.

    Args:
        known: the existing problems.
        draw: returns a random candidate.
        far: returns the distance between two problems.
        count: the number of problems to draw.
    """
    found: list[T] = []
    while len(found) < count:
        there = [*known, *found]
        candidates = [draw() for _ in range(_CANDIDATES)]
        found.append(max(candidates, key=lambda one: min((far(one, other) for other in there), default=math.inf)))
    return tuple(found)


def generator(name: str, device: str) -> torch.Generator:
    """Return a torch random generator on `device`, seeded by `name`: it yields the same values on all devices of one type."""
    return torch.Generator(device).manual_seed(zlib.crc32(name.encode()))


def rounding(expected: Tensor, dtype: torch.dtype) -> float:
    """Return the allowed error of a result that is computed in fp32 and rounded once to `dtype`.

    It is one unit in the last place of the largest expected value; for fp32, five units. Half a unit is for the
    rounding, the rest for the errors of fp32 sums.
    """
    units = 5.0 if dtype == torch.float32 else 1.0
    return units * torch.finfo(dtype).eps * float(expected.abs().max()) if expected.numel() else 0.0
