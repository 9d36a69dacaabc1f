"""Runs scripts where Triton is hidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
HIDE = "import tests.support.hidden_triton\n"
INSTALL = "from nojit.runtime.serve import standin\nassert standin.install()\n"


def run(script: str, *, hidden: bool = True, installed: bool = True, paths: tuple[Path, ...] = (), **env: str) -> str:
    """Run a script in a process of its own, and return what it prints."""
    lines = (HIDE if hidden else "") + (INSTALL if installed else "") + script
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "NOJIT_"))}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT))), "CUDA_VISIBLE_DEVICES": "", **env}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", lines],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def without_triton() -> Callable[..., Any]:
    """Run a script over the stand-in; it prints JSON on its last line."""
    return lambda script, **settings: json.loads(run(script, **settings).splitlines()[-1])
