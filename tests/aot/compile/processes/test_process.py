"""One process of a build, and what an interrupted call leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from nojit.aot.compile.processes import process as process_module
from nojit.aot.compile.processes.process import EndedError, Process

TIMEOUT_S = 600


def interrupt(*_facts: object) -> bool:
    raise KeyboardInterrupt


def test_an_interrupted_calls_answer_is_no_other_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process.start(tmp_path / "log", {})
    copy = process.fork(tmp_path / "copy.log", {})
    assert copy is not None
    with monkeypatch.context() as patched:
        patched.setattr(process_module, "_ready", interrupt)
        with pytest.raises(KeyboardInterrupt):
            process.call("builtins:str", "the answer", timeout_s=TIMEOUT_S)
    # the process itself waits for its copy
    copy.kill()
    assert copy.bury() == "an unknown end"
    with pytest.raises(EndedError):
        process.call("builtins:int", "1", timeout_s=TIMEOUT_S)
