"""Folders, FIFOs and missing paths where a command reads or writes a file: each is named in one line, and nothing waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aot.cli.conftest import Run

FILES = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "file": lambda path: path.write_text("text\n"),
    "missing": lambda _path: None,
}
CASES = [
    ("clean {}", "fifo", "expected a folder of bundles, got a FIFO - at fifo"),
    ("coverage {} x.nojit", "fifo", "expected a recording that can be read, got a FIFO - at fifo"),
    ("diff {} a.nojitrec", "missing", "expected two recordings or two bundles, got no such path as missing - at missing, a.nojitrec"),
    ("load {} --out out", "file", "expected an OCI layout folder, as nojit save writes it, got a file - at file"),
    ("load {} --out out", "missing", "expected an OCI layout folder, as nojit save writes it, got no such folder - at missing"),
    ("manifest {}", "fifo", "expected a recording that can be read, got a FIFO - at fifo"),
    ("manifest a.nojitrec -o {}", "folder", "expected a file to write the manifest to, got a folder - at folder"),
    ("record --merge -o out {}", "fifo", "expected a recording that can be read, got a FIFO - at fifo"),
    ("tune import {} --kernel k --key m --arch sm_90 --multiprocessors 132 --memory-bytes 9 --device-name X", "fifo", "expected a file of Triton's autotuner or of an LLM server, got a FIFO - at fifo"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{words} {kind}" for words, kind, _ in CASES])
def test_what_is_no_such_file_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str]
) -> None:
    words, kind, said = case
    monkeypatch.chdir(tmp_path)
    make: Callable[[Path], object] = FILES[kind]
    make(Path(kind))
    before = sorted(tmp_path.iterdir())
    result = run(*words.format(kind).split())
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == f"error: {said}"
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("words", [("cache", "prune", "", "--older-than", "1d"), ("save", "", "out")])
def test_an_empty_word_names_no_cache_and_no_folder(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2
