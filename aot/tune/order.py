"""The order to a tuning run, the sequence of its problems, and its results."""

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
    """The order to a tuning run."""

    setup: Setup
    budget_s: float | None
    """Time limit in seconds; None for no limit."""
    exhaustive: bool
    """Whether every config of every problem is measured up to the last rung."""
    seed: int
    only: Mapping[tuple[str, str, str], frozenset[str]] | None = None
    """Identities of the configs to measure, for each problem to measure, by kernel, name and dtype; None for everything."""

    def wants(self, listed: Listed) -> bool:
        """Return whether a problem is to be measured."""
        return self.only is None or (listed.kernel, listed.name, listed.dtype) in self.only

    def configs_of(self, listed: Listed) -> frozenset[str] | None:
        """Return the identities of a problem's configs to measure; None for all."""
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
    """Whether the last rung was reached."""
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
    """Display of a run's progress."""

    def begin(self, device: Device, todo: int, known: int) -> None:
        """Show the start of a run with `todo` problems; `known` others were measured before."""

    def problem(self, listed: Listed) -> None:
        """Show the start of a problem."""

    def event(self, listed: Listed, event: Event) -> None:
        """Show an event of a problem."""

    def ended(self, summary: ProblemRun, left_s: float) -> None:
        """Show the result of a problem; `left_s` estimates the remaining seconds of the run."""


def in_turn(problems: Sequence[Listed]) -> list[int]:
    """Return the indices of the problems so that kernels take turns; if time runs out, all kernels are equally far."""
    by_kernel: dict[str, list[int]] = {}
    for place, problem in enumerate(problems):
        by_kernel.setdefault(problem.kernel, []).append(place)
    rounds: Iterable[tuple[int | None, ...]] = itertools.zip_longest(*by_kernel.values())
    return [place for turn in rounds for place in turn if place is not None]
