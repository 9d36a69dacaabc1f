"""Phrases that make sentences hard to read, found in pages, docstrings, comments and messages.

    python -m tests.spec.wording [FILE...]

Prints the line and a replacement of each phrase, and exits 1 if there is any. Lint runs it over the whole repository.
CONTRIBUTING.md describes our style.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.spec.pages import PAGES, ROOT, without_code

__all__ = ["TURNS", "Finding", "findings", "python_texts", "sources", "turns_in"]

TURNS: dict[str, str] = {
    r"\bof which\b": "name the thing: `two of these files`, `its configs`",
    r"\bthat there (?:is|are|was|were)\b": "`existing`, or leave it out",
    r"\bwhatever\b": "`any`, `every`, or name the cases",
    r"\bwhoever\b": "name the actor: `the caller`, `a user`",
    r"\bwhose like\b|\bits like\b|\btheir like\b": "`similar`, or `cached`",
    r"\b(?:is|are) none (?:of|that)\b": "`is not`, `does not`",
    r"\b(?:of|from|with|in) what\b": "name the thing",
    r"\blikewise\b": "repeat the word, or merge the two sentences",
    r"\banew\b": "`again`; `recompute`, `rebuild`",
    r"\bbut for\b": "`except`",
    r"\bcom(?:es?|ing) to\b(?! (?:terms|rest))": "`is`, `takes`, `totals`",
    r"(?:, |\d )say(?=[,.;:)]|$)": "`for example`",
    r"\bwork(?:s|ed|ing)? out\b": "`compute`",
    r"\bkinds? of calls?\b": "`specialization`",
    r"\bby itself\b": "`alone`, `automatically`",
}
"""Each phrase, in any case, and its replacement."""

# a question may begin so
_OPENING = re.compile(
    r"(?:^|(?<=[.!?:;] )|(?<=\| ))(?:What|Whatever|Whoever|Whose|Which|Of which)\b(?=[^.?!|]*(?:[.!|]|\Z))",
    re.MULTILINE,
)
_OPENS = "begin with the actor: a thing that has a name"


@dataclass(frozen=True, slots=True)
class Finding:
    """A phrase in a text."""

    file: Path
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        place = self.file.relative_to(ROOT) if self.file.is_relative_to(ROOT) else self.file
        return f"{place}:{self.line}: {self.text!r}: {self.instead}"


def turns_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Find the phrases in a text.

    Args:
        text: prose, without code.

    Returns:
        Offset, words and replacement of each phrase.
    """
    for pattern, instead in TURNS.items():
        # sentences go on in the next line
        for found in re.finditer(pattern.replace(" ", r"\s+"), text, re.IGNORECASE | re.MULTILINE):
            yield found.start(), found[0], instead
    for found in re.finditer(_OPENING, text):
        yield found.start(), found[0], _OPENS


def findings(files: Iterable[Path]) -> Iterator[Finding]:
    """Find the phrases in pages and Python files, in the order of lines."""
    for file in files:
        text = file.read_text(encoding="utf-8")
        texts = python_texts(text) if file.suffix == ".py" else [(1, without_code(text))]
        found = [
            Finding(file, line + prose.count("\n", 0, offset), words, instead)
            for line, prose in texts
            for offset, words, instead in turns_in(prose)
        ]
        yield from sorted(found, key=lambda each: each.line)


def python_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, comments and other strings with spaces of a Python file, each with its line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, re.sub(r"`+[^`\n]*`+", lambda span: "x" * len(span[0]), node.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`[^`]*`", "x", token.string.removeprefix("#").strip())


def sources() -> list[Path]:
    """Return every file to check: all pages, and the Python files that git keeps or does not ignore, except tests."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = [ROOT / name for name in sorted(listed) if not name.startswith("tests/")]
    return [*PAGES, *(file for file in files if file.exists())]


def main() -> None:
    """Print each phrase that is found."""
    files = [Path(name).absolute() for name in sys.argv[1:]] or sources()
    found = list(findings(files))
    for each in found:
        sys.stdout.write(f"{each}\n")
    if found:
        sys.exit(f"{len(found)} phrases that are hard to read")


if __name__ == "__main__":
    main()
