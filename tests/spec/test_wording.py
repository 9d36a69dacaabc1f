"""The check of wording finds what it lists, and leaves questions and code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.pages import ROOT
from tests.spec.wording import findings, sources

HARD = [
    "Files of which two are signed.",
    "Two variants of\nwhich one runs.",
    "an error that there is",
    "What is launched is checked.",
    "It stops. Whoever signs it sets a date.",
    "It takes all but for one.",
    "Scores are computed anew.",
    "a number, 16 say.",
]
PLAIN = [
    "nojit verifies every image before it launches it.",
    "What does it cost?",
    "Run `what is of which` first.",
    "The config that is fastest runs.",
]


@pytest.mark.parametrize("text", HARD)
@pytest.mark.parametrize("form", ["page.md", "docstring.py", "comment.py", "message.py"])
def test_a_hard_turn_is_found_in_its_line(tmp_path: Path, text: str, form: str) -> None:
    file = tmp_path / form
    before = {"page.md": "\n\n", "docstring.py": '\n\n"""', "comment.py": "\n\n# ", "message.py": '\n\nprint("""'}[form]
    after = {"page.md": "\n", "docstring.py": '"""\n', "comment.py": "\n", "message.py": '""")\n'}[form]
    spelled = text.replace("\n", " ") if form == "comment.py" else text
    file.write_text(before + spelled + after, encoding="utf-8")

    assert {each.line for each in findings([file])} in ({3}, {4})


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_sentence_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{text}\n\n```text\nof which anew\n```\n", encoding="utf-8")

    assert list(findings([page])) == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the files of a checkout")
def test_every_module_outside_of_tests_is_checked() -> None:
    rooms = ("aot", "benchmarks", "examples", "kernels", "package", "runtime")
    modules = {path for room in rooms for path in (ROOT / room).rglob("*.py")}
    assert modules <= {*sources()}
    assert not [path for path in sources() if path.is_relative_to(ROOT / "tests")]
