"""Selection of a tuned table: find the fewest configs that keep every problem near its best time. Pure.

A *group* holds the problems of one kernel whose dtypes share measurements and whose `apart` axes have equal values. Each group has
its own portfolio. A row lists the whole portfolio in order of time, so that a call that does not satisfy the first config falls back
to the next.

Longer problems weigh more in means, but less than in proportion to their time: see `weight_of`.

A config that was wrong or failed for one problem is excluded for all problems of that class of cases, because the nearest
problem's row serves other calls as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from nojit.aot.tune.select.measured_times import MeasuredTimes, Sample
from nojit.aot.tune.select.portfolio import Portfolio, loss_curve, measure, smallest
from nojit.aot.tune.select.rules import Class, TuningRules, class_of, spell_class
from nojit.aot.tune.store.records import Config, Problem, identity_of
from nojit.runtime.table.tuning import TuningBlock
from nojit.runtime.tuning.lookup import bucket_of, ranked
from nojit.runtime.tuning.resolution import rows_of
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedCost, TunedEntry, TunedRow, TunedTable
from nojit.runtime.values import identity, spell

if TYPE_CHECKING:
    from nojit.aot.tune.select.cost import Estimates, Point

__all__ = ["Bounds", "Cell", "Group", "SelectedTable", "cells_of", "config_label", "dtypes_of", "select", "weight_of"]

# two times are equal if they differ by less than the sum of their noises, and by at most this share
_NOISE_MOST = 0.01
# round sums of weights to this many digits, because the order of summation changes the last ones
_DIGITS = 6
# a problem's weight is its best time to this power: decision 0018
_WEIGHT_POWER = 0.25


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a portfolio: its number of configs, and the loss that it may have."""

    loss: float = 0.05
    """Largest loss of a problem, as a share."""
    configs: int = 6
    """Largest number of configs, at least 1."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The problems of one row of a table: one class of cases, keys in one bucket."""

    cases: Class
    """The class of cases."""
    at: tuple[int, ...]
    """The key of the problems if all have the same key, else their bucket."""
    names: tuple[str, ...]
    """Names of the problems."""
    times: Mapping[int, Sample]
    """Time of each config by number: a geometric mean over the problems. Configs excluded for the class are left out."""
    own_weight: float = 1.0
    """The largest weight that the problems declare."""

    @property
    def weight(self) -> float:
        """The weight in means: `own_weight` times the weight by time."""
        return self.own_weight * weight_of(self.best_us)

    @property
    def best_us(self) -> float:
        """The time of the fastest config."""
        return min(sample.us for sample in self.times.values())

    def cost(self, config: int) -> float:
        """Return a config's time over the best; infinite if the config has no time."""
        return self.times[config].us / self.best_us if config in self.times else math.inf


@dataclass(frozen=True, slots=True)
class Group:
    """A group of problems with its portfolio."""

    dtypes: tuple[str, ...]
    apart: str
    """The values of the `apart` axes, as text; empty without such axes."""
    cells: tuple[Cell, ...]
    """The rows of the group."""
    configs: int
    """Number of candidate configs."""
    curve: tuple[Portfolio, ...]
    """The best portfolio of each size; its configs are numbers of the measured."""
    chosen: Portfolio
    unserved: tuple[str, ...]
    """Names of problems that no config serves."""
    early: int
    """Number of times of selected configs that come from an early rung, with few samples."""
    estimates: Estimates | None = None
    """Fitted costs of the portfolio; None without terms or enough measurements."""
    has_terms: bool = False
    """Whether the manifest has terms."""


@dataclass(frozen=True, slots=True)
class SelectedTable:
    """The selected portfolios and the table of one kernel and device."""

    groups: tuple[Group, ...]
    table: TunedTable


def weight_of(best_us: float) -> float:
    """Return the weight of a problem by its best time."""
    return math.pow(best_us, _WEIGHT_POWER)


def select(
    measured: MeasuredTimes, rules: TuningRules, bounds: Bounds, origin: Mapping[str, str] | None = None
) -> SelectedTable:
    """Select the portfolio of each group, and order it for each problem.

    Args:
        measured: the measurements of the problems to tune for.
        rules: the kernel's tuning rules.
        bounds: limits of the portfolios.
        origin: entries of the table's ``origin``.
    """
    split: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for number, problem in measured.problems.items():
        split.setdefault((dtypes_of(rules, problem), apart_of(rules, problem)), []).append(number)
    groups = tuple(_group(measured, rules, of, split[of], bounds) for of in sorted(split))
    return SelectedTable(groups, _table(measured, groups, origin or {}, rules.names))


