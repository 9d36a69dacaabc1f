"""Which few of many configs to keep, so that every problem runs nearly as fast as with all of them. Pure.

A *cost* is a config's time at a problem over the best time there: 1 is the best, infinity is a config that cannot serve.
A portfolio serves each problem with the cheapest of its configs. Its *worst* is the largest cost that is left, its *mean*
the geometric mean, in which each problem has a *weight*.

The search is exact, by branch and bound, until it has looked at a fixed number of cases; then it returns the best that it
found, and says so. It is deterministic either way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Costs", "Portfolio", "choose", "loss_curve", "measure", "smallest"]

Costs = Sequence[Sequence[float]]
"""A row for each problem, a column for each config."""

# what a problem that no config serves yet counts as, in logarithms: more than any real cost
_UNSERVED = math.log(1e6)
_COVER_CASES = 20_000
_MEAN_CASES = 1_500
# two means within this are one: sums of logarithms in another order
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class Portfolio:
    """A choice of configs."""

    configs: tuple[int, ...]
    """Columns of the costs, ascending."""
    worst: float
    """The largest cost that is left at any problem."""
    mean: float
    """Geometric mean of the costs that are left, by the weights of their problems."""
    exact: bool
    """Whether no choice of as many configs is better; False if the search was cut short."""


def smallest(curve: Sequence[Portfolio], loss: float) -> Portfolio:
    """Return the first portfolio of a loss curve whose worst cost is within `loss`, else the last one.

    Args:
        curve: not empty, ascending in size.
        loss: as a fraction: 0.05 for five percent.
    """
    return next((one for one in curve if one.worst <= 1 + loss), curve[-1])


def loss_curve(costs: Costs, loss: float, most: int, weights: Sequence[float] | None = None) -> tuple[Portfolio, ...]:
    """Choose the best portfolio of each size from 1 to `most`, as `choose` does; ends where no config is left to add.

    A size for which no set of configs serves every problem is left out.
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
    """Choose at most `size` configs: the least mean with every problem within `loss`, if that can be, or else at all.

    Where the loss cannot be kept, the least worst is not asked for: one odd problem would choose configs that all others
    pay for, and those that nobody measured.

    Args:
        costs: see `Costs`.
        size: at least 1.
        loss: as a fraction.
        weights: of the problems in the mean, above 0; all alike if there are none. They have no say in what keeps the loss.

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
    """Compute what a choice of configs leaves; `exact` is passed on."""
    left = [min(row[config] for config in configs) for row in costs]
    total = math.fsum(weight * math.log(cost) for weight, cost in zip(weights, left, strict=True))
    mean = math.exp(total / math.fsum(weights))
    return Portfolio(tuple(sorted(configs)), max(left), mean, exact)


class _Cases:
    """Counts down the cases that a search may look at."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spent(self) -> bool:
        """Count one; say whether there was none left."""
        self.left -= 1
        return self.left < 0


