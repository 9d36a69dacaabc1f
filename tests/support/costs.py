"""Measure what work costs: CPU time and memory at its peak, each piece of work in a fresh process."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Cost", "loop_seconds", "measure"]

_STATUS = Path("/proc/self/status")
_server: Any = None


class Cost(NamedTuple):
    """What a piece of work cost."""

    seconds: float
    """Of the CPU."""
    peak_bytes: int
    """Memory at its peak, above what the process had before."""
    result: Any
    """What the work returned."""


def loop_seconds(steps: int) -> float:
    """Return the CPU time that an empty loop would take here and now, out of a shorter one."""
    start = time.process_time()
    for _ in range(steps // 100):
        pass
    return 100 * (time.process_time() - start)


def measure(work: Callable[..., Any], *arguments: Any) -> Cost:
    """Do a piece of work in a process of its own, forked from one that has only imported what this one names.

    Args:
        work: a function of a module; returns what JSON can say.
        arguments: what it is called with.
    """
    global _server  # noqa: PLW0603 - one server for all
    if _server is None:
        _server = multiprocessing.get_context("forkserver")
        _server.set_forkserver_preload([work.__module__])
    receiver, sender = _server.Pipe(duplex=False)
    process = _server.Process(target=_child, args=(sender, work, arguments))
    process.start()
    sender.close()
    try:
        return Cost(*json.loads(receiver.recv()))
    finally:
        process.join()
        process.close()
        receiver.close()


def _child(sender: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # the high-water mark starts anew
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _kibibytes("VmRSS")
    start = time.process_time()
    result = work(*arguments)
    seconds = time.process_time() - start
    sender.send(json.dumps([seconds, 1024 * (_kibibytes("VmHWM") - before), result]))


def _kibibytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1])
