"""The report on synthetic measurements: what it finds, and that its page is whole."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("sklearn")

from nojit.aot.tune.report.html import render_html
from nojit.aot.tune.report.markdown import BEGIN, END, render_markdown, update_page
from nojit.aot.tune.report.measurements import KernelReport, report
from nojit.aot.tune.select.rules import TuningRules
from nojit.aot.tune.select.selection import Bounds
from nojit.aot.tune.select.summaries import QualityFacts
from nojit.runtime.errors import TuningError

from tests.aot.tune.select.test_selection import measured
from tests.aot.tune.synthetic import plain_time, write_database

USUAL = {"BLOCK_M": 32, "BLOCK_N": 64, "num_warps": 4, "archs": ["sm_90"], "when": "dtype == 'bf16'"}
RULES = TuningRules(configs=({"BLOCK_M": 128, "archs": ["sm_80"]}, {"BLOCK_M": 64, "when": "dtype == 'fp32'"}, USUAL))


def time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float | str:
    if config["BLOCK_M"] == 64 and config["num_warps"] == 8:
        return "wrong"
    return plain_time(config, case, key)


@pytest.fixture
def made(tmp_path: Path) -> KernelReport:
    found = measured(write_database(tmp_path / "db", time=time))
    # num_stages of the manifest's config is Triton's default, which these configs do not have
    for config in found.configs.values():
        config.settings["num_stages"] = 3  # type: ignore[index] # a dict, in truth
    return report(found, RULES, Bounds(0.0))


def test_it_tells_how_far_the_manifests_config_is_behind(made: KernelReport) -> None:
    (one,) = made.classes
    by_problem = {best.problem: best for best in one.best}
    assert by_problem["512x64"].default_loss == pytest.approx(0.0)
    assert by_problem["4096x128"].default_loss == pytest.approx(0.4)
    losses = [best.default_loss for best in one.best]
    assert one.default_worst == max(loss for loss in losses if loss is not None)
    assert one.default_loss is not None
    assert 0 < one.default_loss < one.default_worst


def test_it_tells_what_matters_where(made: KernelReport) -> None:
    (one,) = made.classes
    assert one.importance is not None
    # which tile is best depends on the size, so that neither explains it alone
    assert set(one.importance.shares[0].factors) == {"BLOCK_M", "problem"}
    assert one.importance.totals().keys() >= {"BLOCK_M", "num_warps"}
    assert one.heat is not None
    assert "BLOCK_M" in one.heat.names
    known = [cost for row in one.heat.costs for cost in row if cost is not None]
    assert min(known) >= 1


def test_it_tells_what_was_left_out_and_where_things_come_from(made: KernelReport) -> None:
    assert made.pruned == (("needs 300000 B of shared memory", 1),)
    assert {(bad.status, bad.problems) for bad in made.unfit} == {("wrong", 4)}
    facts = dict(made.facts)
    assert facts["driver"] == "580.82.07"
    assert facts["clocks"] == "1,980 to 1,980 MHz"
    assert facts["noise"].startswith("median 0.40%")


def test_the_page_is_whole_and_needs_nothing_else(made: KernelReport, tmp_path: Path) -> None:
    page = render_html([made, made], 0.05)
    root = ET.fromstring(page.removeprefix("<!DOCTYPE html>"))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert not list(root.iter("script"))
    assert "prefers-color-scheme: dark" in page
    pictures = list(root.iter("{http://www.w3.org/2000/svg}svg"))
    assert len(pictures) == 6
    for picture in pictures:
        space = "{http://www.w3.org/2000/svg}"
        assert picture.findtext(f"{space}title")
        width, height = (float(picture.attrib[side]) for side in ("width", "height"))
        for text in picture.iter(f"{space}text"):
            assert 0 <= float(text.attrib["x"]) <= width
            assert 0 <= float(text.attrib["y"]) <= height
    for said in ("toy on NVIDIA H200", "512x64", "needs 300000 B", "wrong", "off by 3", "Median cost by"):
        assert said in page


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db", kernel="<script>alert(1)</script>", time=time)
    page = render_html([report(measured(path), TuningRules(), Bounds())], 0.05)
    assert "<script>" not in page
    ET.fromstring(page.removeprefix("<!DOCTYPE html>"))


def test_what_says_nothing_is_said_in_words(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db", time=lambda *_: 5.0, keys=[(512, 64)])
    made = report(measured(path), TuningRules(), Bounds())
    assert made.classes[0].importance is None
    assert "nothing varies" in render_html([made], 0.05)
    failed = report(measured(write_database(tmp_path / "no", time=lambda *_: "failed")), TuningRules(), Bounds())
    assert failed.classes == ()
    assert "no set of configs serves every problem" in render_html([failed], 0.05)
    assert "| - |" in render_markdown([failed, made])


def test_tables_go_between_the_marks_of_a_page(made: KernelReport, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{BEGIN}old\n{END}\nafter\n")
    text = render_markdown([made])
    update_page(page, [made])
    update_page(page, [made])
    assert page.read_text() == f"# Before\n\n{BEGIN}{text}{END}\nafter\n"
    assert "| `toy` | bf16 | 4 | 10 |" in text
    assert "### NVIDIA H200" in text
    update_page(tmp_path / "new.md", [made])
    assert text in (tmp_path / "new.md").read_text()
    page.write_text("no marks\n")
    with pytest.raises(TuningError, match="expected a page with <!-- measured: tuning -->"):
        update_page(page, [made])


def test_rows_of_kernels_that_are_not_reported_stay(made: KernelReport, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    facts = QualityFacts("toy", made.device, "held_out", 3, 1, 0.975, 0.9, "600|64 (bf16)")
    others = [renamed(made, name) for name in ("a_toy", "toy_sm90")]
    elsewhere = renamed(made, "toy", device="NVIDIA H100")
    all_facts = [replace(facts, kernel="a_toy"), facts]
    update_page(page, [others[0], made, others[1], elsewhere], all_facts)
    whole = page.read_text()
    # each alone, in any order, comes to the same page
    page.unlink()
    for one, said in (
        (others[1], []),
        (made, [facts]),
        (others[0], all_facts[:1]),
        (elsewhere, []),
        (made, [facts]),
    ):
        update_page(page, [one], said)
    assert page.read_text() == whole
    # a table that was not judged anew loses what was said of the one before it
    update_page(page, [made])
    assert "| `toy` | held_out |" not in page.read_text()
    assert "| `a_toy` | held_out | 3 | 1 | 97.5% | 90.0% | 600\\|64 (bf16) |" in page.read_text()


def renamed(made: KernelReport, kernel: str, device: str | None = None) -> KernelReport:
    return replace(made, kernel=kernel, device=device or made.device)


def test_how_good_tables_are_stands_in_words_that_cannot_break_the_page(made: KernelReport) -> None:
    facts = QualityFacts("toy", "NVIDIA H200", "held_out", 3, 1, 0.975, 0.9, "<b>600|64</b> (bf16)")
    page = render_html([made], 0.05, [facts])
    ET.fromstring(page.removeprefix("<!DOCTYPE html>"))
    assert "97.5%" in page
    assert "<b>" not in page
    text = render_markdown([made], [facts])
    assert "| `toy` | held_out | 3 | 1 | 97.5% | 90.0% | <b>600\\|64</b> (bf16) |" in text


def test_a_cost_is_never_below_one(made: KernelReport) -> None:
    assert all(best.slowest >= 1 and math.isfinite(best.us) for one in made.classes for best in one.best)
