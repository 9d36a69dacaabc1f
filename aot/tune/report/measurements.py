"""Content of the report: the measurements of each kernel and device, summarized by class of shapes. Pure.

Needs the extra ``tune``, for the shares of tunables.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nojit.aot.manifest.archs import arch_number
from nojit.aot.manifest.config_rules import CONFIG_RULES
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.tune.report.importance import Importance, Observation, explain, rank
from nojit.aot.tune.select.lookup import find_config
from nojit.aot.tune.select.measured_times import MeasuredTimes
from nojit.aot.tune.select.rules import TuningRules
from nojit.aot.tune.select.selection import Bounds, config_label, select
from nojit.aot.tune.select.summaries import TableFacts, table_facts
from nojit.aot.tune.store.records import Problem
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.expr import expression as expr
from nojit.runtime.tuning.tuned_tables import TunedConfig
from nojit.runtime.values import Value, spell

__all__ = ["BestFacts", "ClassFacts", "HeatMap", "KernelReport", "UnfitFacts", "report"]


@dataclass(frozen=True, slots=True)
class BestFacts:
    """The fastest config of one problem."""

    problem: str
    dtype: str
    config: str
    us: float
    noise: float
    """Half the width of the median's 95% interval, as a share."""
    rate: str
    """Such as `412 TFLOP/s` or `3,900 GB/s`."""
    default_loss: float | None
    """Slowdown of the manifest's config, as a share; None if not measured."""
    slowest: float
    """Time of the slowest config over the best."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Median cost of every pair of values of two tunables, over problems and the other tunables."""

    names: tuple[str, str]
    levels: tuple[tuple[str, ...], tuple[str, ...]]
    costs: tuple[tuple[float | None, ...], ...]
    """Time over the problem's best; one row for each level of the first; None where nothing was measured."""


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """The problems of one kernel with one class of shapes."""

    kernel: str
    device: str
    shape_class: str
    problems: int
    configs: int
    """Number of configs that were timed at some problem."""
    default_loss: float | None
    """Slowdown of the manifest's config, as a geometric mean over the problems."""
    default_worst: float | None
    """The same for the worst problem."""
    importance: Importance | None
    """None if nothing varies."""
    heat: HeatMap | None
    best: tuple[BestFacts, ...]


@dataclass(frozen=True, slots=True)
class UnfitFacts:
    """A config that was wrong, or failed."""

    config: str
    status: str
    problems: int
    """The number of problems at which the config was wrong or failed."""
    detail: str
    """The detail of the first such problem."""


@dataclass(frozen=True, slots=True)
class KernelReport:
    """The part of a tuning report about one kernel on one device."""

    kernel: str
    device: str
    facts: tuple[tuple[str, str], ...]
    """Origin of the measurements: pairs of a label and a text."""
    table: TableFacts
    classes: tuple[ClassFacts, ...]
    pruned: tuple[tuple[str, int], ...]
    """Pairs of a reason and the number of configs left out for it, most configs first."""
    unfit: tuple[UnfitFacts, ...]


def report(measured: MeasuredTimes, rules: TuningRules, bounds: Bounds) -> KernelReport:
    """Summarize the measurements of one kernel on one device.

    `measured`: all measurements of one kernel on one kind of device.
    """
    split: dict[str, list[int]] = {}
    for number, problem in measured.problems.items():
        if measured.timed(number):
            split.setdefault(problem.shape_class, []).append(number)
    return KernelReport(
        kernel=measured.kernel.name,
        device=measured.device.name,
        facts=_facts(measured),
        table=table_facts(measured, select(measured, rules, bounds), bounds, ""),
        classes=tuple(_class_facts(measured, rules, name, split[name]) for name in sorted(split)),
        pruned=tuple(
            sorted(Counter(one.reason for one in measured.pruned).items(), key=lambda item: (-item[1], item[0]))
        ),
        unfit=_unfit(measured),
    )


def _facts(measured: MeasuredTimes) -> tuple[tuple[str, str], ...]:
    device, runs = measured.device, [run for run, _ in measured.runs]
    noises = sorted(sample.noise for sample in measured.samples.values())
    clocks = sorted({sample.clock_mhz for sample in measured.samples.values() if sample.clock_mhz is not None})
    facts = {
        "device": f"{device.name}, {device.arch}, {device.multiprocessors} multiprocessors, {device.memory_bytes >> 20:,} MiB",
        "driver": _joined(one.driver for _, one in measured.runs),
        "clocks": f"{clocks[0]:,} to {clocks[-1]:,} MHz" if clocks else "",
        "measured": f"{min(run.started for run in runs)[:10]} to {max(run.started for run in runs)[:10]}, {len(runs)} run(s)",
        "bundle": _joined(f"{run.bundle} ({run.bundle_digest[:12]})" for run in runs),
        "software": _joined(f"nojit {run.nojit}, torch {run.torch}" for run in runs),
        "pairs timed": f"{len(measured.samples):,}: {len(measured.configs):,} configs, {len(measured.problems):,} problems",
        "noise": f"median {statistics.median(noises):.2%}, 95 % below {noises[len(noises) * 95 // 100]:.2%}"
        if noises
        else "",
    }
    return tuple((name, words) for name, words in facts.items() if words)


