"""Cost models: estimate the time of each config, to rank the configs for calls that were not measured.

A manifest names the terms of a kernel, such as the number of waves. The model of a config's time is a constant plus each term
times a factor; none is negative. The fit minimizes the squared relative errors of all measurements of the config, or of those
in one class of cases. Cross-validation selects the better of these two fits. Pure.

Needs the extra ``tune``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from zlib import crc32

import numpy as np
from nojit.aot.manifest.expression_tree import Expression, parse, substitute
from nojit.aot.tune.select.rules import Class, TuningRules, spell_class
from nojit.aot.tune.store.records import Config
from nojit.runtime import _core
from nojit.runtime.errors import TuningError
from nojit.runtime.expr.operations import ExpressionError, Value
from nojit.runtime.tuning.costs import cost_words, is_cost
from nojit.runtime.tuning.tuned_tables import MULTIPROCESSORS
from nojit.runtime.values import DType, FunctionRef
from scipy.optimize import nnls

__all__ = ["Cost", "Estimates", "Point", "Terms", "estimates", "fit_costs"]

_PS = 1e6
"""Picoseconds in a microsecond."""
_FOLDS = 5
# a class of cases gets its own fit if it has this many measurements per factor
_SAMPLES_PER_FACTOR = 2
# factors below this many picoseconds are written as a fraction of 1024
_SMALL = 1000
_SHARE = 1024


@dataclass(frozen=True, slots=True)
class Point:
    """The measurements of one key in one class of cases."""

    cases: Class
    """The class of cases."""
    at: tuple[int, ...]
    """The key."""
    rounded: tuple[int, ...]
    """The key, rounded to its bucket."""
    us: Mapping[int, float]
    """Microseconds of each config, by number; not empty."""
    weight: float
    """Weight in means over points."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The fitted time of a config, in picoseconds."""

    constant: float
    factors: tuple[float, ...]
    """The factor of each term."""

    def expression(self, terms: Sequence[Expression]) -> str:
        """Return the cost as an expression: the constant plus each factor times its term, without addends of 0."""
        constant = round(self.constant)
        parts = [str(constant) if constant else ""]
        parts += [_product(factor, term) for factor, term in zip(self.factors, terms, strict=True)]
        return parse(" + ".join(filter(None, parts)) or "0").text


Ranking: TypeAlias = Callable[[Point], Sequence[int]]
"""A function that returns the configs for a point, best first."""
Costs: TypeAlias = Mapping[str, Mapping[int, Cost]]
"""For each class of cases, as text, the cost of each config by number."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a kernel, on one device."""

    rules: TuningRules
    configs: Mapping[int, Config]
    multiprocessors: int

    def of(self, config: int, cases: Class) -> tuple[Expression, ...]:
        """Return the terms with the constants of a config and of a class of cases inserted.

        `cases`: the class: for each axis, the values that share measurements.
        """
        known = self._constants(config, cases)
        return tuple(substitute(parse(term), known) for term in self.rules.terms)

    def at(self, config: int, cases: Class, key: tuple[int, ...]) -> list[float] | None:
        """Return the value of each term for a config and a key; None if a term cannot be evaluated.

        `cases`: the class: for each axis, the values that share measurements.
        """
        names = self._constants(config, cases) | dict(zip(self.rules.names, key, strict=True))
        names[MULTIPROCESSORS] = self.multiprocessors
        try:
            return [_number(parse(term).evaluate(names)) for term in self.rules.terms]
        except ExpressionError:
            return None

    def _constants(self, config: int, cases: Class) -> dict[str, Value]:
        values = {axis: values[0] for axis, values in cases} | dict(self.configs[config].settings)
        return {name: value for name, value in values.items() if not isinstance(value, DType | FunctionRef | tuple)}


def fit_costs(terms: Terms, points: Sequence[Point], configs: Sequence[int], *, own: bool) -> Costs:
    """Fit the cost of each config that has at least as many measurements as the model has factors.

    Args:
        terms: the kernel's terms.
        points: all measurements.
        configs: the configs to fit.
        own: fit each class of cases separately, if it has enough measurements.
    """
    every = _fitted(terms, points, configs, len(terms.rules.terms) + 1)
    classes: dict[str, list[Point]] = {}
    for point in points:
        classes.setdefault(spell_class(point.cases), []).append(point)
    least = _SAMPLES_PER_FACTOR * (len(terms.rules.terms) + 1)
    return {
        name: {**every, **(_fitted(terms, those, configs, least) if own else {})} for name, those in classes.items()
    }


def _fitted(terms: Terms, points: Sequence[Point], configs: Sequence[int], least: int) -> dict[int, Cost]:
    """Return the fitted cost of each config that has at least `least` measurements."""
    costs: dict[int, Cost] = {}
    for config in configs:
        measured = [(p.us[config], terms.at(config, p.cases, p.at)) for p in points if config in p.us]
        rows = [[1.0 / us, *(value / us for value in values)] for us, values in measured if values is not None]
        if len(rows) < least:
            continue
        matrix = np.array(rows)
        # scaled, because terms differ by many orders of magnitude
        scale = np.where(matrix.max(axis=0) > 0, matrix.max(axis=0), 1.0)
        factors, _ = nnls(matrix / scale, np.ones(len(rows)))
        constant, *others = (float(factor) for factor in factors / scale * _PS)
        costs[config] = Cost(constant, tuple(others))
    return costs


