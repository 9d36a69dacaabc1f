"""What is generated is what would be generated now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.generate import FILES, PARTS
from tests.spec.pages import PAGES, generated

# the bytes of the format's example depend on the zstandard that packed it: its own test decodes them instead
SAME_EVERYWHERE = [key for key in PARTS if key[1] != "tiny"]


@pytest.mark.parametrize("key", SAME_EVERYWHERE, ids=lambda key: key[1])
def test_a_generated_part_is_up_to_date(key: tuple[Path, str]) -> None:
    assert generated(*key) == PARTS[key](), "run: python -m tests.spec.generate"


def test_every_generated_part_has_a_generator() -> None:
    for page in PAGES:
        marks = page.read_text(encoding="utf-8").count("<!-- generated: ")
        assert marks == sum(owner == page for owner, _ in PARTS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_generated_file_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == FILES[path](), "run: python -m tests.spec.generate"
