"""Every manifest on the page can be built as written, and what the page says of the language is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.manifest.config_rules import CONFIG_RULES
from nojit.aot.manifest.mistakes import shorten
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.expand import expand_kernel
from nojit.runtime.errors import ManifestError
from nojit.runtime.expr import expression as expr
from nojit.runtime.expr.postfix import FUNCTIONS
from nojit.runtime.tuning.tuned_tables import read_tuned

from tests.spec.pages import ROOT, Block, blocks, rows

PAGE = ROOT / "docs/manifest.md"

# what a part of a manifest is completed with, where it does not say so itself
HEAD = """schema = 1
[bundle]
name = "demo"
version = "1.0"
archs = ["sm_80", "sm_90"]
[[kernel]]
name = "demo"
source = "demo.py:demo_kernel"
"""
REST = {
    "params": '[kernel.params]\nx_ptr = "*{dtype}"\nn = "i32"\n',
    "matrix": '[kernel.matrix]\ndtype = ["fp16", "fp32"]\n',
    "configs": "[[kernel.configs]]\nBLOCK = 1024\n",
}

WHOLE = [block for block in blocks("toml") if not block.words or block.words[0].startswith("file=")]
PARTS = [block for block in blocks("toml") if block.words == ("part",)]
TUNED = [block for block in blocks("toml") if block.words == ("tuned",)]
WRONG = [block for block in blocks("toml") if block.words == ("wrong",)]
# tests/spec/test_pointwise_page.py
OPERATORS = [block for block in blocks("toml") if block.words == ("operators",)]
# tests/spec/test_trust_page.py
KEYS = [block for block in blocks("toml") if block.words == ("keys",)]


def complete(part: str) -> str:
    keys: Any = tomllib.loads(part).get("kernel", {})
    return HEAD + part + "".join(text for key, text in REST.items() if key not in keys)


def expand(path: Path) -> int:
    manifest = load_manifest(path)
    return sum(
        len(expand_kernel(spec, arch, str(path)).variants) for spec in manifest.kernel for arch in manifest.bundle.archs
    )


def test_every_block_of_toml_is_tested() -> None:
    assert len(blocks("toml")) == len(WHOLE) + len(PARTS) + len(TUNED) + len(WRONG) + len(OPERATORS) + len(KEYS)
    assert WHOLE
    assert len(PARTS) >= 6


@pytest.mark.parametrize("block", TUNED, ids=lambda block: block.id)
def test_a_tuned_table_is_read(tmp_path: Path, block: Block) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text(block.text, encoding="utf-8")
    assert read_tuned(path).entries


@pytest.mark.parametrize("block", WHOLE, ids=lambda block: block.id)
def test_a_manifest_loads_and_expands(tmp_path: Path, block: Block) -> None:
    path = tmp_path / "whole.toml"
    path.write_text(block.text, encoding="utf-8")
    assert expand(path)


@pytest.mark.parametrize("block", PARTS, ids=lambda block: block.id)
def test_a_part_of_a_manifest_loads_and_expands(tmp_path: Path, block: Block) -> None:
    path = tmp_path / "part.toml"
    path.write_text(complete(block.text), encoding="utf-8")
    assert expand(path)


@pytest.mark.parametrize("block", WRONG, ids=lambda block: block.id)
def test_a_mistake_is_told_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: Block) -> None:
    text = block.page.read_text(encoding="utf-8")
    message = text.partition(block.text)[2].partition("```text\n")[2].partition("\n```")[0]
    monkeypatch.chdir(tmp_path)
    Path("demo.toml").write_text(block.text, encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        load_manifest(Path("demo.toml"))
    assert str(caught.value) == message


def test_the_page_counts_the_variants_of_its_manifest() -> None:
    (block,) = (block for block in WHOLE if block.page == PAGE)
    path = ROOT / block.words[0].removeprefix("file=")
    manifest = load_manifest(path)
    assert [len(expand_kernel(manifest.kernel[0], arch, "").variants) for arch in manifest.bundle.archs] == [4, 4]
    assert "makes four variants for each architecture" in PAGE.read_text(encoding="utf-8")


def test_every_option_is_explained() -> None:
    assert all(option.about.endswith(".") for option in OPTIONS.values())


def test_every_rule_of_a_config_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for rule in CONFIG_RULES:
        assert re.search(rf"^\| `{rule}` \|", text, re.MULTILINE)


def test_every_function_is_explained() -> None:
    assert [row[0].partition("(")[0] for row in rows(PAGE, "functions")] == list(FUNCTIONS)


@pytest.mark.parametrize("row", rows(PAGE, "expressions"), ids=lambda row: shorten(row[0]))
def test_an_expression_gives_what_the_page_says(row: list[str]) -> None:
    text, names, expected = row
    pairs = (pair.partition(" = ") for pair in names.split(", ") if pair)
    values = {name: expr.parse(value).evaluate({}) for name, _, value in pairs}
    assert expr.same(expr.parse(text).evaluate(values), expr.parse(expected).evaluate({}))


@pytest.mark.parametrize("text", ["aligned(p, 16)", "has(p)"])
def test_pointers_stand_in_two_functions_only(text: str) -> None:
    assert expr.parse(text).evaluate({"p": expr.Pointer(32)}) is True
    assert expr.parse(text).evaluate({"p": None}) is False
    with pytest.raises(expr.ExpressionError, match="pointer"):
        expr.parse("p == 1").evaluate({"p": expr.Pointer(32)})
