"""What holds for every page: links lead somewhere, lists are whole, nothing of one machine is written down."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.spec.pages import PAGES, ROOT, Block, blocks, without_code

# tests/test_c_programs.py compiles C and C++
LANGUAGES = {"c", "console", "cpp", "hex", "json", "python", "text", "toml"}


def anchors(page: Path) -> set[str]:
    """List the anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        place, _, anchor = target.partition("#")
        file = page.parent / place if place else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


@pytest.mark.parametrize(("page", "least"), [("docs/architecture.md", 10), ("docs/where-is.md", 100)])
def test_the_files_and_folders_that_a_page_of_the_rooms_names_exist(page: str, least: int) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:aot|autoserve|kernels|manifests|package|runtime)(?:/[\w*<>.]+)*/?)`", text)
    assert len(named) > least
    missing = [each for each in named if not any(ROOT.glob(re.sub(r"<\w+>", "*", each)))]
    assert missing == []


@pytest.mark.parametrize("room", ["runtime/engine", "runtime/binding"])
def test_the_files_that_the_page_of_a_room_names_exist(room: str) -> None:
    page = (ROOT / room / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+/[\w/]*\w+\.(?:[ch]|py))`", page))
    assert len(named) > 5
    missing = [each for each in named if not any((ROOT / at / each).is_file() for at in (room, "runtime/engine", "."))]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_nothing_of_one_machine_is_written_down(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
    assert "\t" not in text
    assert text.endswith("\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_language_that_is_tested(page: Path) -> None:
    for language in re.findall(r"^ *```(\w*)\S*", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert language in LANGUAGES | {""}


@pytest.mark.parametrize("record", sorted((ROOT / "docs/decisions").glob("0*.md")), ids=lambda record: record.stem)
def test_a_record_is_short_and_listed(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    assert text.startswith(f"# {record.stem[:4]}: ")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == ["Context", "Choice", "Evidence", "Consequence"]
    assert f"({record.name})" in (record.parent / "README.md").read_text(encoding="utf-8")


def test_the_picture_is_wellformed_and_says_what_it_shows() -> None:
    picture = ROOT / "docs/architecture.svg"
    root = ET.parse(picture).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title") is not None
    assert root.find(f"{space}desc") is not None
    assert "prefers-color-scheme: dark" in picture.read_text(encoding="utf-8")
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    for text in root.iter(f"{space}text"):
        assert 0 < float(text.attrib["x"]) < width
        assert 0 < float(text.attrib["y"]) < height


def test_the_picture_names_folders_that_there_are() -> None:
    words = re.findall(r"\b(?:aot|runtime)/[\w/]+", (ROOT / "docs/architecture.svg").read_text(encoding="utf-8"))
    assert len(words) > 5
    for folder in words:
        assert (ROOT / folder).is_dir()


MAKE = re.findall(r"^([\w\-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
PATHS = {".venv/bin/nojit", ".venv/bin/pre-commit", ".venv/bin/python"}


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.id)
def test_a_console_block_runs_what_there_is(block: Block) -> None:
    for line in block.text.splitlines():
        assert line.startswith("$ ")
        words = shlex.split(line.removeprefix("$ "))
        if words[0] == "make":
            assert set(words[1:]) <= set(MAKE)
        elif words[0] == "python":
            assert (ROOT / words[1]).is_file()
        else:
            assert words[0] in PATHS | {"nojit"}


def test_contributing_names_targets_and_markers_that_there_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`make ([\w\-]+)`", text)) <= set(MAKE)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    markers = {marker.partition(":")[0] for marker in settings["tool"]["pytest"]["ini_options"]["markers"]}
    said = text.partition("Markers: ")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", said)) == markers


def test_the_changelog_names_the_version() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert settings["project"]["version"] in text
    assert "## [Unreleased]" in text
