"""From measurements to a tuned table: the fewest configs that keep every problem near its best, in order. Pure.

Problems of a kernel whose dtypes stand for one another make a *group*, and each group has a portfolio of its own; values
of axes that the manifest calls `apart` have groups of their own, too. A problem's row lists the whole portfolio, so that
a call that the first config cannot serve has the next best one.

Problems that take long weigh more than those that a launch is most of, but by far not as much as they take longer: see
`weight_of`.

A config that computed something wrong, or failed, at one problem is kept from all problems of the same class of meanings:
a table is looked up by the nearest problem, and nothing says that the fault stays where it was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from nojit.aot.tune.events import identity_of
from nojit.aot.tune.evidence import Evidence, Sample
from nojit.aot.tune.portfolio import Portfolio, loss_curve, measure, smallest
from nojit.aot.tune.records import Config, Problem
from nojit.aot.tune.rules import Class, TuningRules, class_of, spell_class
from nojit.runtime.neighbours import ranked
from nojit.runtime.tuned import TunedConfig, TunedCost, TunedEntry, TunedRow, TunedTable
from nojit.runtime.tuning import bucket_of, rows_of
from nojit.runtime.tuning_table import TuningBlock
from nojit.runtime.values import identity, spell

if TYPE_CHECKING:
    from nojit.aot.tune.cost import Estimates, Point

__all__ = ["Bounds", "Case", "Group", "Selection", "cases_of", "config_label", "dtypes_of", "select", "weight_of"]

# two times that differ by less than both of their noises are one, up to this share
_NOISE_MOST = 0.01
# sums of weights that differ by less are one, whatever the order of the sum
_DIGITS = 6
# of the best time: what weighs best on problems that are left out, see decision 0018
_WEIGHT_POWER = 0.25


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a portfolio is held to."""

    loss: float = 0.05
    """How far from its best a problem may stay, as a fraction."""
    configs: int = 6
    """How many a portfolio may have, at least 1."""


@dataclass(frozen=True, slots=True)
class Case:
    """Problems of one class of meanings whose keys lie in one bucket: what a table has one row for."""

    meanings: Class
    at: tuple[int, ...]
    """Key values: the problems' own if they agree, else the bucket's."""
    names: tuple[str, ...]
    """Of the problems."""
    times: Mapping[int, Sample]
    """By config, the geometric mean over the problems; without configs that must not serve the class."""
    own_weight: float = 1.0
    """The greatest of the problems' own."""

    @property
    def weight(self) -> float:
        """How much it counts: its own weight times what its best time says."""
        return self.own_weight * weight_of(self.best_us)

    @property
    def best_us(self) -> float:
        """The time of the fastest config."""
        return min(sample.us for sample in self.times.values())

    def cost(self, config: int) -> float:
        """Return a config's time over the best; infinite if it cannot serve."""
        return self.times[config].us / self.best_us if config in self.times else math.inf


@dataclass(frozen=True, slots=True)
class Group:
    """The portfolio of the problems of some dtypes."""

    dtypes: tuple[str, ...]
    apart: str
    """The values of axes that are `apart`, as a class is spelled; empty without such axes."""
    cases: tuple[Case, ...]
    configs: int
    """How many there were to choose from."""
    curve: tuple[Portfolio, ...]
    """What the best portfolio of each size leaves; its configs are numbers of the evidence."""
    chosen: Portfolio
    unserved: tuple[str, ...]
    """Problems that no config serves."""
    early: int
    """How many times of chosen configs are from an early rung, where few samples were taken."""
    estimates: Estimates | None = None
    """What its configs are estimated to take; None if the manifest has no terms, or too little was measured."""
    has_terms: bool = False
    """Whether the manifest has terms."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen for one kernel on one device."""

    groups: tuple[Group, ...]
    table: TunedTable


def weight_of(best_us: float) -> float:
    """Say how much a problem counts by its best time, beside its own weight."""
    return math.pow(best_us, _WEIGHT_POWER)


