"""The pages of operators name every kernel that their launches ask for, and no other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"bmm": "gemm", "mm_plus_mm": "gemm", "gated_mm": "gemm"}
"""The pages of families that have another name."""
OF_MANIFESTS = {
    kernel["name"]: path.stem
    for path in sorted((ROOT / "manifests").glob("*.toml"))
    for kernel in tomllib.loads(path.read_text(encoding="utf-8")).get("kernel", ())
}
# pointwise kernels have the names of functions, also of those in epilogues
KERNELS = {name for name, manifest in OF_MANIFESTS.items() if manifest != "pointwise"}
FAMILIES = sorted({path.parent.name for path in (ROOT / "kernels").glob("*/launch*.py")} - {"pointwise", "products"})
TABLE = "## Which kernel runs\n"


def page_of(family: str) -> str:
    return (ROOT / "docs" / f"{PAGES.get(family, family)}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_page_of_a_family_names_the_kernels_that_it_launches(family: str) -> None:
    launches = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "kernels" / family).glob("launch*.py"))
    asked = KERNELS & set(re.findall(r'"(\w+)"', launches))
    named = set(re.findall(r"`(\w+)`", page_of(family)))
    assert asked, family
    assert asked <= named


@pytest.mark.parametrize("family", [family for family in FAMILIES if TABLE in page_of(family)])
def test_a_table_of_kernels_names_only_kernels_of_manifests(family: str) -> None:
    table = page_of(family).partition(TABLE)[2].partition("\n#")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`([a-z]\w+)`", cell)}
    assert named
    assert named <= set(OF_MANIFESTS)
