"""Examples that a reader runs: without torch they say so in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [
    path
    for path in sorted((ROOT / "examples").glob("*/*.py"))
    if path.name == "run.py" or '__name__ == "__main__"' in path.read_text(encoding="utf-8")
]
# it measures servers that it starts, and imports no torch
STARTS_OTHERS = "inference_server/client.py"
CODE = """
import runpy, sys
sys.modules |= {"torch": None, "triton": None}
sys.path.insert(0, sys.argv.pop())
runpy.run_path(sys.argv.pop(), run_name="__main__")
"""


@pytest.mark.parametrize(
    "script",
    [path for path in SCRIPTS if not str(path).endswith(STARTS_OTHERS)],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_an_example_without_torch_names_what_to_install(script: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CODE, script, script.parent], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: expected torch to be installed: pip install ")