def select(
    evidence: Evidence, rules: TuningRules, bounds: Bounds, origin: Mapping[str, str] | None = None
) -> Selection:
    """Choose the portfolio of each group, and order it for each problem.

    Args:
        evidence: of problems to tune for.
        rules: the manifest's.
        bounds: of portfolios.
        origin: what the table says of where it comes from.
    """
    split: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for number, problem in evidence.problems.items():
        split.setdefault((dtypes_of(rules, problem), apart_of(rules, problem)), []).append(number)
    groups = tuple(_group(evidence, rules, of, split[of], bounds) for of in sorted(split))
    return Selection(groups, _table(evidence, groups, origin or {}, rules.names))


def dtypes_of(rules: TuningRules, problem: Problem) -> tuple[str, ...]:
    """Return the dtypes that a problem's measurements stand for."""
    value = problem.meaning.get("dtype", problem.dtype)
    return tuple(one if isinstance(one, str) else spell(one) for one in rules.group("dtype", value))


def apart_of(rules: TuningRules, problem: Problem) -> str:
    """Write what keeps a problem's portfolio from others of its dtypes."""
    known = class_of(rules, problem.meaning)
    return spell_class(tuple(one for one in known if one[0] in rules.apart))


def config_label(config: Config) -> str:
    """Write a config for people."""
    words = " ".join(f"{name}={spell(value)}" for name, value in config.settings.items() if value is not None)
    return f"{words} requires {config.requires}" if config.requires else words


def cases_of(
    evidence: Evidence, rules: TuningRules, problems: Iterable[int]
) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """Merge problems into cases; and name those that no config serves."""
    places: dict[tuple[Class, tuple[int, ...]], list[int]] = {}
    classes: dict[tuple[object, ...], Class] = {}
    for number in problems:
        problem = evidence.problems[number]
        known = class_of(rules, problem.meaning)
        # True and 1 are one key of a dict
        known = classes.setdefault(tuple((axis, identity(values)) for axis, values in known), known)
        key = tuple(bucket_of(rules.bucket, value) for value in problem.key)
        places.setdefault((known, key), []).append(number)
    barred = _barred(evidence, rules)
    cases: list[Case] = []
    unserved: list[str] = []
    for (known, key), members in sorted(places.items(), key=lambda item: (spell_class(item[0][0]), item[0][1])):
        times = _times(evidence, members, barred.get(spell_class(known), set()))
        names = tuple(evidence.problems[number].name for number in members)
        keys = {evidence.problems[number].key for number in members}
        if times:
            own = max(evidence.problems[number].weight for number in members)
            cases.append(Case(known, keys.pop() if len(keys) == 1 else key, names, times, own))
        else:
            unserved += names
    return tuple(cases), tuple(unserved)


def _barred(evidence: Evidence, rules: TuningRules) -> dict[str, set[int]]:
    """List by class the configs that were wrong or failed at some problem of it."""
    barred: dict[str, set[int]] = {}
    for problem, config in evidence.unfit:
        known = class_of(rules, evidence.problems[problem].meaning)
        barred.setdefault(spell_class(known), set()).add(config)
    return barred


def _times(evidence: Evidence, problems: Sequence[int], barred: set[int]) -> dict[int, Sample]:
    """Combine the times of problems that share a row: relative to each one's best, by the problems' weights."""
    found: dict[int, list[tuple[Sample, float, float]]] = {}
    bests = []
    for problem in problems:
        timed = {config: sample for config, sample in evidence.timed(problem).items() if config not in barred}
        if timed:
            bests.append(min(sample.us for sample in timed.values()))
            for config, sample in timed.items():
                weight = evidence.problems[problem].weight * weight_of(bests[-1])
                found.setdefault(config, []).append((sample, sample.us / bests[-1], weight))
    scale = _mean(bests, [1.0] * len(bests)) if bests else 0.0
    return {config: _combined(ones, scale) for config, ones in sorted(found.items())}


