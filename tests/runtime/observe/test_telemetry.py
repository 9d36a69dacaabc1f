"""Spans and figures as OpenTelemetry's own SDK sees them, where it is installed, and ranges for NVTX."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nojit.runtime import loader
from nojit.runtime.observe import events, hooks, telemetry

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle


@pytest.fixture
def bundle(tmp_path: Path, fakecuda: FakeCuda) -> Iterator[loader.Bundle]:
    with loader.load(make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}))) as opened:
        yield opened


class Recorder:
    """Takes the calls that OpenTelemetry's tracer, span, meter and instruments take, and no others."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.figures: list[tuple[str, float, dict[str, Any]]] = []

    def start_span(self, name: str, *, attributes: dict[str, Any], start_time: int) -> Any:
        span: dict[str, Any] = {"name": name, "attributes": attributes, "start": start_time}
        self.spans.append(span)
        return SimpleNamespace(end=lambda *, end_time: span.update(end=end_time))

    def create_counter(self, name: str, *, unit: str, description: str) -> Any:
        return SimpleNamespace(add=lambda amount, attributes: self.figures.append((name, amount, attributes)))

    def create_histogram(self, name: str, *, unit: str, description: str) -> Any:
        return SimpleNamespace(record=lambda amount, attributes: self.figures.append((name, amount, attributes)))


def test_events_are_spans_and_figures(bundle: loader.Bundle) -> None:
    recorder = Recorder()
    handle = telemetry.add_opentelemetry(tracer=recorder, meter=recorder)
    try:
        bundle.kernel("add")[(1,)](1)
    finally:
        events.remove(handle)
    load, plan = recorder.spans
    assert (load["name"], plan["name"]) == ("nojit.load", "nojit.plan")
    assert plan["start"] < load["end"] <= plan["end"]
    common = {"nojit.bundle": bundle.files[0].id, "nojit.kernel": "add", "nojit.device": 0}
    variant = bundle.files[0].table("add").variant_id(0)
    assert load["attributes"] == {**common, "nojit.kind": "load", "nojit.variant": variant, "nojit.detail": "image=0"}
    counted = [figure for figure in recorder.figures if figure[0] == "nojit.events"]
    assert counted == [("nojit.events", 1, {**common, "nojit.kind": kind}) for kind in ("load", "plan")]
    timed = [amount for name, amount, _ in recorder.figures if name == "nojit.duration"]
    assert [(span["end"] - span["start"]) / 1e9 for span in recorder.spans] == pytest.approx(timed)


@pytest.mark.parametrize("kind", ["tracer", "meter"])
def test_one_of_the_two_will_do(bundle: loader.Bundle, kind: str) -> None:
    recorder = Recorder()
    handle = telemetry.add_opentelemetry(**{kind: recorder})
    try:
        bundle.kernel("add")[(1,)](1)
    finally:
        events.remove(handle)
    assert (len(recorder.spans), len(recorder.figures)) == ((2, 0) if kind == "tracer" else (0, 4))


def test_neither_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="expected a tracer, a meter or both"):
        telemetry.add_opentelemetry()


def test_the_real_thing_takes_it(bundle: loader.Bundle) -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    metrics = pytest.importorskip("opentelemetry.sdk.metrics")
    reading = pytest.importorskip("opentelemetry.sdk.metrics.export")
    exporter, provider = memory.InMemorySpanExporter(), trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    reader = reading.InMemoryMetricReader()
    meters = metrics.MeterProvider([reader])
    handle = telemetry.add_opentelemetry(tracer=provider.get_tracer("t"), meter=meters.get_meter("t"))
    try:
        bundle.kernel("add")[(1,)](1)
    finally:
        events.remove(handle)
    load, plan = exporter.get_finished_spans()
    assert (load.name, plan.name) == ("nojit.load", "nojit.plan")
    assert load.attributes["nojit.kernel"] == "add"
    assert 0 < load.end_time - load.start_time <= plan.end_time - plan.start_time
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    assert {metric.name for metric in scope.metrics} == {"nojit.events", "nojit.duration"}
    provider.shutdown()
    meters.shutdown()


class Ranges:
    """What of the package nvtx is used, or of torch.cuda.nvtx."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def push(self, name: str) -> None:
        self.calls.append(name)

    def pop(self) -> None:
        self.calls.append("pop")


@pytest.mark.parametrize("of", ["nvtx", "torch"])
def test_launches_are_ranges(bundle: loader.Bundle, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    ranges = Ranges()
    if of == "nvtx":
        monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(push_range=ranges.push, pop_range=ranges.pop))
    else:
        monkeypatch.setitem(sys.modules, "nvtx", None)
        inner = SimpleNamespace(nvtx=SimpleNamespace(range_push=ranges.push, range_pop=ranges.pop))
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=inner))
    handle = telemetry.add_nvtx()
    try:
        bundle.kernel("add")[(1,)](1)
        bundle.kernel("add")[(1,)](1)
    finally:
        hooks.remove(handle)
    assert ranges.calls == ["add", "pop"] * 2


def test_without_either_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="pip install nvtx"):
        telemetry.add_nvtx()
