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
    assert "at most 1.25 times the C loop; with 12 arguments and keywords at most 1.5 times; a quarter of" in TEXT
    assert {limit for _, _, limit in bars._STARTS} == {1.15}
    assert (
        f"at most 1.15 times `ctypes`, with 1 and with 50 kernels; 50 kernels preloaded in {bars._PRELOAD_MS:.0f} ms"
        in TEXT
    )


def test_the_tolerances_are_the_codes() -> None:
    assert f"more than {test_instructions.TOLERANCE:.0%} off" in TEXT
    assert f"held to {test_instructions.UNRECORDED} times the largest" in TEXT
    counts = [f"{number:,}" for number in test_instructions.VARIANTS]
    assert f"tables of {', '.join(counts[:-1])} and {counts[-1]} variants" in TEXT