def ranking_of(terms: Terms, costs: Costs) -> Ranking:
    """Return a ranking of configs by estimated time, fastest first; configs without an estimate come last."""

    def estimate(config: int, cost: Cost, point: Point) -> float:
        values = terms.at(config, point.cases, point.rounded)
        if values is None:
            return math.inf
        return cost.constant + math.fsum(factor * value for factor, value in zip(cost.factors, values, strict=True))

    def ranking(point: Point) -> Sequence[int]:
        known = costs.get(spell_class(point.cases), {})
        return sorted(known, key=lambda config: estimate(config, known[config], point))

    return ranking


@dataclass(frozen=True, slots=True)
class Estimates:
    """The fitted costs of a portfolio, and how well they rank configs compared with near rows."""

    terms: Terms
    costs: Costs
    by_costs: float
    """Quality of the costs' ranking on left-out points: best time over the time of the config ranked first, as a weighted geometric
    mean; 1 is perfect."""
    by_rows: float
    """The same for the ranking by near rows."""

    @property
    def decide(self) -> bool:
        """Whether costs rank configs better than near rows do."""
        return self.by_costs > self.by_rows

    def texts(self, cases: Class) -> dict[int, str]:
        """Return the cost of each config for a class of cases, as an expression.

        `cases`: the class: for each axis, the values that share measurements.

        Raises:
            TuningError: the expression is too long for a bundle.
        """
        texts = {
            config: cost.expression(self.terms.of(config, cases))
            for config, cost in self.costs[spell_class(cases)].items()
        }
        names = self.terms.rules.names
        for text in texts.values():
            if not is_cost(cost_words(text, names), len(names)):
                what = f"expected terms with at most {_core.PROGRAM_LENGTH_MAX} operations in total"
                raise TuningError(what, got=f"{text}; shorten the terms in [kernel.tuning]")
        return texts


def estimates(
    terms: Terms, points: Sequence[Point], configs: Sequence[int], by_rows: Callable[[Sequence[Point]], Ranking]
) -> Estimates | None:
    """Fit the costs of a portfolio, and cross-validate them against near rows; return None if there are too few measurements.

    Costs are fitted over all classes of cases together, and for each class alone; the better fit is kept.

    Args:
        terms: the kernel's terms.
        points: all measurements.
        configs: the portfolio.
        by_rows: returns the ranking by near rows, given some points.
    """
    makers = [
        lambda those, own=own: ranking_of(terms, fit_costs(terms, those, configs, own=own)) for own in (False, True)
    ]
    shares = _cross_validated(points, [*makers, by_rows])
    if shares is None:
        return None
    together, alone, rows = shares
    costs = fit_costs(terms, points, configs, own=alone > together)
    whole = all(len(known) == len(configs) for known in costs.values())
    return Estimates(terms, costs, max(together, alone), rows) if whole else None


def _cross_validated(
    points: Sequence[Point], makers: Sequence[Callable[[Sequence[Point]], Ranking]]
) -> list[float] | None:
    """Cross-validate rankings in five folds: make each from four fifths of the points, and test it on the rest.

    Args:
        points: all measurements.
        makers: functions that return a ranking, given some points.

    Returns:
        For each ranking, the best time over the time of the config that it ranks first, as a weighted geometric mean over the
        points where every ranking ranks a config that runs; None if there are no such points.
    """
    totals, weights = [0.0] * len(makers), 0.0
    folds = [_fold_of(point) for point in points]
    for fold in range(_FOLDS):
        others = [point for point, own in zip(points, folds, strict=True) if own != fold]
        rankings = [maker(others) for maker in makers]
        for point in (point for point, own in zip(points, folds, strict=True) if own == fold):
            # a config without a time at this point cannot run there
            choices = [next((config for config in ranking(point) if config in point.us), None) for ranking in rankings]
            us = [point.us[choice] for choice in choices if choice is not None]
            if len(us) == len(rankings):
                best = min(point.us.values())
                totals = [
                    total + point.weight * math.log(best / taken) for total, taken in zip(totals, us, strict=True)
                ]
                weights += point.weight
    return [math.exp(total / weights) for total in totals] if weights else None


def _fold_of(point: Point) -> int:
    """Return the fold of a point, from a hash: grids are periodic, so folds by index would be biased."""
    return crc32(f"{spell_class(point.cases)} {point.at}".encode()) % _FOLDS


def _product(factor: float, term: Expression) -> str:
    if factor >= _SMALL:
        return f"{round(factor)} * ({term})"
    share = round(factor * _SHARE)
    return f"{share} * ({term}) // {_SHARE}" if share else ""


def _number(value: object) -> float:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ExpressionError(f"expected an int, got {value!r}")
    return float(value)