def _joined(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, words)))


def _class_facts(measured: MeasuredTimes, rules: TuningRules, name: str, problems: Sequence[int]) -> ClassFacts:
    importance = explain(_observations(measured, problems))
    best = tuple(_best(measured, rules, number) for number in problems)
    losses = [one.default_loss for one in best if one.default_loss is not None]
    mean = math.exp(math.fsum(math.log1p(loss) for loss in losses) / len(losses)) - 1 if losses else None
    return ClassFacts(
        kernel=measured.kernel.name,
        device=measured.device.name,
        shape_class=name,
        problems=len(problems),
        configs=len({config for number in problems for config in measured.timed(number)}),
        default_loss=mean,
        default_worst=max(losses, default=None),
        importance=importance,
        heat=_heat(measured, problems, list(importance.totals())[:2]) if importance else None,
        best=best,
    )


def _observations(measured: MeasuredTimes, problems: Iterable[int]) -> list[Observation]:
    return [
        Observation(measured.configs[config].settings, f"{number}", sample.us)
        for number in problems
        for config, sample in measured.timed(number).items()
    ]


def _best(measured: MeasuredTimes, rules: TuningRules, number: int) -> BestFacts:
    problem, timed = measured.problems[number], measured.timed(number)
    config, sample = next(iter(timed.items()))
    usual = _default_config(measured, rules, problem)
    return BestFacts(
        problem=problem.name,
        dtype=problem.dtype,
        config=config_label(measured.configs[config]),
        us=sample.us,
        noise=sample.noise,
        rate=_rate(problem, sample.us),
        default_loss=timed[usual].us / sample.us - 1 if usual in timed else None,
        slowest=max(one.us for one in timed.values()) / sample.us,
    )


def _rate(problem: Problem, us: float) -> str:
    if problem.flops > 100 * problem.moved_bytes:
        return f"{problem.flops / us / 1e6:.0f} TFLOP/s"
    return f"{problem.moved_bytes / us / 1e3:,.0f} GB/s"


def _heat(measured: MeasuredTimes, problems: Iterable[int], names: Sequence[str]) -> HeatMap | None:
    if len(names) < 2:
        return None
    one, other = names
    cells: dict[tuple[str, str], list[float]] = {}
    values: tuple[dict[str, Value], dict[str, Value]] = ({}, {})
    for number in problems:
        timed = measured.timed(number)
        best = next(iter(timed.values())).us
        for config, sample in timed.items():
            settings = measured.configs[config].settings
            place = (spell(settings.get(one)), spell(settings.get(other)))
            cells.setdefault(place, []).append(sample.us / best)
            values[0][place[0]], values[1][place[1]] = settings.get(one), settings.get(other)
    rows, columns = _sorted(values[0]), _sorted(values[1])
    costs = tuple(tuple(_median(cells.get((row, column))) for column in columns) for row in rows)
    return HeatMap((one, other), (rows, columns), costs)


def _median(costs: Sequence[float] | None) -> float | None:
    return statistics.median(costs) if costs else None


def _sorted(values: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(sorted(values, key=lambda text: rank(values[text])))


def _unfit(measured: MeasuredTimes) -> tuple[UnfitFacts, ...]:
    found: dict[tuple[int, str], list[str]] = {}
    for (_, config), one in measured.unfit.items():
        found.setdefault((config, one.status), []).append(one.detail)
    return tuple(
        UnfitFacts(config_label(measured.configs[config]), status, len(details), details[0])
        for (config, status), details in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def _default_config(measured: MeasuredTimes, rules: TuningRules, problem: Problem) -> int | None:
    """Return the manifest's first config for a problem's case and arch; None if it was not measured.

    `measured`: all measurements of one kernel on one kind of device.
    """
    arch = measured.device.arch
    for raw in rules.configs:
        if arch in raw.get("archs", (arch,)) and _holds(raw, problem, arch):
            settings = {name: OPTIONS[name].default for name in TUNABLE}
            settings |= {name: value for name, value in raw.items() if name not in CONFIG_RULES}
            return find_config(measured.configs, TunedConfig(tuple(settings.items()), raw.get("requires", "")))
    return None


def _holds(raw: Mapping[str, Any], problem: Problem, arch: str) -> bool:
    names = {"arch": arch_number(arch), **problem.case, **raw}
    plain = {name: value for name, value in names.items() if isinstance(value, bool | int | str)}
    try:
        return expr.parse(raw.get("when", "true")).evaluate(plain) is True
    except expr.ExpressionError:
        return False
