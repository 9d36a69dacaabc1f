"""Every block on every page that calls an operator runs, on CPU tensors, its kernels interpreted."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from tests.spec.pages import ROOT, Block, blocks

# test_examples.py runs what is quoted of the models
CALLS = [block for block in blocks("python") if "nojit.kernels" in block.text and not block.words]
PAGES = {str(page.relative_to(ROOT)): list(found) for page, found in groupby(CALLS, key=lambda block: block.page)}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("page", PAGES)
def test_the_calls_of_a_page_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in blocks("toml"):
        if str(block.page.relative_to(ROOT)) == page and block.words == ("operators",):
            (tmp_path / "own.toml").write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page}
    for block in PAGES[page]:
        run(block, names)


def run(block: Block, names: dict[str, object]) -> None:
    text = block.text.replace('"cuda"', '"cpu"')
    # blank lines before it, so that a traceback points into the page
    exec(compile("\n" * block.line + text, str(block.page), "exec"), names)
