"""Evaluation over synthetic measurements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.tune.select.evaluate import evaluate, mean_share, repeat
from nojit.aot.tune.select.lookup import find_config, look_up, table_for
from nojit.aot.tune.select.rules import TuningRules
from nojit.aot.tune.select.selection import Bounds, select
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedDevice, TunedTable

from tests.aot.tune.select.test_selection import measured
from tests.aot.tune.synthetic import plain_time, problem, write_database

RULES = TuningRules()


def tuned(path: Path, **bounds: Any) -> TunedTable:
    return select(measured(path), RULES, Bounds(**bounds)).table


def test_the_share_is_the_best_time_over_the_choices(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db")
    table = tuned(path, loss=0.0)
    result = evaluate(measured(path, "held_out"), table, RULES)
    shares = {one.problem: one for one in result.problems}
    # 600 lies nearest to 512 and wants its tile; 3000 is nearest to 3072's bucket neighbour 4096
    assert shares["600x64"].share == 1.0
    assert shares["3000x128"].share == 1.0
    assert shares["600x64"].exact is False
    assert shares["600x64"].at == (512, 64)
    assert (result.mean_share, result.worst_share) == (1.0, 1.0)
    one = tuned(path, loss=0.0, configs=1)
    worse = evaluate(measured(path, "held_out"), one, RULES)
    assert worse.worst_share is not None
    assert worse.worst_share < 0.9
    assert worse.problems[0].share == worse.worst_share
    assert worse.mean_share == pytest.approx((worse.problems[0].share * worse.problems[1].share) ** 0.5)


def test_a_choice_that_does_not_work_counts_as_nothing(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float | str:
        return "wrong" if key == (600, 64) and config["BLOCK_M"] == 32 else plain_time(config, case, key)

    path = write_database(tmp_path / "db", time=time)
    result = evaluate(measured(path, "held_out"), tuned(path, loss=0.0), RULES)
    assert (result.problems[0].status, result.problems[0].share) == ("wrong", 0.0)
    assert result.mean_share == 0.0


def test_what_was_not_measured_is_skipped_and_counted(tmp_path: Path) -> None:
    def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float | str:
        gone = key == (3000, 128) or (key == (600, 64) and config["BLOCK_M"] == 32)
        return "absent" if gone else plain_time(config, case, key)

    path = write_database(tmp_path / "db", time=time)
    (one,) = evaluate(measured(path, "held_out"), tuned(path, loss=0.0), RULES).problems
    assert (one.status, one.skipped) == ("ok", 1)
    # nothing of the table was measured at all
    strange = write_database(tmp_path / "strange", configs=[{"BLOCK_M": 16}], time=lambda *_: 1.0)
    (first, _) = evaluate(measured(strange, "held_out"), tuned(path), RULES).problems
    assert (first.status, first.share) == ("unmeasured", None)


def test_a_case_without_an_entry_is_untuned(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db")
    other = write_database(tmp_path / "other", cases=[{"CAUSAL": False}])
    result = evaluate(measured(other, "held_out"), tuned(path), RULES)
    assert {one.status for one in result.problems} == {"untuned"}
    assert (result.mean_share, result.worst_share) == (None, None)


def test_repeated_runs_are_compared_by_the_first(tmp_path: Path) -> None:
    def later(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float:
        return plain_time(config, case, key) * (0.5 if config["BLOCK_M"] == 64 else 1)

    first, second = write_database(tmp_path / "a"), write_database(tmp_path / "b", time=later)
    found, other = measured(first), measured(second)
    selections = [select(one, RULES, Bounds(0.0)) for one in (found, other)]
    assert {one.drift for one in repeat(found, selections[0], selections[0], RULES)} == {0.0}
    worst, *rest = repeat(found, *selections, RULES)
    assert worst.drift == pytest.approx(0.2)
    assert rest[-1].drift == 0.0


def test_the_row_is_the_one_that_the_runtime_would_take(tmp_path: Path) -> None:
    table = tuned(write_database(tmp_path / "db"), loss=0.0)
    assert look_up(table, "quarter_pow2", problem(1, (1000, 64)), 132).at == (1024, 64)
    assert look_up(table, "quarter_pow2", problem(1, (1000, 64)), 132).exact
    far = look_up(table, "exact", problem(1, (1000, 64)), 132)
    assert (far.at, far.exact) == ((1024, 64), False)
    assert look_up(table, "exact", problem(1, (1, 1), case={"CAUSAL": False}), 132) is None


def test_another_device_of_the_arch_uses_the_nearest(tmp_path: Path) -> None:
    table = tuned(write_database(tmp_path / "db"))
    assert table_for([table], "toy", TunedDevice("NVIDIA H100", "sm_90", 114, 80 << 30)) is table
    assert table_for([table], "toy", TunedDevice("NVIDIA A100", "sm_80", 108, 80 << 30)) is None
    assert table_for([table], "other", table.device) is None


def test_a_config_is_found_by_the_settings_that_are_named(tmp_path: Path) -> None:
    configs = measured(write_database(tmp_path / "db")).configs
    number = find_config(configs, TunedConfig((("BLOCK_M", 64), ("num_warps", 8)), ""))
    assert number is not None
    assert (configs[number].settings["BLOCK_M"], configs[number].settings["num_warps"]) == (64, 8)
    assert find_config(configs, TunedConfig((("BLOCK_M", True),), "")) is None
    assert find_config(configs, TunedConfig((("BLOCK_M", 64),), "aligned(x, 16)")) is None


def test_the_mean_of_nothing_is_none() -> None:
    assert mean_share([]) is None
    assert mean_share([0.0, 1.0]) == 0.0
