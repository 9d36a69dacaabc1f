"""Results as charts, files and verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from nojit.aot.bench.benchmarks import save
from nojit.aot.bench.charts import cold_start_chart, launch_chart
from nojit.aot.bench.cold_start import ColdStartBench, StartFigure, StartStage, Unstarted
from nojit.aot.bench.launch import LaunchBench, LaunchFigure, Unmeasured
from nojit.aot.bench.plot import Bar, Chart, Group, svg

from benchmarks import bars
from benchmarks.scatter import Panel, Point, draw_panels

ENVIRONMENT = {"gpu": "A <GPU> & more"}
LAUNCHES = LaunchBench(
    ENVIRONMENT,
    60,
    200,
    (
        LaunchFigure("c-loop", 4, 2.0, 2.5, 1.0, 1.0),
        LaunchFigure("nojit", 4, 2.4, 3.5, 1.2, 1.4),
        LaunchFigure("triton", 4, 10.0, 12.0, 5.0, 4.8),
        LaunchFigure("c-loop", 12, 2.0, 2.5, 1.0, 1.0),
        LaunchFigure("nojit", 12, 2.4, 3.5, 1.2, 1.4),
    ),
    (Unmeasured("cupy", 4, "ModuleNotFoundError: No module named 'cupy'"),),
)
STARTS = ColdStartBench(
    ENVIRONMENT,
    7,
    (
        StartFigure("ctypes", 50, 280.0, 270.0, 300.0, 1.0, (StartStage("start", 30.0), StartStage("load", 250.0))),
        StartFigure("nojit", 50, 310.0, 300.0, 320.0, 1.107, (StartStage("start", 30.0), StartStage("preload", 60.0))),
    ),
    (Unstarted("torch-nojit", 50, "no torch"),),
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("chart", [launch_chart(LAUNCHES), cold_start_chart(STARTS)], ids=["launch", "cold-start"])
def test_a_chart_is_wellformed_and_holds_everything_inside(chart: Chart) -> None:
    text = svg(chart)
    root = ET.fromstring(text)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.find(f"{SVG}title") is not None
    assert "A <GPU> & more" in (root.findtext(f"{SVG}desc") or "")
    assert "prefers-color-scheme: dark" in text
    for shape in root.iter(f"{SVG}rect"):
        left, top = float(shape.attrib.get("x", 0)), float(shape.attrib.get("y", 0))
        assert left + float(shape.attrib["width"]) <= width
        assert top + float(shape.attrib["height"]) <= height
    for words in root.iter(f"{SVG}text"):
        assert 0 < float(words.attrib["x"]) < width
        assert 0 < float(words.attrib["y"]) < height


def test_a_bar_is_as_long_as_its_figure() -> None:
    bars_drawn = (Bar("a", (("x", 1.0), ("y", 3.0)), "4"), Bar("b", (("x", 2.0),), "2"))
    root = ET.fromstring(svg(Chart("t", "d", (Group("g", bars_drawn),))))
    _, *legend, first, second, third = root.iter(f"{SVG}rect")
    one, three, two = (float(rect.attrib["width"]) for rect in (first, second, third))
    assert [rect.attrib["fill"] for rect in (first, second, third)] == [
        legend[0].attrib["fill"],
        legend[1].attrib["fill"],
        legend[0].attrib["fill"],
    ]
    assert (three / one, two / one) == (pytest.approx(3, abs=0.01), pytest.approx(2, abs=0.01))


def test_every_series_has_a_colour_of_its_own() -> None:
    parts = tuple((str(number), 1.0) for number in range(40))
    root = ET.fromstring(svg(Chart("of", "many", (Group("all", (Bar("one", parts, ""),)),))))
    _, *rectangles = root.iter(f"{SVG}rect")
    assert len(rectangles) == 2 * len(parts)
    assert len({each.attrib["fill"] for each in rectangles}) == len(parts)


def test_a_chart_of_nothing_is_a_chart() -> None:
    ET.fromstring(svg(Chart("t", "d", (Group("g", ()),))))


def test_results_are_saved_as_data_and_picture(tmp_path: Path) -> None:
    data, picture = save(tmp_path / "new", LAUNCHES)
    assert (data.name, picture.name) == ("launch.json", "launch.svg")
    assert json.loads(data.read_text())["figures"][0]["contender"] == "c-loop"
    ET.fromstring(picture.read_text())
    assert [path.name for path in save(tmp_path / "new", STARTS)] == ["cold-start.json", "cold-start.svg"]


def test_launches_are_held_to_their_bars() -> None:
    verdicts = {verdict.text: verdict for verdict in bars.launch_verdicts(LAUNCHES)}
    assert not verdicts["nojit / c-loop, 4 arguments, medians"].holds
    assert verdicts["nojit / c-loop, 4 arguments, bests"].holds
    assert verdicts["nojit / c-loop, 12 arguments, medians"].holds
    assert not verdicts["nojit / triton, 4 arguments, medians"].holds
    assert verdicts["nojit / triton, 4 arguments, bests"].holds
    assert len(verdicts) == 6, "what was not measured has no verdict"


def test_starts_are_held_to_their_bars() -> None:
    within, over = bars.cold_start_verdicts(STARTS)
    assert within.holds
    assert within.value == pytest.approx(1.107)
    assert (over.text, over.holds) == ("nojit, 50 kernels preloaded, ms", False)


def test_a_panel_has_a_point_for_each_shape_and_marks_the_slow_ones() -> None:
    points = (Point("1 x <2>", 1e6, 0.5), Point("3 x 4", 1e9, 1.2), Point("5 x 6", 1e7, 9.0))
    panels = [Panel(f"family {number}", "FLOP", points) for number in range(5)]
    drawn = ET.fromstring(draw_panels("Random", "here", panels))
    circles = [each for each in drawn if each.tag.endswith("circle")]
    assert len(circles) == 15
    assert [each.get("class") for each in circles[:3]] == ["slow", "point", "point"]
    assert circles[0][0].text == "1 x <2>: 0.50"
    heights = [float(each.get("cy", "")) for each in circles[:3]]
    assert heights[0] > heights[1] > heights[2] == 84.0
    assert float(circles[12].get("cy", "")) > float(circles[0].get("cy", "")), "the fifth panel is below the first"


def test_a_panel_of_one_shape_is_drawn() -> None:
    assert "circle" in draw_panels("Random", "here", [Panel("one", "B", (Point("1", 10.0, 1.0),))])
