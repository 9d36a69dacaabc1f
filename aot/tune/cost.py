"""What a config takes as a sum of terms, fitted to measurements: to choose configs for calls that were not measured.

A manifest names the terms of a kernel, such as how often all multiprocessors have a tile to compute. The time of a config is
a constant and each term times a factor, none of them negative; the factors are those with the least squares of relative
errors over all that was measured with the config, or over that of one class of meanings, whichever chooses better for what
is left out. Pure.

Needs the extra ``tune``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from zlib import crc32

import numpy as np
from nojit.aot.tune.records import Config
from nojit.aot.tune.rules import Class, TuningRules, spell_class
from nojit.runtime.errors import TuningError
from nojit.runtime.expr import Expression, ExpressionError, Value, parse, substitute
from nojit.runtime.neighbours import cost_words, is_cost
from nojit.runtime.tuned import MULTIPROCESSORS
from nojit.runtime.values import DType, FunctionRef
from scipy.optimize import nnls

__all__ = ["Cost", "Estimates", "Point", "Terms", "estimates", "fit_costs"]

_PS = 1e6
"""Picoseconds in a microsecond."""
_FOLDS = 5
# so many measurements for each factor make factors of a class's own
_OWN = 2
# a factor that is smaller than so many picoseconds is written as a share of 1024
_SMALL = 1000
_SHARE = 1024


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one place."""

    meanings: Class
    at: tuple[int, ...]
    rounded: tuple[int, ...]
    """`at`, as a call's key is rounded."""
    us: Mapping[int, float]
    """What each config took, by number; at least one."""
    weight: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a config is estimated to take, in picoseconds."""

    constant: float
    factors: tuple[float, ...]
    """Of each term."""

    def expression(self, terms: Sequence[Expression]) -> str:
        """Write the sum in ints; what is 0 is left out."""
        constant = round(self.constant)
        parts = [str(constant) if constant else ""]
        parts += [_product(factor, term) for factor, term in zip(self.factors, terms, strict=True)]
        return parse(" + ".join(filter(None, parts)) or "0").text


Way: TypeAlias = Callable[[Point], Sequence[int]]
"""Orders configs for a place, the best first."""
Costs: TypeAlias = Mapping[str, Mapping[int, Cost]]
"""What configs take, by number, for each class of meanings as it is spelled."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a kernel, on one device."""

    rules: TuningRules
    configs: Mapping[int, Config]
    multiprocessors: int

    def of(self, config: int, meanings: Class) -> tuple[Expression, ...]:
        """Put what is constant for a config and a class of meanings into the terms."""
        known = self._constants(config, meanings)
        return tuple(substitute(parse(term), known) for term in self.rules.terms)

    def at(self, config: int, meanings: Class, key: tuple[int, ...]) -> list[float] | None:
        """Compute the terms of a config for a key; None where that fails."""
        names = self._constants(config, meanings) | dict(zip(self.rules.names, key, strict=True))
        names[MULTIPROCESSORS] = self.multiprocessors
        try:
            return [_number(parse(term).evaluate(names)) for term in self.rules.terms]
        except ExpressionError:
            return None

    def _constants(self, config: int, meanings: Class) -> dict[str, Value]:
        values = {axis: values[0] for axis, values in meanings} | dict(self.configs[config].settings)
        return {name: value for name, value in values.items() if not isinstance(value, DType | FunctionRef | tuple)}


def fit_costs(terms: Terms, points: Sequence[Point], configs: Sequence[int], *, own: bool) -> Costs:
    """Fit what each of some configs takes, but for those that were measured at fewer places than they have factors.

    Args:
        terms: what times are made of.
        points: all that was measured.
        configs: whose costs.
        own: give each class factors of its own, as far as enough was measured there.
    """
    every = _fitted(terms, points, configs, len(terms.rules.terms) + 1)
    classes: dict[str, list[Point]] = {}
    for point in points:
        classes.setdefault(spell_class(point.meanings), []).append(point)
    least = _OWN * (len(terms.rules.terms) + 1)
    return {
        name: {**every, **(_fitted(terms, those, configs, least) if own else {})} for name, those in classes.items()
    }


def _fitted(terms: Terms, points: Sequence[Point], configs: Sequence[int], least: int) -> dict[int, Cost]:
    """Fit what configs take that were measured at so many places at least."""
    costs: dict[int, Cost] = {}
    for config in configs:
        measured = [(p.us[config], terms.at(config, p.meanings, p.at)) for p in points if config in p.us]
        rows = [[1.0 / us, *(value / us for value in values)] for us, values in measured if values is not None]
        if len(rows) < least:
            continue
        matrix = np.array(rows)
        # they differ by many orders of magnitude
        scale = np.where(matrix.max(axis=0) > 0, matrix.max(axis=0), 1.0)
        factors, _ = nnls(matrix / scale, np.ones(len(rows)))
        constant, *others = (float(factor) for factor in factors / scale * _PS)
        costs[config] = Cost(constant, tuple(others))
    return costs


