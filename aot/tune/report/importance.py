"""Importance of tunables: the share of each in the variance of times, by functional ANOVA of a random forest.

The forest predicts the logarithm of a config's time over the geometric mean of its problem's times, from the tunables and the
problem. The prediction over all combinations of observed levels is split exactly into a mean, main effects, effects of pairs and a
rest. Each effect is an average over all other factors, minus the effects of its parts. Its share is its part of the variance.
The forest extrapolates for pruned combinations.

Sources: Hooker 2004, "Discovering additive structure in black box functions"; Hutter, Hoos, Leyton-Brown 2014, "An efficient
approach for assessing hyperparameter importance".

Needs the extra ``tune``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from nojit.runtime.values import Value, identity, spell
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

__all__ = ["PROBLEM", "Importance", "Observation", "Share", "decompose", "explain", "rank"]

Array: TypeAlias = NDArray[np.float64]

PROBLEM = "problem"
"""The name of the factor for the problem."""
_TREES = 200
# largest product of levels to predict, at 8 bytes each
_GRID_MAX = 2_000_000
# with fewer samples an out-of-bag score is meaningless
_SAMPLES_MIN = 8


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured time, with its config and problem."""

    settings: Mapping[str, Value]
    """All tunables of the config."""
    problem: str
    us: float


@dataclass(frozen=True, slots=True)
class Share:
    """Share of one factor, or of two together."""

    factors: tuple[str, ...]
    """Names of tunables, or `PROBLEM`."""
    share: float
    """Share of the variance; of a pair, beyond the shares of its two factors."""


@dataclass(frozen=True, slots=True)
class Importance:
    """Shares of tunables in the variance of times."""

    shares: tuple[Share, ...]
    """Largest first; they and `rest` sum to 1."""
    rest: float
    """Share of interactions of three or more factors."""
    fit: float | None
    """R² of the forest on times outside its training data; None with too few times."""
    samples: int
    spread: float
    """Slowest time over fastest, as a geometric mean over the problems."""

    def totals(self) -> dict[str, float]:
        """Return for each tunable the sum of its shares, alone and in pairs, largest first."""
        found: dict[str, float] = {}
        for one in self.shares:
            for name in one.factors:
                found[name] = found.get(name, 0.0) + one.share
        found.pop(PROBLEM, None)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def explain(observations: Sequence[Observation]) -> Importance | None:
    """Fit a forest and return the shares of the tunables; None if no tunable or no time varies.

    Factors with one level are left out. If the product of levels is too large, factors with the fewest levels are left out too.
    """
    factors = _factors(observations)
    if not factors or len({one.problem for one in observations}) == len(observations):
        return None
    levels = {name: _levels(observations, name) for name in factors}
    codes = np.array([[levels[name][_level(one, name)] for name in factors] for one in observations], dtype=np.float64)
    times, spread = _relative(observations)
    if float(times.var()) < 1e-12:
        return None
    scored = len(observations) >= _SAMPLES_MIN
    forest = RandomForestRegressor(_TREES, random_state=0, oob_score=scored, max_features=None, n_jobs=1)
    forest.fit(codes, times)
    sizes = tuple(len(levels[name]) for name in factors)
    grid = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(-1, len(sizes))
    predicted = forest.predict(grid.astype(np.float64)).reshape(sizes)
    shares, rest = decompose(predicted, factors)
    fit = float(forest.oob_score_) if scored else None
    return Importance(shares, rest, fit, len(observations), spread)


def decompose(values: Array, names: Sequence[str]) -> tuple[tuple[Share, ...], float]:
    """Split the variance of a table: return the shares of factors and of pairs of factors, largest first, and the rest.

    Args:
        values: one axis for each name.
        names: the factors.
    """
    mean = float(values.mean())
    total = float(values.var())
    if total <= 0:
        return (), 0.0
    axes = range(values.ndim)
    mains = [_marginal(values, (axis,)) - mean for axis in axes]
    shares = [Share((names[axis],), float((mains[axis] ** 2).mean()) / total) for axis in axes]
    for one, other in itertools.combinations(axes, 2):
        effect = _marginal(values, (one, other)) - mean - mains[one][:, None] - mains[other][None, :]
        shares.append(Share((names[one], names[other]), float((effect**2).mean()) / total))
    rest = max(1 - math.fsum(one.share for one in shares), 0.0)
    return tuple(sorted(shares, key=lambda one: (-one.share, one.factors))), rest


def _marginal(values: Array, kept: tuple[int, ...]) -> Array:
    """Return the average over all axes except `kept`."""
    averaged: Array = values.mean(axis=tuple(axis for axis in range(values.ndim) if axis not in kept))
    return averaged


def _factors(observations: Sequence[Observation]) -> list[str]:
    """Return the factors that vary; if the product of their levels is too large, those with the most levels."""
    names = sorted({name for one in observations for name in one.settings})
    counts = {name: len(_levels(observations, name)) for name in [*names, PROBLEM]}
    varied = [name for name, count in counts.items() if count > 1]
    while math.prod(counts[name] for name in varied) > _GRID_MAX:
        varied.remove(min(varied, key=lambda name: counts[name]))
    return varied if any(name != PROBLEM for name in varied) else []


def _level(one: Observation, name: str) -> tuple[Any, ...]:
    return identity(one.problem if name == PROBLEM else one.settings.get(name))


def _levels(observations: Sequence[Observation], name: str) -> dict[tuple[Any, ...], int]:
    """Number the levels of a factor, in the order of `rank`."""
    seen = {_level(one, name): one.problem if name == PROBLEM else one.settings.get(name) for one in observations}
    return {level: number for number, level in enumerate(sorted(seen, key=lambda level: rank(seen[level])))}


def rank(value: Value) -> tuple[int, float, str]:
    """Return the sort key of a level: numbers by size, then all other values by spelling."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, spell(value)


def _relative(observations: Sequence[Observation]) -> tuple[Array, float]:
    """Return the logarithm of each time over its problem's geometric mean, and the mean spread of a problem's times."""
    logs: dict[str, list[float]] = {}
    for one in observations:
        logs.setdefault(one.problem, []).append(math.log(one.us))
    means = {problem: math.fsum(times) / len(times) for problem, times in logs.items()}
    spread = math.exp(math.fsum(max(times) - min(times) for times in logs.values()) / len(logs))
    return np.array([math.log(one.us) - means[one.problem] for one in observations]), spread
