"""Parent side of the measuring process, `nojit.aot.tune.measure.child_main`: start it, send tasks, receive events, kill it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.events import Event, Hello, Lost, Refused, Task
from nojit.runtime.errors import NojitError

__all__ = ["Child"]

# importing torch and starting CUDA is slow on a cold disk, and the reference of a large problem takes seconds
_PATIENCE_S = 180.0
_ENDING_S = 5.0
_STANDARD_ERROR = 2


class Child:
    """A measuring process; `send` restarts it after it dies.

    Attributes:
        hello: the first event of the worker: its device and problems.

    Args:
        setup: the bundle and problems to measure.
        patience_s: seconds without an event after which the worker is killed.

    Raises:
        NojitError: the worker could not start; the message has its reason.
    """

    def __init__(self, setup: Setup, patience_s: float = _PATIENCE_S) -> None:
        self._setup = setup
        self._patience_s = patience_s
        self.hello = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _start(self) -> Hello:
        connection, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "nojit.aot.tune.measure.child_main", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=_STANDARD_ERROR)
        self._connection: Connection[Any, Any] = connection
        try:
            connection.send(self._setup)
            event = self.receive()
        except BaseException:
            self.kill()
            raise
        if isinstance(event, Hello):
            return event
        self.kill()
        reason = event.reason if isinstance(event, Refused | Lost) else type(event).__name__
        raise NojitError(reason)

    def send(self, task: Task) -> None:
        """Send a task; restart the worker first if it is dead. If it dies while sending, the next `receive` returns `Lost`."""
        if self._connection.closed:
            self._start()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(task)

    def receive(self) -> Event:
        """Wait for the next event and return it; return `Lost` if the worker died, or hung and was killed."""
        try:
            if self._connection.poll(self._patience_s):
                event: Event = self._connection.recv()
                if isinstance(event, Lost):
                    self.kill()
                return event
            reason = f"the measuring process sent nothing for {self._patience_s:.0f} s"
        except (EOFError, ConnectionResetError):
            reason = f"the measuring process ended: {self._last_words()}"
        self.kill()
        return Lost(reason)

    def _last_words(self) -> str:
        try:
            code = self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            return "its socket was closed"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """Kill the worker."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