class _Search:
    """Costs as logarithms, without the configs that another one beats everywhere.

    Attributes:
        columns: by config, what bounds are held against.
        pains: by config, the same by the weights of the problems: what sums are made of.
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
        # the mean of the weights is 1, so that what counts as equal does not depend on their unit
        scale = len(weights) / math.fsum(weights) if weights else 1.0
        self.unserved = [weight * scale * _UNSERVED for weight in weights]
        self.pains = {
            config: tuple(weight * scale * value for weight, value in zip(weights, column, strict=True))
            for config, column in self.columns.items()
        }
        self.values = sorted({value for column in self.columns.values() for value in column if value < _UNSERVED})

    def limit(self, wanted: float) -> tuple[float | None, bool]:
        """Return the bound on costs to keep, and whether it is certain that `wanted` cannot be kept, where it is not.

        The bound is the logarithm of `wanted`, or of the largest cost if `size` configs cannot keep that; None if they
        cannot serve every problem at all.
        """
        certain = True
        for bound in (math.log(wanted), *self.values[-1:]):
            cover, known = self.cover(bound)
            if cover is not None:
                return bound, certain
            certain = certain and known
        return None, certain

    def cover(self, limit: float) -> tuple[tuple[int, ...] | None, bool]:
        """Find configs that keep every problem within `limit`; None if there are none, with whether that is certain."""
        masks = _maximal({config: self._mask(column, limit) for config, column in self.columns.items()})
        cases = _Cases(_COVER_CASES)
        found = self._extend((), self.everything, masks, cases)
        return found, found is not None or cases.left >= 0

    def _mask(self, column: Sequence[float], limit: float) -> int:
        return sum(1 << problem for problem in self.problems if column[problem] <= limit + _EQUAL)

    def _extend(
        self, chosen: tuple[int, ...], missing: int, masks: dict[int, int], cases: _Cases
    ) -> tuple[int, ...] | None:
        if not missing:
            return chosen
        gains = sorted(((mask & missing).bit_count() for mask in masks.values()), reverse=True)
        if sum(gains[: self.size - len(chosen)]) < missing.bit_count() or cases.spent():
            return None
        for config in _coverers(missing, masks):
            found = self._extend((*chosen, config), missing & ~masks[config], masks, cases)
            if found is not None:
                return found
        return None

    def least_mean(self, limit: float) -> tuple[tuple[int, ...], bool]:
        """Choose configs that keep `limit`, with the least sum of logarithms; and whether that is certain.

        `limit` must be one that `size` configs can keep.
        """
        cover, _ = self.cover(limit)
        if cover is None:
            raise ValueError(f"expected a bound that {self.size} configs can keep, got {limit}")
        masks = {config: self._mask(column, limit) for config, column in self.columns.items()}
        refined = self._swap(self._fill(cover), masks)
        best = _Best(refined, math.fsum(self._serve(refined)))
        cases = _Cases(_MEAN_CASES)
        self._improve((), frozenset(), masks, best, cases)
        return best.configs, cases.left >= 0

    def _serve(self, configs: Sequence[int]) -> list[float]:
        chosen = [self.unserved, *(self.pains[config] for config in configs)]
        return list(map(min, zip(*chosen, strict=True)))

    def _gains(self, left: Sequence[float], banned: frozenset[int]) -> list[tuple[float, int]]:
        """List what each config that may be added takes off the sum, largest first."""
        gains = [
            (sum([old - new for old, new in zip(left, column, strict=True) if old > new]), config)
            for config, column in self.pains.items()
            if config not in banned
        ]
        return sorted(gains, key=lambda gain: (-gain[0], gain[1]))

    def _fill(self, configs: tuple[int, ...]) -> tuple[int, ...]:
        """Add the config that helps most until there are enough, or none helps."""
        while len(configs) < self.size:
            gains = self._gains(self._serve(configs), frozenset(configs))
            if not gains or gains[0][0] <= _EQUAL:
                break
            configs = (*configs, gains[0][1])
        return configs

    def _swap(self, configs: tuple[int, ...], masks: dict[int, int]) -> tuple[int, ...]:
        """Exchange one config for another as long as that helps and nothing is uncovered."""
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
        self, chosen: tuple[int, ...], banned: frozenset[int], masks: dict[int, int], best: _Best, cases: _Cases
    ) -> None:
        if cases.spent():
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
        # adding configs has diminishing returns: no set of them takes off more than their single gains
        if not room or total - math.fsum(gain for gain, _ in gains[:room]) >= best.total - _EQUAL:
            return
        allowed = {config for gain, config in gains if gain > _EQUAL}
        if missing:
            allowed &= set(_coverers(missing, {config: masks[config] for _, config in gains}))
        for _, config in gains:
            if config in allowed:
                self._improve((*chosen, config), banned, masks, best, cases)
                banned |= {config}


class _Best:
    """The best choice so far."""

    def __init__(self, configs: tuple[int, ...], total: float) -> None:
        self.configs = configs
        self.total = total

    def offer(self, configs: tuple[int, ...], total: float) -> None:
        """Take a choice if it is better."""
        if total < self.total - _EQUAL:
            self.configs, self.total = configs, total


def _undominated(columns: dict[int, tuple[float, ...]]) -> list[int]:
    """List the configs that no other one equals or beats at every problem; of equal ones the first."""
    order = sorted(columns, key=lambda config: (math.fsum(columns[config]), config))
    kept: list[int] = []
    for config in order:
        column = columns[config]
        if not any(all(a <= b for a, b in zip(columns[other], column, strict=True)) for other in kept):
            kept.append(config)
    return sorted(kept)


def _maximal(masks: dict[int, int]) -> dict[int, int]:
    """Leave out configs that cover nothing but what another one covers too."""
    kept: dict[int, int] = {}
    for config in sorted(masks, key=lambda config: (-masks[config].bit_count(), config)):
        if masks[config] and not any(masks[config] | mask == mask for mask in kept.values()):
            kept[config] = masks[config]
    return kept


def _coverers(missing: int, masks: dict[int, int]) -> list[int]:
    """List who covers the problem that fewest configs cover, the one that covers most of `missing` first."""
    hardest: list[int] | None = None
    rest = missing
    while rest:
        bit = rest & -rest
        rest ^= bit
        able = [config for config, mask in masks.items() if mask & bit]
        if hardest is None or len(able) < len(hardest):
            hardest = able
    return sorted(hardest or (), key=lambda config: (-(masks[config] & missing).bit_count(), config))