def way_of(terms: Terms, costs: Costs) -> Way:
    """Order configs by what they are estimated to take, the least first; what cannot be computed comes last."""

    def estimate(config: int, cost: Cost, point: Point) -> float:
        values = terms.at(config, point.meanings, point.rounded)
        if values is None:
            return math.inf
        return cost.constant + math.fsum(factor * value for factor, value in zip(cost.factors, values, strict=True))

    def way(point: Point) -> Sequence[int]:
        known = costs.get(spell_class(point.meanings), {})
        return sorted(known, key=lambda config: estimate(config, known[config], point))

    return way


@dataclass(frozen=True, slots=True)
class Estimates:
    """What the configs of a portfolio are estimated to take, and whether that chooses better than near problems do."""

    terms: Terms
    costs: Costs
    by_costs: float
    """How near to the best the least estimate comes at places left out of the fit, as a geometric mean by weights."""
    by_rows: float
    """The same of what near places have."""

    @property
    def decide(self) -> bool:
        """Whether they choose better."""
        return self.by_costs > self.by_rows

    def texts(self, meanings: Class) -> dict[int, str]:
        """Write what each config takes, for a class of meanings.

        Raises:
            TuningError: the terms make a longer expression than a bundle can hold.
        """
        texts = {
            config: cost.expression(self.terms.of(config, meanings))
            for config, cost in self.costs[spell_class(meanings)].items()
        }
        names = self.terms.rules.names
        for text in texts.values():
            if not is_cost(cost_words(text, names), len(names)):
                raise TuningError("expected terms that together take at most 256 operations", got=text)
        return texts


def estimates(
    terms: Terms, points: Sequence[Point], configs: Sequence[int], by_rows: Callable[[Sequence[Point]], Way]
) -> Estimates | None:
    """Fit what configs take, and hold the choice by it against that of near places; None if too little was measured.

    All classes are fitted together, and each alone; what chooses better counts.

    Args:
        terms: what times are made of.
        points: all that was measured.
        configs: of the portfolio.
        by_rows: makes the other way to choose.
    """
    ways = [lambda those, own=own: way_of(terms, fit_costs(terms, those, configs, own=own)) for own in (False, True)]
    shares = _left_out(points, [*ways, by_rows])
    if shares is None:
        return None
    together, alone, rows = shares
    costs = fit_costs(terms, points, configs, own=alone > together)
    whole = all(len(known) == len(configs) for known in costs.values())
    return Estimates(terms, costs, max(together, alone), rows) if whole else None


def _left_out(points: Sequence[Point], makers: Sequence[Callable[[Sequence[Point]], Way]]) -> list[float] | None:
    """Make ways of choosing of four fifths of the places, five times, and judge them by the rest.

    Returns:
        How near each comes to the best, as a geometric mean over the places where all have a choice.
    """
    totals, weights = [0.0] * len(makers), 0.0
    folds = [_fold_of(point) for point in points]
    for fold in range(_FOLDS):
        others = [point for point, own in zip(points, folds, strict=True) if own != fold]
        ways = [maker(others) for maker in makers]
        for point in (point for point, own in zip(points, folds, strict=True) if own == fold):
            # what cannot run at a place was not measured there
            choices = [next((config for config in way(point) if config in point.us), None) for way in ways]
            us = [point.us[choice] for choice in choices if choice is not None]
            if len(us) == len(ways):
                best = min(point.us.values())
                totals = [
                    total + point.weight * math.log(best / taken) for total, taken in zip(totals, us, strict=True)
                ]
                weights += point.weight
    return [math.exp(total / weights) for total in totals] if weights else None


def _fold_of(point: Point) -> int:
    """Assign a place to a fold by what it is, not by where it stands: grids of places have periods."""
    return crc32(f"{spell_class(point.meanings)} {point.at}".encode()) % _FOLDS


def _product(factor: float, term: Expression) -> str:
    if factor >= _SMALL:
        return f"{round(factor)} * ({term})"
    share = round(factor * _SHARE)
    return f"{share} * ({term}) // {_SHARE}" if share else ""


def _number(value: object) -> float:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ExpressionError(f"expected an int, got {value!r}")
    return float(value)
