"""The page on faults names existing tests."""

from __future__ import annotations

import ast
import re

import pytest

from tests.spec.pages import ROOT, rows

PAGE = ROOT / "docs/faults.md"
FAULTS = [
    row
    for subject in ("files", "finding", "driver", "calls", "registries", "farms")
    for row in rows(PAGE, f"faults of {subject}")
]


def test_every_table_is_read() -> None:
    assert PAGE.read_text(encoding="utf-8").count("::") == sum(row[2].count("::") for row in FAULTS)


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row[0][:60])
def test_every_fault_has_tests(row: list[str]) -> None:
    check_named_tests(row[2])


def check_named_tests(words: str) -> None:
    """Require that words name tests, each of which is there."""
    named = re.findall(r"([\w/.]+)::([\w:]+)", words)
    assert named
    for file, path in named:
        body = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8")).body
        for name in path.split("::"):
            found = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name]
            assert found, f"{file}::{path}"
            body = found[0].body
