"""Memory that runs out at any allocation of a call: an error, no crash, no reference lost, and the next call works."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.errors import ArgumentError

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle
from tests.support.starve import needs_sound_python, starved

pytestmark = [
    pytest.mark.usefixtures("locks_that_may_stay_held"),
    # a generator that is dropped while memory is out says so on the side
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    needs_sound_python,
]


@pytest.fixture(scope="module")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    add = kernel(
        "add",
        {"x_ptr": "*{dtype}", "n": "i32", "factor": "fp32", "BLOCK": "constexpr", "EVEN": "constexpr",
         "MODE": "constexpr"},
        matrix={"dtype": ["fp16", "fp32"], "MODE": ["fast", "exact"]},
        configs=[{"BLOCK": 1024, "requires": "aligned(x_ptr, 16)"}, {"BLOCK": 64}],
        hints=[{"x_ptr": 16}],
        derived={"EVEN": "n % BLOCK == 0"},
        grid=["cdiv(n, BLOCK)"],
        launch={"global_scratch_bytes": 64, "global_scratch_align": 16},
    )  # fmt: skip
    return make_bundle(tmp_path_factory.mktemp("bundle") / "add.nojit", add)


def refused(call: Callable[..., object], *arguments: object, **named: object) -> None:
    try:
        call(*arguments, **named)
    except ArgumentError:
        return
    raise AssertionError("a wrong call went through")


def test_a_launch_that_has_its_plan(bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    add = runtime.load(bundle_path).kernel("add")
    x, n, factor, grid = faketorch.Tensor(0x4000), 12345, 2.5, (3, 1)
    # not the kernel itself: the interpreter leaks the `self` of a method whose frame it has no room for
    held = (x, n, factor, grid)
    launch: dict[str, Callable[[], object]] = {
        "the bundle's grid": lambda: add(x, n, factor, MODE="fast"),
        "a grid": lambda: add[grid](x, n, factor, MODE="fast"),
        "a grid that is computed": lambda: add[lambda meta: (meta["n"] // meta["BLOCK"],)](x, n, factor, MODE="fast"),
        "a wrong argument": lambda: refused(add, x, "12345", factor, MODE="fast"),
        "a wrong keyword": lambda: refused(add, x, n, factor, MODE="fast", FAST=1),
    }
    for name, call in launch.items():
        call()
        before = [sys.getrefcount(one) for one in held]
        for _ in starved(call, 1):
            call()
        gc.collect()
        assert [sys.getrefcount(one) for one in held] == before, name
    counts = faketorch.counts()
    assert counts["allocated"] == counts["freed"] > 0


def test_a_first_launch(bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    x = faketorch.Tensor(0x4000)
    bundles: list[Any] = [runtime.load(bundle_path)]

    def first_launch() -> None:
        bundles[-1].kernel("add")(x, 64, 2.5, MODE="exact")

    before = sys.getrefcount(x)
    for _ in starved(first_launch, 17):
        launched = fakecuda.launch_count()
        first_launch()
        assert fakecuda.launch_count() == launched + 1, "what failed can be tried again"
        bundles.append(runtime.load(bundle_path))
    assert sys.getrefcount(x) == before
    for bundle in bundles:
        bundle.close()
