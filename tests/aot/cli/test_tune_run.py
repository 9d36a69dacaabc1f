"""How a tuning speaks: words and JSON, a line now and then, and what is wrong on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.cli.commands.tune import run as tune_run
from nojit.aot.cli.console import Output
from nojit.aot.cli.progress.tuning_progress import Lines, follow_tuning
from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.events import Fault, Listed, Lost
from nojit.aot.tune.measure.request import ProblemRun
from nojit.aot.tune.store.database import open_database
from nojit.aot.tune.store.records import Device

from tests.aot.cli.conftest import Run
from tests.aot.tune.conftest import GPU, fake

__all__ = ["fake"]

LISTED = Listed("add", "small", "tune", "", "bf16", {})
ENDED = ProblemRun("add", "small", "tune", "bf16", 10, 0, 0, complete=True, best_us=3.0, seconds=1.0, reason="")


@pytest.fixture
def tune(run: Run, fake: Callable[..., Setup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(tune_run, "_GPU", GPU)

    def go(*words: str, **said: Any) -> Any:
        setup = fake(**said)
        return run("tune", "run", str(setup.bundle), "--problems", "fake", "--out", str(tmp_path / "some.db"), *words)

    return go


def test_words(tune: Callable[..., Any], tmp_path: Path) -> None:
    result = tune(problems=2, faults={"0": "wrong"}, unready=1)
    assert result.exit_code == 0
    assert "24 pairs" not in result.stdout
    assert "12 pairs of config and problem in" in result.stdout
    assert "left out: add, problem 1 (bf16): no variant of the bundle serves it" in result.stdout
    assert str(tmp_path / "some.db") in result.stdout
    assert "Fake (sm_90): 2 problems" in result.stderr
    assert "2 problems measured before" not in result.stdout
    assert "1 problem measured before" in tune(problems=2, unready=1).stdout


def test_json(tune: Callable[..., Any], tmp_path: Path) -> None:
    result = tune("--json", "--exhaustive", "--seed", "7", problems=1)
    document = json.loads(result.stdout)
    assert document["command"] == "tune run"
    assert document["pairs"] == 12
    assert document["problems"][0]["complete"] is True
    assert document["device"]["name"] == "Fake"
    with open_database(tmp_path / "some.db") as database:
        assert database.runs()[1].seed == 7


def test_nothing_measured_is_a_failure(tune: Callable[..., Any]) -> None:
    assert tune(problems=1, configs=2, faults={"0": "wrong", "1": "wrong"}).exit_code == 1


def test_details_on_demand(tune: Callable[..., Any]) -> None:
    assert "off by 3" not in tune(problems=1, faults={"0": "wrong"}).stderr
    assert "add, problem 1: wrong: output 0 is off by 3" in tune("-v", problems=2, faults={"0": "wrong"}).stderr


@pytest.mark.parametrize("budget", ["0", "ten", "-5s", "5 m", "3d", "nan"])
def test_a_budget_is_a_time(run: Run, tmp_path: Path, budget: str) -> None:
    words = [str(tmp_path), "--problems", "x", "--out", str(tmp_path / "a.db"), f"--budget={budget}"]
    result = run("tune", "run", *words)
    assert result.exit_code == 2
    assert "expected a time such as 90s, 10m or 1h" in result.stderr


def test_without_a_bundle_no_database_is_made(run: Run, tmp_path: Path) -> None:
    result = run("tune", "run", tmp_path / "no.nojit", "--problems", "x", "--out", tmp_path / "some.db")
    assert (result.exit_code, "expected a tuning bundle, got no such path" in result.stderr) == (1, True)
    assert not list(tmp_path.iterdir())


def test_without_problems_no_database_is_left(run: Run, bundle: Path, tmp_path: Path) -> None:
    database = tmp_path / "some.db"
    words = ("tune", "run", bundle, "--problems", "no.such.module", "--out", database)
    assert run(*words).exit_code == 1
    assert not list(tmp_path.glob("some.db*"))
    with open_database(database, create=True):
        pass
    assert run(*words).exit_code == 1
    assert database.exists()


def test_a_folder_must_hold_one_bundle(run: Run, tmp_path: Path) -> None:
    result = run("tune", "run", str(tmp_path), "--problems", "x", "--out", str(tmp_path / "a.db"))
    assert result.exit_code == 1
    assert "expected one tuning bundle, or a folder with exactly one; build one" in result.stderr


def test_lines_come_now_and_then() -> None:
    now, lines = 0.0, []
    view = Lines(lines.append, clock=lambda: now)
    view.begin(Device("Fake", "sm_90", 1, 1, "", ""), 100, 7)
    for _ in range(10):
        view.problem(LISTED)
        view.ended(ENDED, 60.0)
    assert lines == [
        "Fake (sm_90): 100 problems, 7 measured before",
        "10 of 100 problems, 100 pairs, about 1 min 00 s left: add",
    ]
    now = 20.0
    view.ended(ENDED, 55.0)
    assert len(lines) == 3
    view.event(LISTED, Fault(0, "wrong", "off"))
    view.event(LISTED, Lost("it ended"))
    assert lines[3:] == ["add, small: it ended; starting another"]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with follow_tuning(Output(json=False, verbosity=-1)) as view:
        view.begin(Device("Fake", "sm_90", 1, 1, "", ""), 1, 0)
        view.problem(LISTED)
        view.event(LISTED, Lost("it ended"))
        view.ended(ENDED, 0.0)
    assert capsys.readouterr() == ("", "")
