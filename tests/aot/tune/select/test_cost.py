"""Costs: fitted to times whose terms are known, and chosen by only where they choose better."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")

from nojit.aot.tune.select.cost import Cost, Estimates, Point, Terms, fit_costs
from nojit.aot.tune.select.evaluate import evaluate
from nojit.aot.tune.select.lookup import look_up
from nojit.aot.tune.select.measured_times import MeasuredTimes, collect
from nojit.aot.tune.select.rules import TuningRules, spell_class
from nojit.aot.tune.select.selection import Bounds, SelectedTable, select
from nojit.aot.tune.select.tuned_file import write_tuned
from nojit.aot.tune.store.database import open_database
from nojit.aot.tune.store.records import Config
from nojit.runtime.errors import TuningError
from nojit.runtime.expr.expression import parse
from nojit.runtime.tuning.tuned_tables import read_tuned

from tests.aot.tune.synthetic import write_database

WAVES = "cdiv(cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N), multiprocessors)"
RULES = TuningRules(bucket="sixteenth_pow2", names=("m", "n"), terms=(WAVES, f"{WAVES} * n"))
EVERY = spell_class(())
# where the number of waves jumps, so that no problem is like its neighbours
KEYS = [(m, n) for m in (264, 1056, 2112, 3000, 4224, 6000, 8448) for n in (64, 300, 700, 2100)]
HELD_OUT = [(m, n) for m in (500, 1500, 2500, 5000, 7000) for n in (130, 450, 1500)]


def waves(config: Mapping[str, Any], m: int, n: int) -> int:
    return math.ceil(math.ceil(m / config["BLOCK_M"]) * math.ceil(n / config["BLOCK_N"]) / 132)


def tiled(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float:
    """Each wave takes as long as its tiles are large, a bit less than that for large ones."""
    area = config["BLOCK_M"] * config["BLOCK_N"]
    return 4.0 + waves(config, *key) * (1.0 + 0.001 * config["num_warps"] + key[1] * area**0.8 / 10_000)


def measured(path: Path, use: str = "tune", **facts: Any) -> MeasuredTimes:
    if not path.exists():
        write_database(path, time=tiled, keys=KEYS, held_out=HELD_OUT, **facts)
    with open_database(path) as database:
        (one,) = collect(database, use)
    return one


def chosen(path: Path, rules: TuningRules = RULES, **facts: Any) -> SelectedTable:
    return select(measured(path, **facts), rules, Bounds(), {"tool": "nojit tune select 0"})


def test_factors_are_those_of_the_times() -> None:
    config = Config(1, {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}, "")
    points = [Point((), key, key, {7: 2.5 + waves(config.settings, *key) * (3 + key[1] / 100)}, 1.0) for key in KEYS]
    terms = Terms(RULES, {7: config}, 132)
    costs = fit_costs(terms, points, [7], own=False)[EVERY]
    assert costs[7].constant == pytest.approx(2_500_000, rel=1e-3)
    assert costs[7].factors == pytest.approx((3_000_000, 10_000), rel=1e-3)
    text = costs[7].expression(terms.of(7, ()))
    estimate = parse(text).evaluate({"m": 1000, "n": 500, "multiprocessors": 132})
    assert estimate == pytest.approx(1e6 * (2.5 + waves(config.settings, 1000, 500) * 8), rel=1e-3)
    assert "BLOCK_M" not in text


def test_too_few_measurements_give_no_cost() -> None:
    terms = Terms(RULES, {7: Config(1, {"BLOCK_M": 64, "BLOCK_N": 32}, "")}, 132)
    assert fit_costs(terms, [Point((), key, key, {7: 3.0}, 1.0) for key in KEYS[:2]], [7], own=True) == {EVERY: {}}
    assert fit_costs(terms, [Point((), key, key, {8: 3.0}, 1.0) for key in KEYS], [7], own=True) == {EVERY: {}}


def test_a_class_has_factors_of_its_own_where_enough_was_measured() -> None:
    settings = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}
    terms = Terms(RULES, {7: Config(1, settings, "")}, 132)
    slow, few = (("WIDTH", (2,)),), (("WIDTH", (3,)),)
    points = [
        Point(cases, key, key, {7: 2.5 + waves(settings, *key) * factor}, 1.0)
        for cases, keys, factor in (((), KEYS, 3.0), (slow, KEYS[:6], 12.0), (few, KEYS[:5], 12.0))
        for key in keys
    ]
    costs = fit_costs(terms, points, [7], own=True)
    own, others = costs[EVERY][7].factors, costs[spell_class(slow)][7].factors
    assert own == pytest.approx((3_000_000, 0), rel=1e-3, abs=1)
    assert others == pytest.approx((12_000_000, 0), rel=1e-3, abs=1)
    together = fit_costs(terms, points, [7], own=False)
    assert together[EVERY] == together[spell_class(slow)] == costs[spell_class(few)]
    assert together[EVERY] == fit_costs(terms, [replace(point, cases=()) for point in points], [7], own=False)[EVERY]


def test_a_term_that_cannot_be_computed_gives_no_cost() -> None:
    rules = TuningRules(names=("m", "n"), terms=("m // (n - n)",))
    terms = Terms(rules, {7: Config(1, {"BLOCK_M": 64}, "")}, 132)
    assert fit_costs(terms, [Point((), key, key, {7: 3.0}, 1.0) for key in KEYS], [7], own=True) == {EVERY: {}}


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(5.4, (0.0, 3000.2)), "5 + 3000 * n"),
        (Cost(0.0, (2000.0, 0.0)), "2000 * (m + 1)"),
        (Cost(0.0, (0.0, 0.0)), "0"),
        (Cost(7.0, (0.0, 0.0)), "7"),
        (Cost(7.0, (0.25, 0.0001)), "7 + 256 * (m + 1) // 1024"),
    ],
)
def test_small_factors_are_shares_and_nothing_is_not_written(cost: Cost, text: str) -> None:
    assert cost.expression((parse("m + 1"), parse("n"))) == text


def test_costs_decide_where_they_choose_better(tmp_path: Path) -> None:
    selection = chosen(tmp_path / "db")
    (group,) = selection.groups
    assert group.estimates is not None
    assert group.estimates.by_costs > 0.98
    assert group.estimates.by_rows < 0.95
    (entry,) = selection.table.entries
    assert sorted(cost.config for cost in entry.costs) == list(range(len(selection.table.configs)))
    assert selection.table.names == ("m", "n")
    held_out = measured(tmp_path / "db", "held_out")
    path = write_tuned(selection.table, tmp_path / "tuned")
    found = evaluate(held_out, read_tuned(path), RULES)
    rows_alone = evaluate(held_out, chosen(tmp_path / "db", TuningRules(bucket="sixteenth_pow2")).table, RULES)
    assert found.mean_share is not None
    assert rows_alone.mean_share is not None
    assert found.mean_share > 0.98
    assert rows_alone.mean_share < 0.95


def test_rows_decide_where_terms_say_nothing(tmp_path: Path) -> None:
    selection = chosen(tmp_path / "db", TuningRules(bucket="sixteenth_pow2", names=("m", "n"), terms=("1",)))
    (group,) = selection.groups
    assert group.estimates is not None
    assert group.estimates.by_costs < group.estimates.by_rows
    assert selection.table.entries[0].costs == ()
    assert selection.table.names == ()


def test_each_class_has_its_own_constants(tmp_path: Path) -> None:
    rules = TuningRules(bucket="sixteenth_pow2", names=("m", "n"), terms=(f"{WAVES} * WIDTH", f"{WAVES} * n * WIDTH"))
    cases = [{"WIDTH": 2}, {"WIDTH": 3, "CAUSAL": False}]
    selection = chosen(tmp_path / "db", rules, cases=cases)
    texts = {dict(entry.where)["WIDTH"]: entry.costs[0].ps for entry in selection.table.entries}
    assert set(texts) == {(2,), (3,)}
    assert texts[2,] != texts[3,]


@pytest.mark.parametrize("alone", [False, True])
def test_classes_are_fitted_alone_where_that_chooses_better(tmp_path: Path, alone: bool) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float:
        # in one class large tiles are as good as none
        slower = config["BLOCK_M"] * config["BLOCK_N"] // 512 if alone and case["WIDTH"] == 3 else 1
        # noise, of which few problems show more than many
        noise = 1.0 + 0.05 * random.Random(f"{config} {case} {key}").uniform(-1.0, 1.0)
        return slower * noise * tiled(config, case, key)

    cases = [{"WIDTH": 2}, {"WIDTH": 3, "CAUSAL": False}]
    keys = KEYS if alone else KEYS[::4]
    path = write_database(tmp_path / "db", time=time, keys=keys, held_out=HELD_OUT, cases=cases)
    selection = chosen(path)
    texts = {tuple(cost.ps for cost in entry.costs) for entry in selection.table.entries}
    assert all(texts)
    assert (len(texts) == 2) is alone
    found = evaluate(measured(path, "held_out"), selection.table, RULES)
    assert found.mean_share is not None
    assert found.mean_share > 0.9


def test_a_measured_problem_keeps_its_own_order(tmp_path: Path) -> None:
    selection = chosen(tmp_path / "db")
    one = next(iter(measured(tmp_path / "db").problems.values()))
    found = look_up(selection.table, "sixteenth_pow2", one, 132)
    assert found is not None
    row = next(row for row in selection.table.entries[0].rows if row.at == one.key)
    assert found.exact
    assert found.use == tuple(selection.table.configs[number] for number in row.use)


def test_a_config_that_was_wrong_has_no_cost_in_its_class(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float | str:
        wrong = not case["CAUSAL"] and (config["BLOCK_M"], config["BLOCK_N"]) == (128, 64)
        return "wrong" if wrong and key == KEYS[3] else tiled(config, case, key)

    path = write_database(tmp_path / "db", time=time, keys=KEYS, held_out=HELD_OUT, cases=[{}, {"CAUSAL": False}])
    selection = chosen(path)
    for entry in selection.table.entries:
        assert {cost.config for cost in entry.costs} == {config for row in entry.rows for config in row.use}
    one, other = selection.table.entries
    assert len(one.costs) != len(other.costs)
    found = evaluate(measured(path, "held_out"), selection.table, RULES)
    assert found.worst_share is not None
    assert found.worst_share > 0.8


def test_terms_of_many_operations_are_refused() -> None:
    long = " + ".join(["cdiv(m, BLOCK_M + n)"] * 30)
    rules = TuningRules(names=("m", "n"), terms=(long, long))
    terms = Terms(rules, {7: Config(1, {"BLOCK_M": 64}, "")}, 132)
    assert Estimates(terms, {EVERY: {7: Cost(1.0, (5000.0, 0.0))}}, 1.0, 0.5).texts(())
    with pytest.raises(TuningError, match="at most 256 operations"):
        Estimates(terms, {EVERY: {7: Cost(1.0, (5000.0, 5000.0))}}, 1.0, 0.5).texts(())


def test_the_device_at_hand_is_looked_up_for(tmp_path: Path) -> None:
    table = chosen(tmp_path / "db").table
    problems = measured(tmp_path / "db", "held_out").problems.values()
    picks = [[look_up(table, "sixteenth_pow2", one, count) for one in problems] for count in (132, 20)]
    assert picks[0] != picks[1]