def dtypes_of(rules: TuningRules, problem: Problem) -> tuple[str, ...]:
    """Return the dtypes that share a problem's measurements."""
    value = problem.case.get("dtype", problem.dtype)
    return tuple(one if isinstance(one, str) else spell(one) for one in rules.group("dtype", value))


def apart_of(rules: TuningRules, problem: Problem) -> str:
    """Return the values of a problem's `apart` axes as text."""
    known = class_of(rules, problem.case)
    return spell_class(tuple(one for one in known if one[0] in rules.apart))


def config_label(config: Config) -> str:
    """Return a config as text for messages and reports."""
    words = " ".join(f"{name}={spell(value)}" for name, value in config.settings.items() if value is not None)
    return f"{words} requires {config.requires}" if config.requires else words


def cells_of(
    measured: MeasuredTimes, rules: TuningRules, problems: Iterable[int]
) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """Merge problems with equal class and bucket into rows; return the rows, and the names of problems that no config serves.

    `measured`: all measurements of one kernel on one kind of device.
    """
    places: dict[tuple[Class, tuple[int, ...]], list[int]] = {}
    classes: dict[tuple[object, ...], Class] = {}
    for number in problems:
        problem = measured.problems[number]
        known = class_of(rules, problem.case)
        # True and 1 are one key of a dict
        known = classes.setdefault(tuple((axis, identity(values)) for axis, values in known), known)
        key = tuple(bucket_of(rules.bucket, value) for value in problem.key)
        places.setdefault((known, key), []).append(number)
    excluded = _excluded(measured, rules)
    cells: list[Cell] = []
    unserved: list[str] = []
    for (known, key), members in sorted(places.items(), key=lambda item: (spell_class(item[0][0]), item[0][1])):
        times = _times(measured, members, excluded.get(spell_class(known), set()))
        names = tuple(measured.problems[number].name for number in members)
        keys = {measured.problems[number].key for number in members}
        if times:
            own = max(measured.problems[number].weight for number in members)
            cells.append(Cell(known, keys.pop() if len(keys) == 1 else key, names, times, own))
        else:
            unserved += names
    return tuple(cells), tuple(unserved)


def _excluded(measured: MeasuredTimes, rules: TuningRules) -> dict[str, set[int]]:
    """Return for each class of cases the configs that were wrong or failed for one of its problems.

    `measured`: all measurements of one kernel on one kind of device.
    """
    excluded: dict[str, set[int]] = {}
    for problem, config in measured.unfit:
        known = class_of(rules, measured.problems[problem].case)
        excluded.setdefault(spell_class(known), set()).add(config)
    return excluded


def _times(measured: MeasuredTimes, problems: Sequence[int], excluded: set[int]) -> dict[int, Sample]:
    """Combine the times of problems that share a row: return for each config the weighted mean of its costs, scaled to a time.

    `measured`: all measurements of one kernel on one kind of device; `excluded`: configs that were wrong or failed.
    """
    found: dict[int, list[tuple[Sample, float, float]]] = {}
    bests = []
    for problem in problems:
        timed = {config: sample for config, sample in measured.timed(problem).items() if config not in excluded}
        if timed:
            bests.append(min(sample.us for sample in timed.values()))
            for config, sample in timed.items():
                weight = measured.problems[problem].weight * weight_of(bests[-1])
                found.setdefault(config, []).append((sample, sample.us / bests[-1], weight))
    scale = _mean(bests, [1.0] * len(bests)) if bests else 0.0
    return {config: _combined(ones, scale) for config, ones in sorted(found.items())}


def _combined(ones: Sequence[tuple[Sample, float, float]], scale: float) -> Sample:
    """Return the combined sample of one config.

    Args:
        ones: for each problem its sample, cost and weight.
        scale: the time of cost 1, in microseconds.
    """
    samples, costs, weights = zip(*ones, strict=True)
    us = scale * _mean(costs, weights)
    return Sample(
        us=us,
        noise=max(sample.noise for sample in samples),
        rung=min(sample.rung for sample in samples),
        last=all(sample.last for sample in samples),
        clock_mhz=samples[0].clock_mhz if len(samples) == 1 else None,
    )


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = math.fsum(weight * math.log(value) for weight, value in zip(weights, values, strict=True))
    return math.exp(total / math.fsum(weights))


