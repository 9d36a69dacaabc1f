"""The page of serving: its example runs from a bundle of a recording, and its tables are those of the code."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.fakecuda import FakeCuda
from tests.spec import stage
from tests.spec.pages import ROOT, blocks

PAGE = ROOT / "docs/serve.md"
EXAMPLE, OWN, COUNTS = (block.text for block in blocks("python") if block.page == PAGE)


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program of the example: what docs/record.md records, as a module."""
    pytest.importorskip("triton")
    (recorded,) = (block.text for block in blocks("python") if block.page.name == "record.md")
    folder = tmp_path / "acme"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "layers.py").write_text(recorded.partition("with nojit.record")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("acme.layers")
    for name in ("acme", "acme.layers"):
        del sys.modules[name]


@pytest.mark.triton
def test_the_example_launches_from_the_bundle(
    layers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakecuda: FakeCuda, faketorch: ModuleType
) -> None:
    pytest.importorskip("click")
    from tests.support.recordings import Recorder, Tensor

    Recorder(tmp_path / "recording").call(layers.scale_kernel, Tensor(), Tensor(), 2.0, 5000, BLOCK=1024)
    words = ["build", "recording", "--out", "artifacts", "--cache-dir", "cache"]
    subprocess.run([sys.executable, "-m", "nojit", *words], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    torch = stage.make_torch(faketorch)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(layers, "torch", torch)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"runtime": importlib.import_module("nojit.runtime")}
    exec(compile(EXAMPLE, str(PAGE), "exec"), names)
    names |= {name: torch.empty(5000, dtype=torch.float32, device="cuda") for name in "xy"}
    names["scale_kernel"] = layers.scale_kernel
    exec(compile(OWN, str(PAGE), "exec"), names)
    exec(compile(COUNTS, str(PAGE), "exec"), names)
    assert [launch.grid for launch in fakecuda.launches()] == [(5, 1, 1)] * 2


def test_the_page_names_the_variables_of_the_code() -> None:
    from nojit.runtime.base.environment import MISS, SERVE, SERVE_PRELOAD

    text = PAGE.read_text(encoding="utf-8")
    table = re.findall(r"^\| `(NOJIT_\w+)` \|", text, re.MULTILINE)
    assert table == [SERVE, MISS, SERVE_PRELOAD]
