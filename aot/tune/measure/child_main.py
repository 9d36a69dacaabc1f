"""The measuring process: a kernel that kills it cannot destroy measurements, because the parent process stores them.

    python -m nojit.aot.tune.measure.child_main FD

The parent sends a `Setup` and then tasks over socket FD; the worker answers with events.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nojit.aot.tune.measure.events import Event, Lost, Refused, Task
from nojit.aot.tune.measure.measured_gpu import ContextLost, MeasuredGpu, Unready
from nojit.aot.tune.measure.problem import measure_problem
from nojit.runtime.base.wording import told
from nojit.runtime.errors import NojitError

__all__ = ["Setup", "main", "serve"]


@dataclass(frozen=True, slots=True)
class Setup:
    """The bundle and problems of a worker."""

    gpu: str
    """``module:function``, which returns the GPU for this setup."""
    bundle: Path
    problems: tuple[str, ...]
    """Names of problems, as on the command line."""
    kernels: tuple[str, ...]
    """Only these kernels; all if empty."""


def serve(connection: Connection[Any, Any]) -> int:
    """Answer tasks until the parent closes the connection, or until an error; return the exit code of the error.

    Raises:
        EOFError: the parent closed the connection.
    """
    try:
        gpu = _open(connection.recv())
        connection.send(gpu.hello())
    except ModuleNotFoundError as error:
        command = ": pip install torch" if error.name == "torch" else ""
        connection.send(Refused(f"expected {error.name} to be installed on the measuring machine{command}, got none"))
        return 1
    except (NojitError, OSError, ImportError, ContextLost) as error:
        connection.send(Refused(told(error)))
        return 1
    while True:
        task: Task = connection.recv()
        try:
            _answer(gpu, task, connection.send)
        except ContextLost as error:
            connection.send(Lost(str(error)))
            return 1


def _open(setup: Setup) -> MeasuredGpu:
    module, _, name = setup.gpu.partition(":")
    make: Callable[[Setup], MeasuredGpu] = getattr(importlib.import_module(module), name)
    return make(setup)


def _answer(gpu: MeasuredGpu, task: Task, send: Callable[[Event], None]) -> None:
    try:
        trial = gpu.open(task.problem)
    except Unready as error:
        send(Refused(str(error)))
        return
    try:
        send(trial.opened)
        measure_problem(gpu, trial, task, send)
    finally:
        trial.close()


def main() -> int:
    """Serve the socket whose descriptor is on the command line; return the exit code."""
    # the parent handles Ctrl-C and kills this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (
        Connection(int(sys.argv[1])) as connection,
        contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError),
    ):
        return serve(connection)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
