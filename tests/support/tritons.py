"""Copies of the installed Triton under other versions, for builds with several toolchains."""

from __future__ import annotations

import stat
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

__all__ = ["lend_triton", "python_of"]


def python_of(folder: Path, text: str) -> Path:
    """Make an environment whose Python is a shell script, and return the environment."""
    program = folder / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def lend_triton(folder: Path, version: str, edit: tuple[str, str] = ("", "")) -> Path:
    """Make an environment with the installed Triton as another version; return the environment.

    `edit`: a text in `compiler.py` of Triton's backend for NVIDIA, and what replaces it.
    """
    spec = find_spec("triton")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (own,) = map(Path, spec.submodule_search_locations)
    site = folder / "site"
    backend = Path("backends", "nvidia")
    for inside in (Path(), Path("backends"), backend):
        (site / "triton" / inside).mkdir(parents=True, exist_ok=True)
        for entry in (own / inside).iterdir():
            if entry.name not in {"__pycache__", "backends", "nvidia"} or inside == backend:
                (site / "triton" / inside / entry.name).symlink_to(entry)
    _replace(site / "triton" / "__init__.py", distribution("triton").version, version)
    _replace(site / "triton" / backend / "compiler.py", *edit)
    facts = site / f"triton-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n", encoding="utf-8")
    points = "[triton.backends]\nnvidia = triton.backends.nvidia\n"
    (facts / "entry_points.txt").write_text(points, encoding="utf-8")
    code = "import sys; sys.path.insert(0, sys.argv[1]); exec(sys.argv[-1])"
    return python_of(folder, f"exec '{sys.executable}' -c '{code}' '{site}' \"$@\"")


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.unlink()
    path.write_text(text.replace(old, new), encoding="utf-8")