def _combined(ones: Sequence[tuple[Sample, float, float]], scale: float) -> Sample:
    """Combine samples of one config, each given with its time over the best of its problem, and the problem's weight."""
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
    evidence: Evidence, rules: TuningRules, of: tuple[tuple[str, ...], str], problems: Sequence[int], bounds: Bounds
) -> Group:
    cases, unserved = cases_of(evidence, rules, problems)
    configs = _widest(evidence, cases)
    if not cases:
        return Group(*of, (), 0, (), Portfolio((), math.inf, math.inf, exact=True), unserved, 0)
    costs = [[case.cost(config) for config in configs] for case in cases]
    weights = [case.weight for case in cases]
    plain = [row for row in _plain_rows(evidence, cases, configs) if 1.0 in row]
    # who serves one of them loses nothing there: any weight would do
    curve = tuple(
        _numbered(measure(costs, one.configs, weights, exact=one.exact), configs)
        for one in loss_curve([*costs, *plain], bounds.loss, bounds.configs, [*weights, *[1.0] * len(plain)])
    )
    chosen = smallest(curve, bounds.loss) if curve else Portfolio((), math.inf, math.inf, exact=True)
    early = sum(not case.times[config].last for case in cases for config in chosen.configs if config in case.times)
    estimated = _estimates(evidence, rules, cases, chosen.configs) if rules.terms and chosen.configs else None
    return Group(*of, cases, len(configs), curve, chosen, unserved, early, estimated, bool(rules.terms))


def _widest(evidence: Evidence, cases: Sequence[Case]) -> list[int]:
    """List the configs that serve a case, without those whose settings another has that serves as many cases and more.

    What a space tries may stand in the manifest, too, with a rule of its own: the narrower of the two would only refuse calls.
    """
    served: dict[int, set[int]] = {}
    for place, case in enumerate(cases):
        for config in case.times:
            served.setdefault(config, set()).add(place)
    kept: dict[str, list[int]] = {}
    for config in sorted(served, key=lambda one: (-len(served[one]), one)):
        others = kept.setdefault(identity_of(evidence.configs[config].settings), [])
        if not any(served[config] <= served[other] for other in others):
            others.append(config)
    return sorted(config for ones in kept.values() for config in ones)


def _estimates(
    evidence: Evidence, rules: TuningRules, cases: Sequence[Case], configs: Sequence[int]
) -> Estimates | None:
    from nojit.aot.tune.cost import Point, Terms, estimates  # noqa: PLC0415 - needs scipy, and few kernels have terms

    points = [
        Point(
            meanings=case.meanings,
            at=case.at,
            rounded=tuple(bucket_of(rules.bucket, value) for value in case.at),
            us={number: sample.us for number, sample in case.times.items()},
            weight=case.weight,
        )
        for case in cases
    ]
    terms = Terms(rules, evidence.configs, evidence.device.multiprocessors)
    return estimates(terms, points, configs, partial(_by_rows, rules.bucket, configs))


def _by_rows(bucket: str, configs: Sequence[int], points: Sequence[Point]) -> Callable[[Point], Sequence[int]]:
    """Order configs as a table of these points alone would."""
    rows: dict[str, dict[tuple[int, ...], TunedRow]] = {}
    for point in points:
        us = dict(sorted(((one, point.us[one]) for one in configs if one in point.us), key=itemgetter(1)))
        if us:
            rows.setdefault(spell_class(point.meanings), {})[point.at] = TunedRow(
                point.at, tuple(us), tuple(us.values())
            )
    numbers = range(max(configs) + 1)
    blocks = {
        name: TuningBlock.of((), rows_of(TunedEntry((), tuple(known.values())), numbers, bucket))
        for name, known in rows.items()
    }

    def way(point: Point) -> Sequence[int]:
        block = blocks.get(spell_class(point.meanings))
        return () if block is None else ranked(block, point.rounded, 0)

    return way


def _plain_rows(evidence: Evidence, cases: Sequence[Case], configs: Sequence[int]) -> Iterable[list[float]]:
    """Make a row for each class that only configs that require nothing serve, so that each class has one of them."""
    classes = {spell_class(case.meanings): case.meanings for case in cases}
    for known in classes:
        served = {config for case in cases if spell_class(case.meanings) == known for config in case.times}
        plain = {config for config in served if not evidence.configs[config].requires}
        yield [1.0 if config in plain else math.inf for config in configs]


