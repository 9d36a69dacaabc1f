"""What a config takes as a sum of terms, fitted to measurements: to choose configs for calls that were not measured.

A manifest names the terms of a kernel, such as how often all multiprocessors have a tile to compute. The time of a config is
a constant and each term times a factor, none of them negative; the factors are those with the least squares of relative
errors over all that was measured with the config. Pure.

Needs the extra ``tune``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from nojit.aot.tune.records import Config
from nojit.aot.tune.rules import Class, TuningRules
from nojit.runtime.expr import Expression, ExpressionError, parse, substitute
from nojit.runtime.tuned import MULTIPROCESSORS
from nojit.runtime.values import DType, FunctionRef
from scipy.optimize import nnls

__all__ = ["Cost", "Estimates", "Point", "Terms", "estimates", "fit_costs"]

_PS = 1e6
"""Picoseconds in a microsecond."""
_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one place."""

    meanings: Class
    at: tuple[int, ...]
    us: Mapping[int, float]
    """What each config took, by number; at least one."""
    weight: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a config is estimated to take, in picoseconds."""

    constant: int
    factors: tuple[int, ...]
    """Of each term."""

    def expression(self, terms: Sequence[Expression]) -> str:
        """Write the sum; what is 0 is left out."""
        parts = [str(self.constant)] if self.constant or not any(self.factors) else []
        parts += [f"{factor} * ({term})" for factor, term in zip(self.factors, terms, strict=True) if factor]
        return parse(" + ".join(parts)).text


Way: TypeAlias = Callable[[Point], Sequence[int]]
"""Orders configs for a place, the best first."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a kernel, on one device."""

    rules: TuningRules
    configs: Mapping[int, Config]
    multiprocessors: int

    def of(self, config: int, meanings: Class) -> tuple[Expression, ...]:
        """Put what is constant for a config and a class of meanings into the terms."""
        values = {axis: values[0] for axis, values in meanings} | dict(self.configs[config].settings)
        known = {name: value for name, value in values.items() if not isinstance(value, DType | FunctionRef | tuple)}
        return tuple(substitute(parse(term), known) for term in self.rules.terms)

    def at(self, config: int, point: Point) -> list[float] | None:
        """Compute the terms of a config at a place; None where that fails."""
        names = dict(zip(self.rules.names, point.at, strict=True)) | {MULTIPROCESSORS: self.multiprocessors}
        try:
            return [_number(term.evaluate(names)) for term in self.of(config, point.meanings)]
        except ExpressionError:
            return None


def fit_costs(terms: Terms, points: Sequence[Point], configs: Sequence[int]) -> dict[int, Cost] | None:
    """Fit what each of some configs takes; None if one of them was measured at fewer places than it has factors."""
    costs: dict[int, Cost] = {}
    for config in configs:
        measured = [(point.us[config], terms.at(config, point)) for point in points if config in point.us]
        rows = [[1.0 / us, *(value / us for value in values)] for us, values in measured if values is not None]
        if len(rows) <= len(terms.rules.terms):
            return None
        matrix = np.array(rows)
        # they differ by many orders of magnitude
        scale = np.where(matrix.max(axis=0) > 0, matrix.max(axis=0), 1.0)
        factors, _ = nnls(matrix / scale, np.ones(len(rows)))
        constant, *others = (round(factor) for factor in factors / scale * _PS)
        costs[config] = Cost(constant, tuple(others))
    return costs


def way_of(terms: Terms, costs: Mapping[int, Cost]) -> Way:
    """Order configs by what they are estimated to take, the least first; what cannot be computed comes last."""

    def estimate(config: int, point: Point) -> float:
        values = terms.at(config, point)
        cost = costs[config]
        if values is None:
            return math.inf
        return cost.constant + math.fsum(factor * value for factor, value in zip(cost.factors, values, strict=True))

    return lambda point: sorted(costs, key=lambda config: estimate(config, point))


@dataclass(frozen=True, slots=True)
class Estimates:
    """What the configs of a portfolio are estimated to take, and whether that chooses better than near problems do."""

    terms: Terms
    costs: Mapping[int, Cost]
    by_costs: float
    """How near to the best the least estimate comes at places left out of the fit, as a geometric mean by weights."""
    by_rows: float
    """The same of what near places have."""

    @property
    def decide(self) -> bool:
        """Whether they choose better."""
        return self.by_costs > self.by_rows

    def texts(self, meanings: Class) -> dict[int, str]:
        """Write what each config takes, for a class of meanings."""
        return {config: cost.expression(self.terms.of(config, meanings)) for config, cost in self.costs.items()}


def estimates(
    terms: Terms, points: Sequence[Point], configs: Sequence[int], by_rows: Callable[[Sequence[Point]], Way]
) -> Estimates | None:
    """Fit what configs take, and hold the choice by it against that of near places; None if too little was measured.

    Args:
        terms: what times are made of.
        points: all that was measured.
        configs: of the portfolio.
        by_rows: makes the other way to choose.
    """

    def by_costs(others: Sequence[Point]) -> Way | None:
        fitted = fit_costs(terms, others, configs)
        return way_of(terms, fitted) if fitted else None

    costs = fit_costs(terms, points, configs)
    shares = [_left_out(points, make) for make in (by_costs, by_rows)]
    if costs is None or shares[0] is None or shares[1] is None:
        return None
    return Estimates(terms, costs, shares[0], shares[1])


def _left_out(points: Sequence[Point], make: Callable[[Sequence[Point]], Way | None]) -> float | None:
    """Make a way of choosing of four fifths of the places, five times, and judge it by the rest: its mean share of the best."""
    total = weights = 0.0
    for fold in range(_FOLDS):
        way = make([point for number, point in enumerate(points) if number % _FOLDS != fold])
        if way is None:
            return None
        for point in points[fold::_FOLDS]:
            # what cannot run at a place was not measured there
            choice = next((config for config in way(point) if config in point.us), None)
            if choice is not None:
                total += point.weight * math.log(min(point.us.values()) / point.us[choice])
                weights += point.weight
    return math.exp(total / weights) if weights else None


def _number(value: object) -> float:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ExpressionError(f"expected an int, got {value!r}")
    return float(value)
