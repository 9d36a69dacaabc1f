"""What the page on pointwise operators lists is what there is, and its specs are taken."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from nojit.aot.manifest.reader import load_manifest
from nojit.kernels.pointwise.__main__ import generate
from nojit.kernels.pointwise.program import FUNCTIONS
from nojit.kernels.pointwise.spec import specify

from tests.spec.pages import ROOT, Block, blocks, rows

PAGE = ROOT / "docs/pointwise.md"


@pytest.mark.parametrize(
    "block", [block for block in blocks("toml") if block.words == ("operators",)], ids=lambda block: block.id
)
def test_specs_can_be_generated_as_written(block: Block, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(block.text)
    for name, text in generate(tmp_path / "own.toml").items():
        (tmp_path / name).write_text(text)
    assert load_manifest(tmp_path / "own.toml").kernel


def test_keys_are_those_of_specs() -> None:
    assert {key for key, _ in rows(PAGE, "keys")} == set(inspect.signature(specify).parameters)


def test_functions_are_those_of_expressions() -> None:
    assert {name for names, _ in rows(PAGE, "functions") for name in re.findall(r"\w+", names)} == set(FUNCTIONS)
