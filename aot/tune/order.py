"""What a tuning is asked for, in which order it does it, and what it says of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nojit.aot.tune.events import Event, Listed
from nojit.aot.tune.records import Device
from nojit.aot.tune.worker import Setup

__all__ = ["Order", "ProblemRun", "TuneRun", "View", "in_turn"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done."""

    setup: Setup
    budget_s: float | None
    """None: as long as it takes."""
    exhaustive: bool
    """Measure every config of every problem to the end."""
    seed: int
    only: Mapping[tuple[str, str, str], frozenset[str]] | None = None
    """The configs to measure, by identity, of the problems to measure, by kernel, name and dtype; None: all of all."""

    def wants(self, listed: Listed) -> bool:
        """Say whether a problem is to be measured."""
        return self.only is None or (listed.kernel, listed.name, listed.dtype) in self.only

    def configs_of(self, listed: Listed) -> frozenset[str] | None:
        """Return the configs of a problem that are to be measured; None: all."""
        return None if self.only is None else self.only[listed.kernel, listed.name, listed.dtype]


@dataclass(frozen=True, slots=True)
class ProblemRun:
    """Result of one problem."""

    kernel: str
    name: str
    use: str
    dtype: str
    configs: int
    """Configs that were checked and measured, including wrong and failed ones."""
    wrong: int
    failed: int
    complete: bool
    """Whether the last step was reached."""
    best_us: float | None
    seconds: float
    reason: str
    """Why it was skipped; empty if it was not."""


@dataclass(frozen=True, slots=True)
class TuneRun:
    """Results of ``nojit tune run``."""

    device: Device
    started_s: float
    """Seconds until the measuring process was ready."""
    seconds: float
    """Total time."""
    pairs: int
    """Measured pairs of config and problem."""
    pairs_per_s: float
    """Pairs per second of total time."""
    quick_pairs_per_s: float | None
    """The same for problems whose best config takes less than 100 us; None if there are none."""
    problems: tuple[ProblemRun, ...]
    known: int
    """Problems that the database already had."""
    left: int
    """Problems for which no time was left."""
    missing: tuple[str, ...]
    """Kernels of problems that the bundle lacks."""


class View(Protocol):
    """Shows how a run goes."""

    def begin(self, device: Device, todo: int, known: int) -> None:
        """Start: so many problems, so many of them measured before."""

    def problem(self, listed: Listed) -> None:
        """A problem begins."""

    def event(self, listed: Listed, event: Event) -> None:
        """Something was found out."""

    def ended(self, summary: ProblemRun, left_s: float) -> None:
        """A problem has ended; the run may take so much longer."""


def in_turn(problems: Sequence[Listed]) -> list[int]:
    """Let kernels take turns, each in its own order: whenever time is up, all have come equally far."""
    by_kernel: dict[str, list[int]] = {}
    for place, problem in enumerate(problems):
        by_kernel.setdefault(problem.kernel, []).append(place)
    rounds: Iterable[tuple[int | None, ...]] = itertools.zip_longest(*by_kernel.values())
    return [place for turn in rounds for place in turn if place is not None]
