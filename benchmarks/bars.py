"""Bars for launches and process starts, and comparison of figures with them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nojit.aot.bench.cold_start import ColdStartBench
from nojit.aot.bench.launch import LaunchBench

__all__ = ["Verdict", "cold_start_verdicts", "launch_verdicts"]

# contender, arguments, divisor, largest ratio
_LAUNCH = (
    ("c-plan", 4, "c-loop", 1.05),
    ("c-plan", 12, "c-loop", 1.05),
    ("c-launch", 4, "c-loop", 1.15),
    ("c-launch", 12, "c-loop", 1.15),
    ("nojit", 4, "c-loop", 1.25),
    ("nojit-own-grid", 4, "c-loop", 1.25),
    ("nojit-bound", 4, "c-loop", 1.25),
    ("nojit", 12, "c-loop", 1.5),
    ("nojit", 4, "triton", 1 / 4),
    ("nojit", 12, "triton", 1 / 4),
)
_STARTS = (("nojit", 1, 1.15), ("nojit", 50, 1.15))
_PRELOAD_MS = 50.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One bar, and the figure measured for it."""

    text: str
    value: float
    limit: float
    """The largest allowed `value`."""

    @property
    def holds(self) -> bool:
        """Whether the figure keeps the bar."""
        return self.value <= self.limit

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}  {self.text}: {self.value:.3f}, bar {self.limit:.3f}"


def launch_verdicts(bench: LaunchBench) -> tuple[Verdict, ...]:
    """Compare launches with their bars, by medians and by bests; contenders that were not measured have no verdict."""
    known = {(figure.contender, figure.arguments): figure for figure in bench.figures}
    verdicts = []
    for contender, arguments, other, limit in _LAUNCH:
        ours, theirs = known.get((contender, arguments)), known.get((other, arguments))
        if ours is None or theirs is None:
            continue
        text = f"{contender} / {other}, {arguments} arguments"
        verdicts.append(Verdict(f"{text}, medians", ours.median_us / theirs.median_us, limit))
        verdicts.append(Verdict(f"{text}, bests", ours.best_us / theirs.best_us, limit))
    return tuple(verdicts)


def cold_start_verdicts(bench: ColdStartBench) -> tuple[Verdict, ...]:
    """Compare process starts with their bars."""
    known = {(figure.way, figure.kernels): figure for figure in bench.figures}
    verdicts = []
    for way, kernels, limit in _STARTS:
        figure = known.get((way, kernels))
        if figure is not None and figure.ratio is not None:
            verdicts.append(Verdict(f"{way} / ctypes, {kernels} kernels, medians", figure.ratio, limit))
    for figure in bench.figures:
        for stage in figure.stages:
            if stage.name == "preload":
                text = f"{figure.way}, {figure.kernels} kernels preloaded, ms"
                verdicts.append(Verdict(text, stage.ms, _PRELOAD_MS))
    return tuple(verdicts)
