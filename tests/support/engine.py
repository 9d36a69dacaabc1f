"""Compile the C engine for programs of the tests that link it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["FLAGS", "compile_engine", "sanitizing_compiler"]

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "runtime/engine"
FLAGS = ("-g", f"-I{ROOT / ENGINE}", f"-I{ROOT / ENGINE}/include")


def sanitizing_compiler() -> list[str]:
    """Return the compiler and its flags for AddressSanitizer and UBSan; ``NOJIT_COVERAGE_CC`` names one that counts lines instead."""
    # clang sees more kinds of undefined behaviour than gcc
    compiler = shutil.which("clang") or "gcc"
    sanitize = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    return os.environ.get("NOJIT_COVERAGE_CC", "").split() or [compiler, *sanitize]


def compile_engine(folder: Path, *compiler: str) -> list[Path]:
    """Compile each source of the engine into `folder`; return the objects."""
    # a profile of coverage names static functions by paths from the checkout's root on
    sources = sorted(path.relative_to(ROOT) for path in (ROOT / ENGINE).rglob("*.c"))
    objects = [folder / f"{number}.o" for number in range(len(sources))]
    for source, made in zip(sources, objects, strict=True):
        command = [*compiler, "-std=c11", *FLAGS, "-c", str(source), "-o", str(made)]
        subprocess.run(command, cwd=ROOT, check=True)
    return objects