def _numbered(one: Portfolio, configs: Sequence[int]) -> Portfolio:
    return Portfolio(tuple(configs[place] for place in one.configs), one.worst, one.mean, one.exact)


def _table(
    evidence: Evidence, groups: Sequence[Group], origin: Mapping[str, str], names: tuple[str, ...]
) -> TunedTable:
    pool = _pool(evidence, groups)
    numbers = {config: number for number, config in enumerate(pool)}
    entries: dict[str, TunedEntry] = {}
    for group in groups:
        for case in group.cases:
            order = _order(case, [config for config in pool if config in group.chosen.configs])
            use = tuple(numbers[config] for config in order)
            row = TunedRow(case.at, use, tuple(max(round(case.times[config].us, 2), 0.01) for config in order))
            name = spell_class(case.meanings)
            before = entries[name].rows if name in entries else ()
            if use:
                entries[name] = TunedEntry(case.meanings, tuple(sorted((*before, row), key=lambda row: row.at)))
    for group in groups:
        # True and 1 are one key of a dict
        for name, known in {spell_class(case.meanings): case.meanings for case in group.cases}.items():
            if name in entries:
                entries[name] = replace(entries[name], costs=_costs(group, known, entries[name], numbers))
    varied = _varied(evidence)
    configs = tuple(_tuned_config(evidence.configs[config], varied) for config in pool)
    return TunedTable(
        kernel=evidence.kernel.name,
        key=evidence.kernel.key,
        device=evidence.device,
        origin=tuple(sorted(origin.items())),
        configs=configs,
        entries=tuple(entries[name] for name in sorted(entries)),
        names=names if any(entry.costs for entry in entries.values()) else (),
    )


def _costs(group: Group, known: Class, entry: TunedEntry, numbers: Mapping[int, int]) -> tuple[TunedCost, ...]:
    """Write what the configs of a class's entry are estimated to take, in the table's order; nothing if rows decide."""
    if group.estimates is None or not group.estimates.decide:
        return ()
    texts = group.estimates.texts(known)
    # what must not serve the class is in none of its rows
    serving = {number for row in entry.rows for number in row.use}
    return tuple(TunedCost(number, texts[one]) for one, number in numbers.items() if number in serving)


def _varied(evidence: Evidence) -> set[str]:
    """List the settings that some config has and another has not."""
    has = [
        {name for name, value in config.settings.items() if value is not None} for config in evidence.configs.values()
    ]
    return {name for names in has for name in names if not all(name in other for other in has)}


def _tuned_config(config: Config, varied: set[str]) -> TunedConfig:
    """Name a config's settings, without options that no config sets."""
    settings = [(name, value) for name, value in config.settings.items() if value is not None or name in varied]
    return TunedConfig(tuple(sorted(settings, key=lambda setting: (setting[0].islower(), setting[0]))), config.requires)


def _pool(evidence: Evidence, groups: Sequence[Group]) -> list[int]:
    """Order the chosen configs of all groups: first whoever is best, or as good, where most of the weight is."""
    wins: dict[int, float] = {config: 0.0 for group in groups for config in group.chosen.configs}
    for group in groups:
        for case in group.cases:
            able = [config for config in group.chosen.configs if config in case.times]
            for config in able:
                if _is_as_fast(case, config, min(able, key=lambda one: case.times[one].us)):
                    wins[config] += case.weight
    return sorted(
        wins, key=lambda config: (-round(wins[config], _DIGITS), identity_of(evidence.configs[config].settings), config)
    )


def _order(case: Case, pool: Sequence[int]) -> list[int]:
    """Order configs by time; of those that noise does not tell apart, the first of the pool comes first."""
    left = [config for config in pool if config in case.times]
    order = []
    while left:
        fastest = min(left, key=lambda config: case.times[config].us)
        order.append(next(config for config in left if _is_as_fast(case, config, fastest)))
        left.remove(order[-1])
    return order


def _is_as_fast(case: Case, config: int, fastest: int) -> bool:
    one, best = case.times[config], case.times[fastest]
    return one.us <= best.us * (1 + min(one.noise + best.noise, _NOISE_MOST))
