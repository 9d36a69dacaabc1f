"""Processes of benchmarks: commands of nojit, the tests' driver, and time limits that hold for children too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "driver_environment", "nojit", "run"]

ROOT = Path(__file__).resolve().parents[1]
# torchrun ends its workers, which have sessions of their own, in this time
GRACE_SECONDS = 5.0


def nojit(*words: Any) -> list[Any]:
    """Return the command line of a nojit command."""
    return [sys.executable, "-m", "nojit", *words]


def driver_environment(folder: Path) -> dict[str, str]:
    """Build the tests' driver in a folder, and return variables that make it replace the GPU."""
    sys.path.insert(0, str(ROOT))
    from tests.fakecuda.build import build_driver

    return {"NOJIT_LIBCUDA": str(build_driver(folder)), "FAKECUDA_DEVICES": "90", "LD_LIBRARY_PATH": str(folder)}


def run(
    words: Sequence[str], *, folder: Path, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group of its own, and end the whole group if it takes too long.

    Args:
        words: the command line.
        folder: its working directory.
        environment: its variables.
        seconds: the time limit.

    Raises:
        subprocess.TimeoutExpired: it took longer; has what it printed until then.
    """
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            _end_group(process)
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _end_group(process: subprocess.Popen[str]) -> None:
    """Ask a process group to end, then kill it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
