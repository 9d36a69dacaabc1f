"""The page of the benchmarks names what is measured, with the numbers that the code has."""

from __future__ import annotations

from nojit.aot.bench.cold_start import WAYS
from nojit.aot.bench.launch import CONTENDERS

from benchmarks import bars
from tests.runtime import test_instructions
from tests.spec.pages import ROOT, rows

PAGE = ROOT / "docs/benchmarks.md"
TEXT = " ".join(PAGE.read_text(encoding="utf-8").split())


def test_every_contender_is_explained() -> None:
    assert [row[0] for row in rows(PAGE, "contenders")] == [contender.name for contender in CONTENDERS]


def test_every_way_is_explained() -> None:
    assert [row[0] for row in rows(PAGE, "ways")] == [way.name for way in WAYS]


def test_the_bars_are_the_codes() -> None:
    limits = {(contender, arguments, other): limit for contender, arguments, other, limit in bars._LAUNCH}
    assert limits["nojit", 4, "c-loop"] == limits["nojit-bound", 4, "c-loop"] == 1.25
    assert limits["nojit", 12, "c-loop"] == 1.5
    assert limits["nojit", 4, "triton"] == 1 / 4
    assert limits["c-plan", 4, "c-loop"] == limits["c-plan", 12, "c-loop"] == 1.05
    assert limits["c-launch", 4, "c-loop"] == limits["c-launch", 12, "c-loop"] == 1.15
    assert set(limits.values()) == {1.05, 1.15, 1.25, 1.5, 1 / 4}
    assert {limit for _, _, limit in bars._STARTS} == {1.15}
    said = {figure: bar for figure, bar, _ in rows(PAGE, "bars")}
    assert said["one launch, 4 arguments, each of nojit's call forms, relative to the C loop"] == "1.25"
    assert said["one launch, 12 arguments and keywords, relative to the C loop"] == "1.5"
    assert said["one launch from C, `nj_plan_launch`, relative to the C loop"] == "1.05"
    assert said["one launch from C, `nj_kernel_launch`, relative to the C loop"] == "1.15"
    assert said["one launch, relative to Triton's JIT"] == "1/4"
    assert said["process start to the end of a first kernel, relative to `ctypes`"] == "1.15"
    assert said["process start to the end of 50 kernels, relative to `ctypes`"] == "1.15"
    assert said["preloading 50 kernels"] == f"{bars._PRELOAD_MS:.0f} ms"


def test_the_tolerances_are_the_codes() -> None:
    assert f"more than {test_instructions.TOLERANCE:.0%} off" in TEXT
    assert f"held to {test_instructions.UNRECORDED} times the largest" in TEXT
    counts = [f"{number:,}" for number in test_instructions.VARIANTS]
    assert f"tables of {', '.join(counts[:-1])} and {counts[-1]} variants" in TEXT
