"""The pages of the documentation as data: their tables, code blocks, links and generated parts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

__all__ = ["PAGES", "ROOT", "Block", "blocks", "generated", "replace_generated", "rows", "with_commas", "without_code"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        ROOT / "aot/README.md",
        ROOT / "artifacts/README.md",
        ROOT / "package/about.md",
        ROOT / "autoserve/README.md",
        ROOT / "benchmarks/README.md",
        ROOT / "kernels/README.md",
        ROOT / "runtime/README.md",
        ROOT / "runtime/binding/README.md",
        ROOT / "runtime/engine/README.md",
    ]
)

# a block in a list stands indented
_FENCE = re.compile(
    r"^(?P<margin> *)```(?P<language>\w*)(?P<words>[^\n]*)\n(?P<text>.*?)^(?P=margin)```$", re.DOTALL | re.MULTILINE
)
_GENERATED = r"<!-- generated: {} -->\n(?P<text>.*?)<!-- end -->"


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of code."""

    page: Path
    line: int
    """Of the fence."""
    language: str
    words: tuple[str, ...]
    """What stands after the language: ``gpu``, say."""
    text: str

    @property
    def id(self) -> str:
        """Name it for a test."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(language: str) -> list[Block]:
    """List the fenced blocks of all pages in one language."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match["language"] == language:
                line = text.count("\n", 0, match.start()) + 1
                found.append(Block(page, line, language, tuple(match["words"].split()), dedent(match["text"])))
    return found


def without_code(text: str) -> str:
    """Blank out fenced blocks and fill code spans with ``x``; every other character keeps its place."""
    blank = _FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    return re.sub(r"`[^`\n]*`", lambda span: "x" * len(span[0]), blank)


def rows(page: Path, name: str) -> list[list[str]]:
    """Return the rows of the table that stands below ``<!-- test: name -->``, without its head."""
    text = page.read_text(encoding="utf-8")
    _, mark, rest = text.partition(f"<!-- test: {name} -->\n")
    if not mark:
        raise LookupError(f"expected a table {name!r} in {page}")
    table = rest.partition("\n\n")[0].splitlines()
    return [[_plain(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[2:]]


def _plain(cell: str) -> str:
    """Take the marks off a cell that is one code span."""
    return cell[1:-1] if re.fullmatch(r"`[^`]*`", cell) else cell


def generated(page: Path, name: str) -> str:
    """Return the generated part of a page."""
    match = re.search(_GENERATED.format(name), page.read_text(encoding="utf-8"), re.DOTALL)
    if match is None:
        raise LookupError(f"expected a generated part {name!r} in {page}")
    return match["text"]


def replace_generated(page: Path, name: str, text: str) -> None:
    """Put a new text in place of the generated part of a page."""
    old = page.read_text(encoding="utf-8")
    start = old.index(f"<!-- generated: {name} -->\n") + len(f"<!-- generated: {name} -->\n")
    end = old.index("<!-- end -->", start)
    page.write_text(old[:start] + text + old[end:], encoding="utf-8")


def with_commas(text: str) -> str:
    """Return a text with commas in its numbers of four digits and more, unless they follow a letter."""
    return re.sub(r"(?<![A-Za-z\d])\d{4,}", lambda number: f"{int(number[0]):,}", text)
