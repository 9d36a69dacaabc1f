"""Search for portfolios: few configs that together run every problem nearly as fast as all configs do. Pure.

A *cost* is a config's time for a problem over the best time for it: 1 is the best, infinity marks a config that cannot serve it.
A portfolio serves each problem with the cheapest of its configs. Its *worst* is the largest of these costs, its *mean* their
geometric mean with the *weights* of the problems.

The search is exact, by branch and bound, up to a fixed number of branches. At that limit it returns the best portfolio found
so far, marked as inexact. The result is deterministic in both cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Costs", "Portfolio", "choose", "loss_curve", "measure", "smallest"]

Costs = Sequence[Sequence[float]]
"""A row for each problem, a column for each config."""

# logarithm of the cost of an unserved problem: larger than any real cost
_UNSERVED = math.log(1e6)
# limits of branches in the two searches
_COVER_BRANCHES = 20_000
_MEAN_BRANCHES = 1_500
# sums within this are equal: the order of summation rounds differently
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class Portfolio:
    """A set of configs, with its costs."""

    configs: tuple[int, ...]
    """Columns of the costs, ascending."""
    worst: float
    """The largest cost of any problem."""
    mean: float
    """The weighted geometric mean of the costs of the problems."""
    exact: bool
    """Whether no set of this size is better; False if the search stopped early and cannot tell."""


def smallest(curve: Sequence[Portfolio], loss: float) -> Portfolio:
    """Return the first portfolio of a loss curve whose worst cost is within `loss`, else the last one.

    Args:
        curve: portfolios in ascending size; not empty.
        loss: as a share: 0.05 for 5%.
    """
    return next((one for one in curve if one.worst <= 1 + loss), curve[-1])


def loss_curve(costs: Costs, loss: float, most: int, weights: Sequence[float] | None = None) -> tuple[Portfolio, ...]:
    """Return the best portfolio of each size from 1 to `most`, as `choose` selects it.

    Sizes with which no set serves every problem are left out. The curve ends when another config no longer helps.

    `costs`: see `Costs`; `weights`: weight of each problem.
    """
    curve: list[Portfolio] = []
    for size in range(1, most + 1):
        one = choose(costs, size, loss, weights)
        if one is None:
            continue
        if curve and len(one.configs) <= len(curve[-1].configs):
            break
        curve.append(one)
    return tuple(curve)


def choose(costs: Costs, size: int, loss: float, weights: Sequence[float] | None = None) -> Portfolio | None:
    """Return the portfolio with the least mean, among those of at most `size` configs that keep every problem within `loss`.

    If no portfolio keeps the loss, all that serve every problem compete by their mean. Minimizing the worst cost instead would let
    one odd problem select configs that slow down all others, and unmeasured problems.

    Args:
        costs: see `Costs`.
        size: at least 1.
        loss: as a share.
        weights: positive weights of the problems in the mean; equal if None. The loss applies to every problem regardless.

    Returns:
        None if no `size` configs serve every problem.
    """
    weights = weights or [1.0] * len(costs)
    search = _Search(costs, size, weights)
    limit, settled = search.limit(1 + loss)
    if limit is None:
        return None
    configs, best = search.least_mean(limit)
    return measure(costs, configs, weights, exact=settled and best)


def measure(costs: Costs, configs: Sequence[int], weights: Sequence[float], *, exact: bool) -> Portfolio:
    """Compute the worst and the mean cost of the given configs; return them as a portfolio marked with `exact`.

    `weights`: weight of each problem.
    """
    left = [min(row[config] for config in configs) for row in costs]
    total = math.fsum(weight * math.log(cost) for weight, cost in zip(weights, left, strict=True))
    mean = math.exp(total / math.fsum(weights))
    return Portfolio(tuple(sorted(configs)), max(left), mean, exact)


class _Branches:
    """Countdown of the branches that a search may visit."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spent(self) -> bool:
        """Count one branch; return whether the limit is exceeded."""
        self.left -= 1
        return self.left < 0


