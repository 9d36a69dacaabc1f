"""A tuning bundle and a made-up GPU to tune it on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.tune.measure.child_main import Setup

from tests.support.bundles import kernel, make_bundle

ROOT = Path(__file__).resolve().parents[3]
GPU = "tests.aot.tune.fake_gpu:open_gpu"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Setup]:
    """Make a setup whose GPU behaves as the keywords say; see `fake_gpu`."""
    # the worker imports it by name
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(ROOT)
    bundle = make_bundle(tmp_path / "some.nojit", kernel("add", {"x_ptr": "*fp32", "n": "i32"}))

    def make(**said: Any) -> Setup:
        facts = {"problems": 3, "configs": 12, **said}
        Path(f"{bundle}.json").write_text(json.dumps(facts), encoding="utf-8")
        return Setup(GPU, bundle, ("fake",), ())

    return make


@pytest.fixture
def happened(tmp_path: Path) -> Callable[[], list[tuple[str, int, int]]]:
    """Read what the made-up GPU was asked for."""

    def read() -> list[tuple[str, int, int]]:
        lines = (tmp_path / "some.nojit.json.log").read_text(encoding="utf-8").split("\n")
        return [(word, int(a), int(b)) for word, a, b in (line.split() for line in lines if line)]

    return read
