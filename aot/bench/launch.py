"""Host time of one launch: every contender in one process, in interleaved rounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from nojit.aot.bench.case_setup import Stage, Timer, Unavailable
from nojit.aot.bench.contenders import FLOOR, OURS, Contender
from nojit.aot.bench.rivals import RIVALS

__all__ = ["CONTENDERS", "LaunchBench", "LaunchFigure", "Unmeasured", "chosen", "measure"]

CONTENDERS = (FLOOR, *OURS, *RIVALS)


@dataclass(frozen=True, slots=True)
class LaunchFigure:
    """Cost of one launch by one contender."""

    contender: str
    arguments: int
    """Arguments of the kernel, without constexprs."""
    best_us: float
    """Microseconds per launch in the best round."""
    median_us: float
    """Microseconds per launch in the median round."""
    best_ratio: float | None
    """Relative to the best of the C loop; None without it."""
    median_ratio: float | None
    """Relative to the median of the C loop; None without it."""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A contender that could not be measured."""

    contender: str
    arguments: int
    reason: str


@dataclass(frozen=True, slots=True)
class LaunchBench:
    """Results of ``nojit bench launch``."""

    environment: dict[str, str]
    """GPU, driver, and versions of the contenders."""
    rounds: int
    launches: int
    """Launches per contender and round, after waiting for the device."""
    figures: tuple[LaunchFigure, ...]
    unmeasured: tuple[Unmeasured, ...]


def chosen(against: Sequence[str]) -> tuple[Contender, ...]:
    """Return the contenders: the C loop, nojit, and the rivals named in `against`; all rivals if it is empty."""
    rivals = [rival for rival in RIVALS if not against or rival.name in against]
    return (FLOOR, *OURS, *rivals)


def measure(
    stage: Stage, contenders: Sequence[Contender], rounds: int, launches: int
) -> tuple[list[LaunchFigure], list[Unmeasured]]:
    """Time every contender on one case; return the figures, and the contenders that could not be measured.

    In each round, contenders take turns; each starts on an idle device. Every round starts with another contender, so that
    no effect of the order favours one.

    `stage`: the case's bundle, tensors and device.
    """
    ready, missing = _prepare(stage, contenders)
    times: dict[str, list[float]] = {name: [] for name in ready}
    order = list(ready.items())
    for _ in range(rounds):
        for name, timer in order:
            stage.synchronize()
            times[name].append(timer(launches))
        order = order[1:] + order[:1]
    stage.synchronize()
    floor = times.get(FLOOR.name)
    return [_figure(name, stage.case.arguments, us, floor) for name, us in times.items()], missing


def _prepare(stage: Stage, contenders: Sequence[Contender]) -> tuple[dict[str, Timer], list[Unmeasured]]:
    """Prepare the contenders; those that fail or compute a wrong result are returned with the reason.

    `stage`: the case's bundle, tensors and device.
    """
    ready, missing = {}, []
    for contender in contenders:
        try:
            ready[contender.name] = _ready(stage, contender)
        except Exception as error:  # noqa: BLE001 - other software may raise anything; the report shows it
            missing.append(Unmeasured(contender.name, stage.case.arguments, _reason(error)))
    return ready, missing


def _ready(stage: Stage, contender: Contender) -> Timer:
    """Prepare a contender, launch once, and check the result.

    `stage`: the case's bundle, tensors and device.
    """
    timer = contender.prepare(stage)
    # the result of the previous contender must not pass for this one's
    stage.clear()
    timer(1)
    stage.synchronize()
    if not stage.correct():
        raise Unavailable("it launches, but the result is wrong")
    return timer


def _reason(error: Exception) -> str:
    words = " ".join(str(error).split())[:300]
    return words if isinstance(error, Unavailable) else f"{type(error).__name__}: {words}"


def _figure(name: str, arguments: int, us: Sequence[float], floor: Sequence[float] | None) -> LaunchFigure:
    best, median = min(us), statistics.median(us)
    if floor is None:
        return LaunchFigure(name, arguments, best, median, None, None)
    return LaunchFigure(name, arguments, best, median, best / min(floor), median / statistics.median(floor))