def _group(
    measured: MeasuredTimes,
    rules: TuningRules,
    of: tuple[tuple[str, ...], str],
    problems: Sequence[int],
    bounds: Bounds,
) -> Group:
    cells, unserved = cells_of(measured, rules, problems)
    configs = _without_narrower(measured, cells)
    if not cells:
        return Group(*of, (), 0, (), Portfolio((), math.inf, math.inf, exact=True), unserved, 0)
    costs = [[cell.cost(config) for config in configs] for cell in cells]
    weights = [cell.weight for cell in cells]
    plain = [row for row in _plain_rows(measured, cells, configs) if 1.0 in row]
    # every config has cost 1 in a plain row, so the weight of the row does not matter
    curve = tuple(
        _numbered(measure(costs, one.configs, weights, exact=one.exact), configs)
        for one in loss_curve([*costs, *plain], bounds.loss, bounds.configs, [*weights, *[1.0] * len(plain)])
    )
    chosen = smallest(curve, bounds.loss) if curve else Portfolio((), math.inf, math.inf, exact=True)
    early = sum(not cell.times[config].last for cell in cells for config in chosen.configs if config in cell.times)
    estimated = _estimates(measured, rules, cells, chosen.configs) if rules.terms and chosen.configs else None
    return Group(*of, cells, len(configs), curve, chosen, unserved, early, estimated, bool(rules.terms))


def _without_narrower(measured: MeasuredTimes, cells: Sequence[Cell]) -> list[int]:
    """Return the configs that serve a row, without those whose rows are a subset of the rows of a config with the same settings.

    The manifest and the space may list the same settings with different rules. The config of fewer rows would only reject calls.

    `measured`: all measurements of one kernel on one kind of device.
    """
    served: dict[int, set[int]] = {}
    for place, cell in enumerate(cells):
        for config in cell.times:
            served.setdefault(config, set()).add(place)
    kept: dict[str, list[int]] = {}
    for config in sorted(served, key=lambda one: (-len(served[one]), one)):
        others = kept.setdefault(identity_of(measured.configs[config].settings), [])
        if not any(served[config] <= served[other] for other in others):
            others.append(config)
    return sorted(config for ones in kept.values() for config in ones)


def _estimates(
    measured: MeasuredTimes, rules: TuningRules, cells: Sequence[Cell], configs: Sequence[int]
) -> Estimates | None:
    from nojit.aot.tune.select.cost import Point, Terms, estimates  # needs scipy, and few kernels have terms

    points = [
        Point(
            cases=cell.cases,
            at=cell.at,
            rounded=tuple(bucket_of(rules.bucket, value) for value in cell.at),
            us={number: sample.us for number, sample in cell.times.items()},
            weight=cell.weight,
        )
        for cell in cells
    ]
    terms = Terms(rules, measured.configs, measured.device.multiprocessors)
    return estimates(terms, points, configs, partial(_by_rows, rules.bucket, configs))


def _by_rows(bucket: str, configs: Sequence[int], points: Sequence[Point]) -> Callable[[Point], Sequence[int]]:
    """Return the ranking by near rows of a table that has only these points."""
    rows: dict[str, dict[tuple[int, ...], TunedRow]] = {}
    for point in points:
        us = dict(sorted(((one, point.us[one]) for one in configs if one in point.us), key=itemgetter(1)))
        if us:
            rows.setdefault(spell_class(point.cases), {})[point.at] = TunedRow(point.at, tuple(us), tuple(us.values()))
    numbers = range(max(configs) + 1)
    blocks = {
        name: TuningBlock.of((), rows_of(TunedEntry((), tuple(known.values())), numbers, bucket))
        for name, known in rows.items()
    }

    def order(point: Point) -> Sequence[int]:
        block = blocks.get(spell_class(point.cases))
        return () if block is None else ranked(block, point.rounded, 0)

    return order


def _plain_rows(measured: MeasuredTimes, cells: Sequence[Cell], configs: Sequence[int]) -> Iterable[list[float]]:
    """Yield for each class of cases an artificial row of costs that only configs without ``requires`` can serve.

    A portfolio that serves these rows has a config without ``requires`` for every class.

    `measured`: all measurements of one kernel on one kind of device.
    """
    classes = {spell_class(cell.cases): cell.cases for cell in cells}
    for known in classes:
        served = {config for cell in cells if spell_class(cell.cases) == known for config in cell.times}
        plain = {config for config in served if not measured.configs[config].requires}
        yield [1.0 if config in plain else math.inf for config in configs]


