"""Fixtures of the tests of recordings: a recorder, and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aot.cli.conftest import document, run
from tests.support.recordings import Recorder

__all__ = ["document", "recorder", "run"]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """A recorder of the recording in the folder ``r``."""
    return Recorder(tmp_path / "r", torch="2.13.0")
