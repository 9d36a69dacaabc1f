"""Selection over synthetic measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.tune.select.measured_times import MeasuredTimes, collect
from nojit.aot.tune.select.rules import TuningRules
from nojit.aot.tune.select.selection import Bounds, SelectedTable, select
from nojit.aot.tune.select.tuned_file import write_tuned
from nojit.aot.tune.store.database import open_database
from nojit.runtime.tuning.tuned_tables import TunedTable, read_tuned

from tests.aot.tune.synthetic import H200, KEYS, measurement, plain_time, settings, write_database

BOUNDS = Bounds()
RULES = TuningRules(alike={"dtype": [["bf16", "fp16"]]})


def measured(path: Path, use: str = "tune") -> MeasuredTimes:
    with open_database(path) as database:
        (one,) = collect(database, use)
    return one


def chosen(path: Path, bounds: Bounds = BOUNDS, rules: TuningRules = RULES) -> SelectedTable:
    return select(measured(path), rules, bounds, {"tool": "nojit tune select 0"})


def first_settings(table: TunedTable, at: tuple[int, ...], entry: int = 0) -> dict[str, Any]:
    (row,) = [row for row in table.entries[entry].rows if row.at == at]
    return dict(table.configs[row.use[0]].settings)


def test_each_problem_has_its_best_first_and_the_others_behind(tmp_path: Path) -> None:
    selection = chosen(write_database(tmp_path / "db"))
    (group,) = selection.groups
    assert group.dtypes == ("bf16", "fp16")
    assert group.chosen.worst <= 1.05
    assert group.chosen.exact
    table = selection.table
    assert first_settings(table, (512, 64))["BLOCK_M"] == 32
    assert first_settings(table, (4096, 128))["BLOCK_M"] == 128
    for row in table.entries[0].rows:
        assert sorted(row.use) == list(range(len(table.configs)))
        assert list(row.us) == sorted(row.us)


def test_the_table_survives_its_file(tmp_path: Path) -> None:
    selection = chosen(write_database(tmp_path / "db", cases=[{}, {"CAUSAL": False}]))
    path = write_tuned(selection.table, tmp_path / "tuned")
    assert path.name == "toy.nvidia-h200.toml"
    read = read_tuned(path)
    fields = [name for name in TunedTable.__match_args__ if name != "path"]
    assert [getattr(read, name) for name in fields] == [getattr(selection.table, name) for name in fields]
    assert read.entries[0].where == (("CAUSAL", (False,)), ("dtype", ("bf16", "fp16")))


def test_fewer_configs_if_the_loss_allows_and_the_curve_says_what_each_costs(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db")
    tight, loose = chosen(path, Bounds(loss=0.0)), chosen(path, Bounds(loss=0.5))
    assert len(tight.table.configs) == 3
    assert len(loose.table.configs) == 1
    (group,) = tight.groups
    assert [len(one.configs) for one in group.curve] == [1, 2, 3]
    assert group.chosen.worst == 1.0
    capped = chosen(path, Bounds(loss=0.0, configs=2))
    assert capped.groups[0].chosen.worst > 1.0
    assert len(capped.table.configs) == 2


def test_each_dtype_class_has_a_portfolio_of_its_own(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float:
        return plain_time(config, case, key) * (2 if case["dtype"] == "fp32" and config["BLOCK_M"] != 64 else 1)

    cases = [{"dtype": name} for name in ("bf16", "fp16", "fp32")]
    selection = chosen(write_database(tmp_path / "db", time=time, cases=cases), Bounds(loss=0.01))
    assert [group.dtypes for group in selection.groups] == [("bf16", "fp16"), ("fp32",)]
    assert [len(group.cells) for group in selection.groups] == [4, 4]
    assert selection.groups[0].cells[0].names == ("512x64", "512x64")
    wheres = [dict(entry.where)["dtype"] for entry in selection.table.entries]
    assert wheres == [("bf16", "fp16"), ("fp32",)]


def test_values_of_axes_that_are_apart_have_portfolios_of_their_own(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float:
        return plain_time(config, case, key) * (1 if (config["BLOCK_M"] == 128) is case["CAUSAL"] else 3)

    cases = [{"CAUSAL": True}, {"CAUSAL": False}]
    path = write_database(tmp_path / "db", time=time, cases=cases)
    one, bounds = Bounds(configs=1), replace(RULES, apart=("CAUSAL",))
    together, apart = chosen(path, one), chosen(path, one, bounds)
    assert [group.apart for group in together.groups] == [""]
    assert together.groups[0].chosen.worst > 2
    assert [group.apart for group in apart.groups] == ["CAUSAL=False", "CAUSAL=True"]
    assert all(group.chosen.worst < 1.5 for group in apart.groups)
    assert len(apart.table.configs) == 2
    for entry in apart.table.entries:
        # a row lists its own portfolio alone
        (used,) = {number for row in entry.rows for number in row.use}
        assert (dict(apart.table.configs[used].settings)["BLOCK_M"] == 128) is (dict(entry.where)["CAUSAL"] == (True,))


def test_of_configs_of_the_same_settings_the_one_that_serves_more_is_chosen(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db", requires=lambda _: "n % 16 == 0")
    with open_database(path) as database:
        problems, measured = database.problems(), database.measurements()
        narrow = {
            number: database.add_config(replace(config, requires="n >= 1024"))
            for number, config in database.configs().items()
        }
        served = [item for item in measured if problems[item.problem].key[0] >= 1024]
        # timed apart, the narrower rule may seem the faster
        database.record(
            replace(item, config=narrow[item.config], median_us=(item.median_us or 0.0) * 0.98) for item in served
        )
    selection = chosen(path, Bounds(loss=0.0))
    assert {config.requires for config in selection.table.configs} == {"n % 16 == 0"}


def test_a_config_that_is_wrong_once_is_kept_from_its_class_alone(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float | str:
        if case["CAUSAL"] and config["BLOCK_M"] == 128 and key[0] == 512:
            return "wrong"
        return plain_time(config, case, key)

    cases = [{"CAUSAL": True}, {"CAUSAL": False}]
    table = chosen(write_database(tmp_path / "db", time=time, cases=cases)).table
    for entry in table.entries:
        used = {dict(table.configs[number].settings)["BLOCK_M"] for row in entry.rows for number in row.use}
        assert (128 in used) is (dict(entry.where)["CAUSAL"] == (False,))


def test_some_config_of_each_class_requires_nothing(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db", requires=lambda one: "n % 16 == 0" if one["num_warps"] == 4 else "")
    table = chosen(path, Bounds(loss=0.0)).table
    assert {config.requires for config in table.configs} == {"n % 16 == 0", ""}


def test_times_within_noise_are_one_and_the_commoner_config_comes_first(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float:
        slower = config["BLOCK_M"] != 64 and key != (512, 64)
        return 100 + 20 * slower + (0.3 if config["BLOCK_M"] == 64 else 0) + 50 * (config["num_warps"] == 8)

    noisy = chosen(write_database(tmp_path / "noisy", time=time, noise=0.004), Bounds(loss=0.0))
    assert first_settings(noisy.table, (512, 64))["BLOCK_M"] == 64
    exact = chosen(write_database(tmp_path / "exact", time=time, noise=0.0), Bounds(loss=0.0))
    assert first_settings(exact.table, (512, 64))["BLOCK_M"] != 64


def test_what_takes_long_weighs_more(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], _: Mapping[str, Any], key: tuple[int, int]) -> float:
        behind = 1.3 if (config["BLOCK_M"] == 64) == (key[0] == 4096) else 1.0
        # three small problems and a large one; what is not BLOCK_M = 64 is best for the large one alone
        return (1e6 if key[0] == 4096 else 2.0) * behind

    narrow = Bounds(loss=0.0, configs=1)
    table = chosen(write_database(tmp_path / "db", time=time), narrow).table
    assert dict(table.configs[0].settings)["BLOCK_M"] != 64


def test_what_is_said_to_matter_weighs_more(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float:
        # of two configs, one is 10 % behind at two problems, the other at a third one: all take as long
        wide = config["BLOCK_M"] == 64
        return 100.0 * (1.1 if wide == (key[0] != 4096) else 1.0)

    path = write_database(tmp_path / "t.db", time=time, keys=KEYS[1:], configs=settings()[3:5])

    def best() -> object:
        (config,) = chosen(path, Bounds(loss=0.0, configs=1)).table.configs
        return dict(config.settings)["BLOCK_M"]

    assert best() == 32
    with open_database(path) as database:
        (last,) = [one for one in database.problems(use="tune").values() if one.key[0] == 4096]
        database.add_problem(replace(last, weight=4.0))
    assert best() == 64


def test_a_later_rung_counts_and_an_early_one_is_told(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db", keys=[(512, 64)])
    number, (best, *others) = measure_longer(path, lambda config, us: 1.0 if config == 0 else us)
    assert measured(path).samples[number, best].us == 1.0
    assert chosen(path, Bounds(loss=0.05, configs=1)).groups[0].early == 0
    late = [sample.last for pair, sample in measured(path).samples.items() if pair[1] not in {best, *others}]
    assert not any(late)


def test_who_left_before_the_device_got_hot_is_not_taken_for_fast(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db", keys=[(512, 64)])
    cold = {config: sample.us for (_, config), sample in measured(path).samples.items()}
    number, stayed = measure_longer(path, lambda _, us: 1.5 * us)
    for config, us in cold.items():
        sample = measured(path).samples[number, config]
        assert sample.us == pytest.approx(1.5 * us)
        assert sample.last == (config in stayed)


def measure_longer(path: Path, time: Callable[[int, float], float]) -> tuple[int, list[int]]:
    """Measure a problem's three fastest configs in one more rung, from their place and time; return it and them."""
    known = {config: sample.us for (_, config), sample in measured(path).samples.items()}
    stayed = sorted(known, key=lambda config: known[config])[:3]
    with open_database(path) as database:
        (run,), (number,) = database.runs(), database.problems(use="tune")
        taken = [
            measurement(run, number, config, time(place, known[config]), 0.001, rung=3)
            for place, config in enumerate(stayed)
        ]
        database.record([one for one in taken if one is not None])
    return number, stayed