def _numbered(one: Portfolio, configs: Sequence[int]) -> Portfolio:
    return Portfolio(tuple(configs[place] for place in one.configs), one.worst, one.mean, one.exact)


def _table(
    measured: MeasuredTimes, groups: Sequence[Group], origin: Mapping[str, str], names: tuple[str, ...]
) -> TunedTable:
    pool = _pool(measured, groups)
    numbers = {config: number for number, config in enumerate(pool)}
    entries: dict[str, TunedEntry] = {}
    for group in groups:
        for cell in group.cells:
            order = _order(cell, [config for config in pool if config in group.chosen.configs])
            use = tuple(numbers[config] for config in order)
            row = TunedRow(cell.at, use, tuple(max(round(cell.times[config].us, 2), 0.01) for config in order))
            name = spell_class(cell.cases)
            before = entries[name].rows if name in entries else ()
            if use:
                entries[name] = TunedEntry(cell.cases, tuple(sorted((*before, row), key=lambda row: row.at)))
    for group in groups:
        # True and 1 are one key of a dict
        for name, known in {spell_class(cell.cases): cell.cases for cell in group.cells}.items():
            if name in entries:
                entries[name] = replace(entries[name], costs=_costs(group, known, entries[name], numbers))
    varied = _varied(measured)
    configs = tuple(_tuned_config(measured.configs[config], varied) for config in pool)
    return TunedTable(
        kernel=measured.kernel.name,
        key=measured.kernel.key,
        device=measured.device,
        origin=tuple(sorted(origin.items())),
        configs=configs,
        entries=tuple(entries[name] for name in sorted(entries)),
        names=names if any(entry.costs for entry in entries.values()) else (),
    )


def _costs(group: Group, known: Class, entry: TunedEntry, numbers: Mapping[int, int]) -> tuple[TunedCost, ...]:
    """Return the costs of an entry's configs as expressions, in the table's order; empty if near rows rank better."""
    if group.estimates is None or not group.estimates.decide:
        return ()
    texts = group.estimates.texts(known)
    # configs excluded for the class are in none of its rows
    serving = {number for row in entry.rows for number in row.use}
    return tuple(TunedCost(number, texts[one]) for one, number in numbers.items() if number in serving)


def _varied(measured: MeasuredTimes) -> set[str]:
    """Return the names of settings that some configs have and others lack.

    `measured`: all measurements of one kernel on one kind of device.
    """
    has = [
        {name for name, value in config.settings.items() if value is not None} for config in measured.configs.values()
    ]
    return {name for names in has for name in names if not all(name in other for other in has)}


def _tuned_config(config: Config, varied: set[str]) -> TunedConfig:
    """Return a config for the table, without options that are None in every config."""
    settings = [(name, value) for name, value in config.settings.items() if value is not None or name in varied]
    return TunedConfig(tuple(sorted(settings, key=lambda setting: (setting[0].islower(), setting[0]))), config.requires)


def _pool(measured: MeasuredTimes, groups: Sequence[Group]) -> list[int]:
    """Return the selected configs of all groups, ordered by the weight of the rows where they are best or within noise of it.

    `measured`: all measurements of one kernel on one kind of device.
    """
    wins: dict[int, float] = {config: 0.0 for group in groups for config in group.chosen.configs}
    for group in groups:
        for cell in group.cells:
            able = [config for config in group.chosen.configs if config in cell.times]
            for config in able:
                if _is_as_fast(cell, config, min(able, key=lambda one: cell.times[one].us)):
                    wins[config] += cell.weight
    return sorted(
        wins, key=lambda config: (-round(wins[config], _DIGITS), identity_of(measured.configs[config].settings), config)
    )


def _order(cell: Cell, pool: Sequence[int]) -> list[int]:
    """Return the configs of a row in order of time; configs within noise keep the order of the pool."""
    left = [config for config in pool if config in cell.times]
    order = []
    while left:
        fastest = min(left, key=lambda config: cell.times[config].us)
        order.append(next(config for config in left if _is_as_fast(cell, config, fastest)))
        left.remove(order[-1])
    return order


def _is_as_fast(cell: Cell, config: int, fastest: int) -> bool:
    one, best = cell.times[config], cell.times[fastest]
    return one.us <= best.us * (1 + min(one.noise + best.noise, _NOISE_MOST))