class _Search:
    """Search over logarithms of costs, without dominated configs.

    Attributes:
        columns: for each config the logarithm of its cost for every problem; compared with bounds.
        weighted: the same, times the weights of the problems; summed for means.
    """

    def __init__(self, costs: Costs, size: int, weights: Sequence[float]) -> None:
        self.size = size
        self.problems = range(len(costs))
        self.everything = (1 << len(costs)) - 1
        count = len(costs[0]) if costs else 0
        columns = {
            config: tuple(
                min(math.log(row[config]), _UNSERVED) if row[config] < math.inf else _UNSERVED for row in costs
            )
            for config in range(count)
        }
        self.columns = {config: columns[config] for config in _undominated(columns)}
        # weights are scaled to a mean of 1, so that `_EQUAL` does not depend on their unit
        scale = len(weights) / math.fsum(weights) if weights else 1.0
        self.unserved = [weight * scale * _UNSERVED for weight in weights]
        self.weighted = {
            config: tuple(weight * scale * value for weight, value in zip(weights, column, strict=True))
            for config, column in self.columns.items()
        }
        self.values = sorted({value for column in self.columns.values() for value in column if value < _UNSERVED})

    def limit(self, wanted: float) -> tuple[float | None, bool]:
        """Return the bound on the logarithms of costs, and whether that bound is certain.

        The bound is the logarithm of `wanted` if `size` configs can keep it, else that of the largest cost; None if `size`
        configs cannot serve every problem. The bound is uncertain if the search for `wanted` was cut short.
        """
        certain = True
        for bound in (math.log(wanted), *self.values[-1:]):
            cover, known = self.cover(bound)
            if cover is not None:
                return bound, certain
            certain = certain and known
        return None, certain

    def cover(self, limit: float) -> tuple[tuple[int, ...] | None, bool]:
        """Return configs that keep every problem within `limit`, or None if none were found; and whether that answer is certain."""
        masks = _maximal({config: self._mask(column, limit) for config, column in self.columns.items()})
        branches = _Branches(_COVER_BRANCHES)
        found = self._extend((), self.everything, masks, branches)
        return found, found is not None or branches.left >= 0

    def _mask(self, column: Sequence[float], limit: float) -> int:
        return sum(1 << problem for problem in self.problems if column[problem] <= limit + _EQUAL)

    def _extend(
        self, chosen: tuple[int, ...], missing: int, masks: dict[int, int], branches: _Branches
    ) -> tuple[int, ...] | None:
        if not missing:
            return chosen
        gains = sorted(((mask & missing).bit_count() for mask in masks.values()), reverse=True)
        if sum(gains[: self.size - len(chosen)]) < missing.bit_count() or branches.spent():
            return None
        for config in _coverers(missing, masks):
            found = self._extend((*chosen, config), missing & ~masks[config], masks, branches)
            if found is not None:
                return found
        return None

    def least_mean(self, limit: float) -> tuple[tuple[int, ...], bool]:
        """Return the configs with the least mean that keep `limit`, and whether they are certainly the best.

        Args:
            limit: a bound that `size` configs can keep.
        """
        cover, _ = self.cover(limit)
        if cover is None:
            raise ValueError(f"expected a bound that {self.size} configs can keep, got {limit}")
        masks = {config: self._mask(column, limit) for config, column in self.columns.items()}
        refined = self._swap(self._fill(cover), masks)
        best = _Best(refined, math.fsum(self._serve(refined)))
        branches = _Branches(_MEAN_BRANCHES)
        self._improve((), frozenset(), masks, best, branches)
        return best.configs, branches.left >= 0

    def _serve(self, configs: Sequence[int]) -> list[float]:
        chosen = [self.unserved, *(self.weighted[config] for config in configs)]
        return list(map(min, zip(*chosen, strict=True)))

    def _gains(self, left: Sequence[float], banned: frozenset[int]) -> list[tuple[float, int]]:
        """Return for each config not in `banned` how much it would lower the sum, largest first."""
        gains = [
            (sum([old - new for old, new in zip(left, column, strict=True) if old > new]), config)
            for config, column in self.weighted.items()
            if config not in banned
        ]
        return sorted(gains, key=lambda gain: (-gain[0], gain[1]))

    def _fill(self, configs: tuple[int, ...]) -> tuple[int, ...]:
        """Greedily add the config that helps most, until there are `size` or none helps."""
        while len(configs) < self.size:
            gains = self._gains(self._serve(configs), frozenset(configs))
            if not gains or gains[0][0] <= _EQUAL:
                break
            configs = (*configs, gains[0][1])
        return configs

    def _swap(self, configs: tuple[int, ...], masks: dict[int, int]) -> tuple[int, ...]:
        """Exchange single configs for others as long as the sum falls and every problem stays covered.

        `masks`: for each config, the problems that it covers, as bits.
        """
        total = math.fsum(self._serve(configs))
        improved = True
        while improved:
            improved = False
            for trial in self._exchanges(configs):
                union = 0
                for config in trial:
                    union |= masks[config]
                less = math.fsum(self._serve(trial))
                if union == self.everything and less < total - _EQUAL:
                    configs, total, improved = trial, less, True
                    break
        return configs

    def _exchanges(self, configs: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for place in range(len(configs)):
            for config in self.columns:
                if config not in configs:
                    yield (*configs[:place], config, *configs[place + 1 :])

    def _improve(
        self, chosen: tuple[int, ...], banned: frozenset[int], masks: dict[int, int], best: _Best, branches: _Branches
    ) -> None:
        if branches.spent():
            return
        left = self._serve(chosen)
        total = math.fsum(left)
        missing = self.everything
        for config in chosen:
            missing &= ~masks[config]
        if not missing:
            best.offer(chosen, total)
        gains = self._gains(left, banned | frozenset(chosen))
        room = self.size - len(chosen)
        # returns diminish: a set of configs lowers the sum by at most the sum of their single gains
        if not room or total - math.fsum(gain for gain, _ in gains[:room]) >= best.total - _EQUAL:
            return
        allowed = {config for gain, config in gains if gain > _EQUAL}
        if missing:
            allowed &= set(_coverers(missing, {config: masks[config] for _, config in gains}))
        for _, config in gains:
            if config in allowed:
                self._improve((*chosen, config), banned, masks, best, branches)
                banned |= {config}


class _Best:
    """The best set so far."""

    def __init__(self, configs: tuple[int, ...], total: float) -> None:
        self.configs = configs
        self.total = total

    def offer(self, configs: tuple[int, ...], total: float) -> None:
        """Keep a set if it is better than the best so far."""
        if total < self.total - _EQUAL:
            self.configs, self.total = configs, total


def _undominated(columns: dict[int, tuple[float, ...]]) -> list[int]:
    """Return the configs that no other config matches or beats on every problem; of equal ones the first."""
    order = sorted(columns, key=lambda config: (math.fsum(columns[config]), config))
    kept: list[int] = []
    for config in order:
        column = columns[config]
        if not any(all(a <= b for a, b in zip(columns[other], column, strict=True)) for other in kept):
            kept.append(config)
    return sorted(kept)


def _maximal(masks: dict[int, int]) -> dict[int, int]:
    """Return the configs without each whose problems are all covered by one other config.

    `masks`: for each config, the problems that it covers, as bits.
    """
    kept: dict[int, int] = {}
    for config in sorted(masks, key=lambda config: (-masks[config].bit_count(), config)):
        if masks[config] and not any(masks[config] | mask == mask for mask in kept.values()):
            kept[config] = masks[config]
    return kept


def _coverers(missing: int, masks: dict[int, int]) -> list[int]:
    """Return the configs that cover the hardest missing problem (which the fewest configs cover), largest coverage first.

    `masks`: for each config, the problems that it covers, as bits.
    """
    hardest: list[int] | None = None
    rest = missing
    while rest:
        bit = rest & -rest
        rest ^= bit
        able = [config for config, mask in masks.items() if mask & bit]
        if hardest is None or len(able) < len(hardest):
            hardest = able
    return sorted(hardest or (), key=lambda config: (-(masks[config] & missing).bit_count(), config))
