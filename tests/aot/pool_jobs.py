"""Calls that the tests of the worker pool run in its processes; imports only what a worker has anyway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, NoReturn

from nojit.runtime.errors import CompileError


def add(left: int, right: int) -> int:
    return left + right


def pid() -> int:
    return os.getpid()


def chatter(text: str) -> str:
    """Print on both streams, from Python and from below it, between the pool's messages."""
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.stderr.write(text)
    os.write(1, text.encode())
    return text


def big(size_bytes: int) -> bytes:
    return bytes(size_bytes)


def length(data: bytes) -> int:
    return len(data)


def refuse() -> NoReturn:
    raise CompileError("expected to compile", got="nothing", where="there", log="line 1\nline 2")


def stumble() -> NoReturn:
    raise ZeroDivisionError("a bug")


class AwkwardError(Exception):
    """An exception that pickles and does not unpickle."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)


def raise_awkward() -> NoReturn:
    raise AwkwardError(1, 2)


def unpicklable() -> Any:
    return lambda: None


def leave(code: int) -> NoReturn:
    sys.stderr.write("last words\n")
    sys.stderr.flush()
    os._exit(code)


def leave_politely() -> NoReturn:
    sys.exit(5)


def crash(signal_number: int) -> None:
    """Send this process a signal with its default action, not what faulthandler makes of it."""
    if signal_number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), signal_number)


def scratch_folder() -> str:
    folder = tempfile.mkdtemp()
    Path(folder, "half a cubin").write_bytes(b"x")
    return folder


def tell(fifo: str, then: str) -> None:
    """Start a child as a compiler starts ptxas, write both process ids to `fifo`, then hang or crash."""
    # it ignores the polite signal, and holds every stream that it inherited
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"])
    Path(fifo).write_text(f"{os.getpid()} {child.pid}\n", encoding="ascii")
    if then == "crash":
        crash(signal.SIGSEGV)
    threading.Event().wait()
