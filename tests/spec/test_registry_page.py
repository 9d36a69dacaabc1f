"""The page on registries says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from nojit.aot.oci.error_reasons import ADVICE, REASONS
from nojit.aot.oci.release import BUNDLE, RELEASE, SIGNED, STATEMENT, ship
from nojit.aot.signing.shipped_bundles import read_bundle

from tests.spec.pages import ROOT, rows
from tests.support.bundles import kernel, make_bundle

PAGE = ROOT / "docs/registry.md"


def test_the_table_of_reasons_is_the_codes() -> None:
    assert {reason: words for reason, words in rows(PAGE, "reasons")} == REASONS  # noqa: C416 - rows are lists
    assert ADVICE.keys() <= REASONS.keys()


def test_every_reason_is_given() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "aot").rglob("*.py"))
    given = set(re.findall(r'refusal\(\s*(?:reason, what|"([\w-]+)")', text)) | {"not-found", "digest", "failed"}
    assert given - {""} == REASONS.keys()


def test_the_annotations_and_types_are_the_codes(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "some.nojit", kernel("add", {"n": "i32"}))
    document = ship(read_bundle(path)).document
    named = {name for row in rows(PAGE, "annotations") for name in re.findall(r"[\w.-]+", row[0])}
    assert named == set(document.annotations)
    text = PAGE.read_text(encoding="utf-8")
    for name in (BUNDLE, RELEASE, SIGNED, STATEMENT):
        assert f"`{name}`" in text
