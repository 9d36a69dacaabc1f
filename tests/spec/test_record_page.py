"""The page of recordings: its example runs, and its tables are those of the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.recording.file import KINDS, read_recording

from tests.spec.pages import ROOT, blocks, rows

PAGE = ROOT / "docs/record.md"
FIELDS = dict(rows(PAGE, "kinds"))
# the GPU of the example: it compiles nothing
STAGE = """
import runpy, sys, torch
from tests.runtime.recording.programs.gpu import Gpu, install
install(Gpu())
ones = torch.ones
torch.ones = lambda count, device: ones(count)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.fixture
def lines(tmp_path: Path) -> list[dict[str, Any]]:
    """Run the page's example; return the lines of its recording."""
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    (block,) = (block for block in blocks("python") if block.page == PAGE)
    program = tmp_path / "program.py"
    program.write_text(block.text, encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_DEFAULT_FP_FUSION": "1"}
    subprocess.run([sys.executable, "-c", STAGE, str(program)], env=variables, cwd=tmp_path, check=True, timeout=300)
    text = (tmp_path / "scale.nojitrec").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_the_kinds_of_lines_are_the_kinds() -> None:
    assert list(FIELDS) == list(KINDS)


def test_the_example_is_recorded_and_the_page_names_its_fields(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    recording = read_recording(tmp_path / "scale.nojitrec")
    ((digest, found),) = recording.specializations.items()
    assert found["qualname"] == "scale_kernel"
    assert recording.samples[digest] == [{"grid": [5], "values": [["n", 5000]]}]
    assert recording.problems == []
    for line in lines:
        for field in line.keys() - {"record"}:
            assert f"`{field}`" in FIELDS[line["record"]], (line["record"], field)


def test_the_page_of_json_names_what_the_command_writes(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("click")
    del lines
    words = ["record", "--json", "--merge", "-o", "all.nojitrec", "scale.nojitrec"]
    done = subprocess.run(
        [sys.executable, "-m", "nojit", *words], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300
    )
    document = json.loads(done.stdout)
    said = dict(rows(ROOT / "docs/json-output.md", "documents"))["record"]
    for field in {*document, *document["kernels"][0]} - {"schema", "command"}:
        assert f"`{field}`" in said