def test_new_machine_code_makes_old_measurements_void(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db", keys=[(512, 64)])
    with open_database(path) as database:
        (run,), (number,) = database.runs(), database.problems(use="tune")
        config = next(iter(database.configs()))
        again = measurement(run, number, config, 7.0, 0.001, rung=5, image="new")
        assert again is not None
        database.record([again])
    assert measured(path).samples[number, config].us == 7.0


def test_what_no_config_serves_is_named(tmp_path: Path) -> None:
    path = write_database(
        tmp_path / "db", time=lambda config, _, key: "failed" if key == (512, 64) else 5.0, held_out=[]
    )
    # a failure keeps the config from the whole class
    (group,) = chosen(path).groups
    assert set(group.unserved) == {"512x64", "1024x64", "2048x128", "4096x128"}
    assert chosen(path).table.entries == ()


def test_devices_of_one_kind_are_one(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db")
    with open_database(path) as database:
        database.add_device(type(H200)(*[*(getattr(H200, name) for name in H200.__slots__[:-1]), "GPU-2"]))
    assert measured(path).device.name == "NVIDIA H200"


def test_selecting_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name, configs in (("a", settings()), ("b", settings()[::-1])):
        path = write_database(tmp_path / name, configs=configs)
        texts.append(write_tuned(chosen(path).table, tmp_path / f"out-{name}").read_bytes())
    assert texts[0] == texts[1]
