"""A GPU that compiles nothing, and recordings of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
import triton
from nojit.runtime.recording.file import Recording, read_recording
from nojit.runtime.recording.session import record

from tests.runtime.recording.programs.gpu import Gpu

Recorded = Callable[[], Any]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """Make a GPU that compiles nothing this process's."""
    made = Gpu()
    # with a descriptor of its own: set_active would look for a GPU on the way back
    monkeypatch.setattr(triton.runtime.driver, "_active", made)
    monkeypatch.setattr(triton.compiler, "compile", made.compile)
    # unset, Triton 3.9 warns
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    return made


@pytest.fixture
def recorded(gpu: Gpu, tmp_path: Path) -> Recorded:
    """Record a block: its recording is filled when the block ends."""

    @contextmanager
    def recording() -> Iterator[Recording]:
        found = Recording()
        path = tmp_path / "x.nojitrec"
        with record(path):
            yield found
        vars(found).update(vars(read_recording(path)))

    return recording
