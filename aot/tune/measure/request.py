"""The request for a tuning run, the order of its problems, and its results."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.events import Event, Listed
from nojit.aot.tune.store.records import Device

__all__ = ["ProblemRun", "TuneRequest", "TuneRun", "View", "round_robin"]


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """The bundle, problems and limits of a tuning run."""

    setup: Setup
    budget_s: float | None
    """Time limit in seconds; None for no limit."""
    exhaustive: bool
    """Whether every config of every problem is measured up to the last rung."""
    seed: int
    only: Mapping[tuple[str, str, str], frozenset[str]] | None = None
    """By kernel, name and dtype of each problem to measure: the identities of its configs to measure. None for everything."""

    def wants(self, listed: Listed) -> bool:
        """Return whether a problem is to be measured.

        `listed`: the problem.
        """
        return self.only is None or (listed.kernel, listed.name, listed.dtype) in self.only

    def configs_of(self, listed: Listed) -> frozenset[str] | None:
        """Return the identities of a problem's configs to measure; None for all.

        `listed`: the problem.
        """
        return None if self.only is None else self.only[listed.kernel, listed.name, listed.dtype]


@dataclass(frozen=True, slots=True)
class ProblemRun:
    """Result of measuring one problem: counts of checked, wrong and failed configs, the best time, and the reason if it was skipped."""

    kernel: str
    name: str
    use: str
    dtype: str
    configs: int
    """Number of configs that were checked, including wrong and failed ones."""
    wrong: int
    failed: int
    complete: bool
    """Whether the last rung was measured."""
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
    """Pairs per second over the problems whose best config takes less than 100 us; None without such problems."""
    problems: tuple[ProblemRun, ...]
    known: int
    """Number of problems that the database already had."""
    left: int
    """Number of problems that were not measured, because time ran out."""
    missing: tuple[str, ...]
    """Kernels of problems that the bundle lacks."""


class View(Protocol):
    """Display of a run's progress."""

    def begin(self, device: Device, todo: int, known: int) -> None:
        """Show the start of a run with `todo` problems; `known` others were measured before."""

    def problem(self, listed: Listed) -> None:
        """Show the start of a problem.

        `listed`: the problem.
        """

    def event(self, listed: Listed, event: Event) -> None:
        """Show an event of a problem.

        `listed`: the problem.
        """

    def ended(self, summary: ProblemRun, left_s: float) -> None:
        """Show the result of a problem; `left_s` estimates the remaining seconds of the run."""


def round_robin(problems: Sequence[Listed]) -> list[int]:
    """Order the problems round-robin over the kernels, so that all kernels are equally far when time runs out; return indices."""
    by_kernel: dict[str, list[int]] = {}
    for place, problem in enumerate(problems):
        by_kernel.setdefault(problem.kernel, []).append(place)
    rounds: Iterable[tuple[int | None, ...]] = itertools.zip_longest(*by_kernel.values())
    return [place for turn in rounds for place in turn if place is not None]
