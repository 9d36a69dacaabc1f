"""`nojit bench`: what it asks for and how it tells the result. The measuring has tests of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.bench import bundles
from nojit.aot.cli.commands import bench

from tests.aot.bench.test_charts import LAUNCHES, STARTS
from tests.aot.cli.conftest import Run, scale
from tests.support.bundles import make_bundle


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, ...]]:
    """What the commands ask to be measured; they are told the same results each time."""
    seen: dict[str, tuple[Any, ...]] = {}

    def answer(name: str, result: Any) -> Callable[..., Any]:
        def measure(*words: Any) -> Any:
            seen[name] = words
            return result

        return measure

    monkeypatch.setattr(bench, "bench_launch", answer("launch", LAUNCHES))
    monkeypatch.setattr(bench, "bench_cold_start", answer("cold-start", STARTS))
    return seen


def test_launch_asks_for_everything_by_default(run: Run, asked: dict[str, Any]) -> None:
    assert run("bench", "launch").exit_code == 0
    assert asked["launch"] == (None, (1, 4, 12, 30), (), 60, 200)


def test_launch_asks_for_what_it_is_told(run: Run, asked: dict[str, Any]) -> None:
    words = ["--args", "12,4,12", "--against", "triton", "--against", "cupy", "--rounds", 3, "--launches", 5]
    assert run("bench", "launch", *words, "--bundle", "some").exit_code == 0
    assert asked["launch"] == (Path("some"), (12, 4), ("triton", "cupy"), 3, 5)


def test_launch_shows_a_row_for_each_figure_and_what_is_missing(run: Run, asked: dict[str, Any]) -> None:
    lines = run("bench", "launch").stdout.splitlines()
    assert any(line.split() == ["4", "nojit", "3.50", "1.40", "2.40", "1.20"] for line in lines)
    assert lines[-1] == "not measured: cupy, 4 arguments: ModuleNotFoundError: No module named 'cupy'"


def test_launch_writes_json(document: Callable[..., dict[str, Any]], asked: dict[str, Any]) -> None:
    written = document("bench", "launch")
    assert written["command"] == "bench launch"
    assert written["figures"][1] == {
        "contender": "nojit", "arguments": 4, "best_us": 2.4, "median_us": 3.5, "best_ratio": 1.2, "median_ratio": 1.4,
    }  # fmt: skip
    assert written["unmeasured"][0]["contender"] == "cupy"


def test_files_are_written_where_asked(run: Run, asked: dict[str, Any], tmp_path: Path) -> None:
    result = run("bench", "launch", "--out", tmp_path / "out", "-q")
    assert result.stdout == ""
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"launch.json", "launch.svg"}


def test_cold_start_asks_and_shows(run: Run, asked: dict[str, Any]) -> None:
    result = run("bench", "cold-start", "--kernels", "50", "--against", "torch-nojit", "--rounds", 3)
    assert asked["cold-start"][:4] == (None, (50,), ("torch-nojit",), 3)
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "50 nojit 310 1.11 300 start 30.00, preload 60.00" in rows
    assert rows[-1] == "not measured: torch-nojit, 50 kernels: no torch"


def test_cold_start_writes_json(document: Callable[..., dict[str, Any]], asked: dict[str, Any]) -> None:
    written = document("bench", "cold-start")
    assert written["figures"][0]["stages"][1] == {"name": "load", "ms": 250.0}


@pytest.mark.parametrize("command", ["launch", "cold-start"])
def test_a_bench_that_measured_nothing_failed(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr(bench, "bench_launch", lambda *_: replace(LAUNCHES, figures=()))
    monkeypatch.setattr(bench, "bench_cold_start", lambda *_: replace(STARTS, figures=()))
    assert run("bench", command).exit_code == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("launch", "--args", "4,5"), "expected some of 1,4,12,30, got 5"),
        (("launch", "--args", "many"), "expected comma-separated numbers from 1 to 1000, such as 1,50, got 'many'"),
        (("launch", "--against", "c"), "--against"),
        (("launch", "--rounds", "0"), "--rounds"),
        (("cold-start", "--kernels", "0"), "such as 1,50, got '0'"),
        (("bundles", "--out", "x"), "Missing option '--arch'."),
        (("lunch",), "lunch"),
        ((), "Missing command"),
    ],
)
def test_wrong_usage_is_named(run: Run, words: tuple[str, ...], expected: str) -> None:
    result = run("bench", *words)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_bundles_are_built_for_the_others(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(folder: Path, arch: str, counts: tuple[int, ...], *, launch: bool) -> None:
        assert launch
        for name in (bundles.LAUNCH, *map(bundles.cold_name, counts)):
            make_bundle(folder / f"{name}-1-{arch}.nojit", scale())

    monkeypatch.setattr(bundles, "build", build)
    result = run("bench", "bundles", "--arch", "sm_90", "--kernels", "2", "--out", tmp_path)
    assert result.stdout.splitlines() == [
        str(tmp_path / "nojit-bench-launch-1-sm_90.nojit"),
        str(tmp_path / "nojit-bench-cold-2-1-sm_90.nojit"),
    ]
