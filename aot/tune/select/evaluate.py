"""Evaluation of tuned tables: compare the config that a table selects with the best measured one, per problem. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nojit.aot.tune.select.lookup import find_config, look_up
from nojit.aot.tune.select.measured_times import MeasuredTimes
from nojit.aot.tune.select.rules import TuningRules
from nojit.aot.tune.select.selection import SelectedTable, config_label
from nojit.runtime.errors import TuningError
from nojit.runtime.expr.expression import parse
from nojit.runtime.tuning.tuned_tables import TunedTable

__all__ = ["Drift", "Evaluation", "ProblemShare", "evaluate", "mean_share", "repeat"]


@dataclass(frozen=True, slots=True)
class ProblemShare:
    """One problem: the selected config compared with the best."""

    problem: str
    shape_class: str
    dtype: str
    status: str
    """`ok`, `wrong` or `failed`: result of the selected config. `unmeasured`: no config of the table was timed. `untuned`: the table does not
    cover the case."""
    share: float | None
    """Best time over the selected config's time: 1 if the table selects the best, 0 if the selected config is wrong or failed, None if
    unknown."""
    config: str
    """Label of the selected config."""
    us: float | None
    best: str
    best_us: float | None
    candidates: int
    """Number of configs that were timed for the problem."""
    skipped: int
    """Number of configs that the table ranks before the selected one, but that were not measured for this problem."""
    at: tuple[int, ...]
    """Key of the table row that ranked the configs."""
    exact: bool
    """Whether the problem is in the row's buckets."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well a tuned table's selections do for one kernel on one device."""

    kernel: str
    device: str
    table: str
    """File of the table."""
    mean_share: float | None
    """Geometric mean over problems with a share."""
    worst_share: float | None
    problems: tuple[ProblemShare, ...]
    """Worst first."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One problem: the configs that two runs select, with the times of the first run."""

    kernel: str
    problem: str
    dtype: str
    first: str
    second: str
    drift: float | None
    """Slowdown of the second run's config against the first run's, as a share; negative if faster; None if the first run did not time both."""


def evaluate(measured: MeasuredTimes, table: TunedTable, rules: TuningRules) -> Evaluation:
    """Compare the config that a table selects with the best, for every problem of the measured.

    Raises:
        TuningError: the table's key differs from the measured one.
    """
    if list(map(parse, table.key)) != list(map(parse, measured.kernel.key)):
        what = f"expected the key that {table.kernel} was measured with ({', '.join(measured.kernel.key)})"
        got = f"{', '.join(table.key)}; write the table again with nojit tune select"
        raise TuningError(what, got=got, where=f"{table.path} $.key")
    shares = [_share(measured, table, rules, number) for number in measured.problems]
    shares.sort(key=lambda one: (one.share is not None, one.share or 0.0, one.problem))
    known = [one.share for one in shares if one.share is not None]
    return Evaluation(
        kernel=table.kernel,
        device=measured.device.name,
        table=table.path,
        mean_share=mean_share(known),
        worst_share=min(known, default=None),
        problems=tuple(shares),
    )


def mean_share(shares: Sequence[float]) -> float | None:
    """Return the geometric mean of shares: None if there are none, 0 if one is not positive."""
    if not shares or min(shares) <= 0:
        return 0.0 if shares else None
    return math.exp(math.fsum(map(math.log, shares)) / len(shares))


def _share(measured: MeasuredTimes, table: TunedTable, rules: TuningRules, number: int) -> ProblemShare:
    problem = measured.problems[number]
    timed = measured.timed(number)
    best = next(iter(timed), None)
    found = look_up(table, rules.bucket, problem, measured.device.multiprocessors)
    configs = [find_config(measured.configs, one) for one in found.use] if found else []
    place, choice, status = _choice(measured, number, configs)
    us = timed[choice].us if choice in timed else None
    best_us = timed[best].us if best is not None else None
    return ProblemShare(
        problem=problem.name,
        shape_class=problem.shape_class,
        dtype=problem.dtype,
        status=status if found else "untuned",
        share=best_us / us if us and best_us else (0.0 if status in {"wrong", "failed"} else None),
        config=config_label(measured.configs[choice]) if choice is not None else "",
        us=us,
        best=config_label(measured.configs[best]) if best is not None else "",
        best_us=best_us,
        candidates=len(timed),
        skipped=place,
        at=found.at if found else (),
        exact=bool(found and found.exact),
    )


def _choice(measured: MeasuredTimes, problem: int, configs: Sequence[int | None]) -> tuple[int, int | None, str]:
    """Return the first config that was tried for a problem: its index in `configs`, the config, and its status.

    The status is ``"ok"``, or the reason why the config cannot run. If none was tried: the length of `configs`, None and
    ``"unmeasured"``.

    Args:
        measured: the measurements.
        problem: number of the problem.
        configs: numbers of configs, in order of preference; None for a config that the database does not have.
    """
    for place, config in enumerate(configs):
        if config is not None and (problem, config) in measured.unfit:
            return place, config, measured.unfit[problem, config].status
        if config is not None and (problem, config) in measured.samples:
            return place, config, "ok"
    return len(configs), None, "unmeasured"


def repeat(
    measured: MeasuredTimes, first: SelectedTable, second: SelectedTable, rules: TuningRules
) -> tuple[Drift, ...]:
    """Compare the selections of two runs for each problem of the first, by the times of the first; largest drift first.

    `measured`: all measurements of one kernel on one kind of device.
    """
    drifts = []
    for number, problem in measured.problems.items():
        timed = measured.timed(number)
        chosen = []
        for selection in (first, second):
            found = look_up(selection.table, rules.bucket, problem, measured.device.multiprocessors)
            configs = [find_config(measured.configs, one) for one in found.use] if found else []
            chosen.append(next((config for config in configs if config is not None and config in timed), None))
        one, other = chosen
        drift = timed[other].us / timed[one].us - 1 if one is not None and other is not None else None
        words = [config_label(measured.configs[config]) if config is not None else "" for config in chosen]
        drifts.append(Drift(measured.kernel.name, problem.name, problem.dtype, words[0], words[1], drift))
    return tuple(sorted(drifts, key=lambda one: (one.drift is not None, -abs(one.drift or 0.0), one.problem)))
