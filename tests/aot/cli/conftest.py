"""Fixtures of the command line's tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nojit.aot.cli.group import cli

from tests.aot.fake_compiler import FakeCompiler, FakeSource
from tests.support.bundles import SyntheticKernel, kernel, make_bundle

Run = Callable[..., Result]

MANIFEST = """
[[kernel]]
name = "add"
source = "demo:add_kernel"
params = { x_ptr = "*{dtype}", n = "i32" }
matrix = { dtype = ["fp16", "bf16"] }
hints = [{ x_ptr = 16 }]
configs = [{ BLOCK = 128 }, { BLOCK = 256 }]
core = "BLOCK == 128"

[[kernel]]
name = "neg"
source = "demo:neg_kernel"
params = { x_ptr = "*fp32" }
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line; standard output and standard error are told apart."""
    for name in ("NOJIT_BUNDLES", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NOJIT_CACHE_DIR", str(tmp_path / "cache"))

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(cli, [str(word) for word in words], prog_name="nojit")

    return invoke


@pytest.fixture
def document(run: Run) -> Callable[..., dict[str, Any]]:
    """Run a command line with ``--json`` and return what it writes; all of standard output is that."""

    def invoke(*words: object, code: int = 0) -> dict[str, Any]:
        result = run(*words, "--json")
        assert result.exit_code == code, result.output
        written: dict[str, Any] = json.loads(result.stdout)
        assert written["schema"] == 1
        return written

    return invoke


def scale(**changes: Any) -> SyntheticKernel:
    """A kernel with four variants."""
    facts: dict[str, Any] = {
        "params": {"x_ptr": "*{dtype}", "n": "i32", "BLOCK": "constexpr"},
        "matrix": {"dtype": ["fp16", "fp32"]},
        "configs": [{"BLOCK": 128, "num_warps": 4}],
        "hints": [{"x_ptr": 16}],
        "grid": ["cdiv(n, BLOCK)"],
        "launch": {"shared_bytes": 2048},
    }
    return kernel("scale", **facts | changes)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of two kernels."""
    return make_bundle(tmp_path / "test.nojit", scale(), kernel("copy", {"x_ptr": "*fp32"}))


@pytest.fixture
def manifest(write_manifest: Callable[..., Path]) -> Path:
    """A manifest of two kernels with eight variants and one."""
    return write_manifest(MANIFEST)


def demo_compiler(folder: Path, **facts: Any) -> FakeCompiler:
    """The compiler of the demo manifest; `facts` are those of `FakeCompiler`."""
    sources = {"demo:add_kernel": FakeSource(("x_ptr", "n"), ("BLOCK",)), "demo:neg_kernel": FakeSource(("x_ptr",))}
    return FakeCompiler(folder / "journal", sources, **facts)


@pytest.fixture
def use_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workers_find_tests: None
) -> Callable[..., FakeCompiler]:
    """Make `nojit build` compile with a fake."""

    def use(**facts: Any) -> FakeCompiler:
        compiler = demo_compiler(tmp_path, **facts)
        monkeypatch.setattr("nojit.aot.cli.building.run_build.load_compiler", lambda *_: compiler)
        return compiler

    return use
