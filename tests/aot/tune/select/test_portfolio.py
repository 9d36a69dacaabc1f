"""The portfolio against a search through every set of configs."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.tune.select import portfolio
from nojit.aot.tune.select.portfolio import choose, loss_curve, smallest

INF = math.inf


def measured(costs: list[list[float]], configs: tuple[int, ...], weights: list[float]) -> tuple[float, float]:
    left = [min(row[config] for config in configs) for row in costs]
    weighted = [cost**weight for cost, weight in zip(left, weights, strict=True)]
    return max(left), math.prod(weighted) ** (1 / sum(weights))


def brute_force(
    costs: list[list[float]], size: int, loss: float, weights: list[float] | None = None
) -> tuple[bool, float] | None:
    """Whether the best set misses the loss, and its mean."""
    found = []
    for count in range(1, size + 1):
        for configs in itertools.combinations(range(len(costs[0])), count):
            worst, mean = measured(costs, configs, weights or [1.0] * len(costs))
            if worst < INF:
                found.append((worst > (1 + loss) * (1 + 1e-12), mean))
    return min(found, default=None)


def normal(rows: list[list[float]]) -> list[list[float]]:
    return [[value / min(row) for value in row] for row in rows if min(row) < INF]


@st.composite
def cost_tables(draw: st.DrawFn) -> list[list[float]]:
    configs = draw(st.integers(1, 7))
    time = st.one_of(st.floats(1, 3), st.sampled_from([1.0, 1.04, 1.06, 2.0, INF]))
    row = st.lists(time, min_size=configs, max_size=configs).filter(lambda row: min(row) < INF)
    return normal(draw(st.lists(row, min_size=1, max_size=6)))


@settings(max_examples=300, deadline=None)
@given(cost_tables(), st.integers(1, 4), st.sampled_from([0.0, 0.05, 0.2]), st.data())
def test_the_choice_is_as_good_as_the_best_of_all(
    costs: list[list[float]], size: int, loss: float, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 20.0]), min_size=len(costs), max_size=len(costs)))
    best = brute_force(costs, size, loss, weights)
    chosen = choose(costs, size, loss, weights)
    if best is None:
        assert chosen is None
        return
    assert chosen is not None
    assert chosen.exact
    assert len(chosen.configs) <= size
    assert (chosen.worst > (1 + loss) * (1 + 1e-9)) == best[0]
    assert math.isclose(chosen.mean, best[1], rel_tol=1e-9)
    worst, mean = measured(costs, chosen.configs, weights)
    assert chosen.worst == worst
    assert math.isclose(chosen.mean, mean, rel_tol=1e-9)


def test_weights_decide_for_whom_the_mean_is_least_and_have_no_unit() -> None:
    costs = [[1.0, 1.3], [1.2, 1.0]]
    chosen = [choose(costs, 1, 0.05, weights) for weights in (None, [1.0, 2.0], [1e9, 2e9])]
    assert [one and one.configs for one in chosen] == [(0,), (1,), (1,)]
    assert chosen[1] is not None
    assert chosen[2] is not None
    assert math.isclose(chosen[1].mean, 1.3 ** (1 / 3))
    assert math.isclose(chosen[1].mean, chosen[2].mean)


def test_weights_have_no_say_in_what_keeps_the_loss() -> None:
    chosen = choose([[1.0, 1.04], [1.2, 1.0]], 1, 0.05, [1000.0, 1.0])
    assert chosen is not None
    assert chosen.configs == (1,)


@settings(max_examples=100, deadline=None)
@given(cost_tables())
def test_the_curve_never_rises_and_its_smallest_is_the_smallest(costs: list[list[float]]) -> None:
    curve = loss_curve(costs, 0.05, 6)
    assert [len(one.configs) for one in curve] == sorted({len(one.configs) for one in curve})
    kept = smallest(curve, 0.05)
    if kept.worst <= 1.05:
        fewer = len(kept.configs) - 1
        assert fewer == 0 or (brute_force(costs, fewer, 0.05) or (True,))[0]
    merits = [(one.worst > 1.05, one.mean) for one in curve]
    assert merits == sorted(merits, reverse=True)


def test_a_set_that_cannot_keep_the_loss_has_the_least_mean() -> None:
    costs = [[1.0, 1.5, 1.3], [1.5, 1.0, 1.3]]
    one, two = loss_curve(costs, 0.05, 6)
    assert (one.configs, one.worst) == ((0,), 1.5)
    assert (two.configs, two.worst) == ((0, 1), 1.0)
    assert smallest((one,), 0.05) is one


def test_a_problem_that_one_config_alone_serves_brings_it_in() -> None:
    costs = [[1.0, INF, 1.2], [INF, 1.0, INF]]
    assert choose(costs, 1, 0.05) is None
    chosen = choose(costs, 2, 0.05)
    assert chosen is not None
    assert chosen.configs == (0, 1)
    assert [len(one.configs) for one in loss_curve(costs, 0.05, 4)] == [2]


def test_many_configs_and_problems_take_no_time_and_say_if_they_were_cut_short(monkeypatch) -> None:
    numbers = [[1 + ((i * 7919 + j * 104729) % 1009) / 1009 for j in range(120)] for i in range(60)]
    costs = normal(numbers)
    monkeypatch.setattr(portfolio, "_MEAN_BRANCHES", 20)
    chosen = choose(costs, 6, 0.05)
    assert chosen is not None
    assert not chosen.exact
    assert len(chosen.configs) == 6
    again = choose(costs, 6, 0.05)
    assert again == chosen
