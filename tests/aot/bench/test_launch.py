"""The launch benchmark on the fake driver: every way of nojit's and the C loop launch the same thing."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from nojit.aot.bench import contenders, rivals
from nojit.aot.bench.case_setup import Stage, Timer, Unavailable, timed
from nojit.aot.bench.cases import CASES, Case
from nojit.aot.bench.contenders import FLOOR, OURS, Contender
from nojit.aot.bench.launch import chosen, measure
from nojit.runtime.kernel import Kernel

from tests.aot.bench.conftest import SetUp
from tests.fakecuda import FakeCuda

EVERY = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.kernel)


@EVERY
def test_all_of_them_launch_the_same(case: Case, set_up: SetUp, fakecuda: FakeCuda) -> None:
    stage = set_up(case)
    fakecuda.make_current(0)
    seen = {}
    for contender in (FLOOR, *OURS):
        if contender.name == "nojit-bound" and not hasattr(Kernel, "bind"):
            continue
        timer = contender.prepare(stage)
        before = fakecuda.launch_count()
        assert timer(3) > 0
        assert fakecuda.launch_count() == before + 3
        launch = fakecuda.last_launch()
        seen[contender.name] = (launch.params, launch.grid, launch.block, launch.shared_bytes)
    assert set(seen) >= {"c-loop", "nojit", "nojit-own-grid"}
    assert len(set(seen.values())) == 1
    expected = (*stage.addresses.values(), *case.numbers.values(), 0, 0)
    assert fakecuda.last_launch().ints() == expected


def test_rounds_are_interleaved_and_begin_with_another_each_time(set_up: SetUp) -> None:
    order: list[str] = []

    def note(name: str, us: float) -> Contender:
        def run(launches: int) -> float:
            order.append(f"{name}{launches}")
            return us

        return Contender(name, name, lambda _: run)

    figures, missing = measure(set_up(CASES[4]), [note("c-loop", 2.0), note("b", 3.0)], 3, 7)
    assert order == ["c-loop1", "b1", "c-loop7", "b7", "b7", "c-loop7", "c-loop7", "b7"]
    assert missing == []
    assert [(one.contender, one.median_us, one.best_ratio, one.median_ratio) for one in figures] == [
        ("c-loop", 2.0, 1.0, 1.0),
        ("b", 3.0, 1.5, 1.5),
    ]


def test_what_cannot_be_measured_says_why(set_up: SetUp) -> None:
    def broken(_: Stage) -> Timer:
        raise ImportError("no module\n named rival")

    figures, missing = measure(set_up(CASES[1]), [Contender("rival", "", broken), OURS[2]], 1, 1)
    assert [figure.contender for figure in figures] == ["nojit"]
    assert figures[0].best_ratio is None
    assert [(one.contender, one.reason) for one in missing] == [("rival", "ImportError: no module named rival")]


def test_a_launch_that_computes_something_else_is_not_measured(set_up: SetUp) -> None:
    stage = replace(set_up(CASES[1]), correct=lambda: False)
    figures, missing = measure(stage, [OURS[0]], 1, 1)
    assert figures == []
    assert missing[0].reason == "it launches, but the result is wrong"


def test_without_a_compiler_there_is_no_floor(set_up: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Unavailable, match="no C compiler"):
        contenders.c_loop(set_up(CASES[1]))


def test_a_loop_whose_launch_fails_says_so(set_up: SetUp, fakecuda: FakeCuda) -> None:
    stage = set_up(CASES[1])
    fakecuda.make_current(0)
    timer = contenders.c_loop(stage)
    fakecuda.fail("cuLaunchKernel", 2, call=0)
    with pytest.raises(Unavailable, match="cuLaunchKernel returned error 2"):
        timer(5)


def test_rivals_are_chosen_by_name() -> None:
    ours = ["c-loop", "c-plan", "c-launch", "nojit", "nojit-own-grid", "nojit-bound"]
    assert [one.name for one in chosen(())] == [*ours, *(rival.name for rival in rivals.RIVALS)]
    assert [one.name for one in chosen(("cupy", "triton"))] == [*ours, "triton", "cupy"]


@pytest.mark.parametrize("rival", rivals.RIVALS, ids=lambda rival: rival.name)
def test_a_rival_that_is_not_there_is_listed(rival: Contender, set_up: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(rivals, "import_module", absent)
    figures, missing = measure(set_up(CASES[4]), [rival], 1, 1)
    assert figures == []
    assert missing[0].contender == rival.name
    assert "No module named" in missing[0].reason or "no static launcher" in missing[0].reason


def test_an_operator_is_measured_beside_four_arguments_only(set_up: SetUp) -> None:
    _, missing = measure(set_up(CASES[12]), [rivals.RIVALS[-1]], 1, 1)
    assert missing[0].reason == "torch.add is measured with 4 arguments only"


def test_a_statement_is_timed_without_a_call_around_it() -> None:
    seen: list[int] = []
    timer = timed("note(1)", {"note": seen.append})
    assert timer(10) > 0
    assert seen == [1] * 10
