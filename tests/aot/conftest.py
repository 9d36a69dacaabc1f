"""Fixtures of the build side's tests. Nothing here, or that it imports, needs Triton."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aot.projects import Project

ROOT = Path(__file__).resolve().parents[2]

HEADER = """\
schema = 1

[bundle]
name = "demo"
version = "1.0"
archs = ["sm_90"]
"""

KERNEL = """
[[kernel]]
name = "add"
source = "demo:add_kernel"

"""


@pytest.fixture
def write_manifest(tmp_path: Path) -> Callable[..., Path]:
    """Write a manifest: the usual header, then what is given; a second name makes a second file."""

    def write(text: str, *, name: str = "demo.toml", header: str = HEADER) -> Path:
        path = tmp_path / name
        path.write_text(header + text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def project(tmp_path: Path) -> Callable[[], Project]:
    """Make a project in a new folder."""
    numbers = iter(range(1000))
    return lambda: Project(tmp_path / f"project{next(numbers)}")


@pytest.fixture
def workers_find_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pool's workers import functions of test modules, wherever pytest was started."""
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{known}" if known else str(ROOT))
