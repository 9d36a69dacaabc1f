"""Handle of one process of a build: it runs calls, can fork copies of itself, and ends together with its children."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nojit.aot.compile.processes.process_main import CALL, FORK, WAIT, SocketStream, read_message, write_message

__all__ = ["EndedError", "Process", "SilentError"]

# time that an idle process may take to end
_ENDING_S = 5
# an error shows at most the last so many characters of a process's output
_LOG_CHARS = 8000


class EndedError(Exception):
    """Error: the process has ended; the message says how, such as by a signal."""


class SilentError(Exception):
    """Error: the process did not answer within the time limit."""


class Process:
    """A process that runs picklable calls, one at a time, and can fork. Thread-safe.

    Attributes:
        log_path: the file that receives the output of the process.
    """

    def __init__(
        self, channel: socket.socket, number: int, log_path: Path, origin: subprocess.Popen[bytes] | Process
    ) -> None:
        self.log_path = log_path
        self._channel = channel
        self._number = number
        self._origin = origin
        self._code: int | None = None
        self._ended = False
        self._talk = threading.Lock()
        self._life = threading.Lock()

    @classmethod
    def start(cls, log_path: Path, environment: Mapping[str, str], triton: Path | None = None) -> Process:
        """Start a process that has imported nothing.

        Args:
            log_path: file for its output.
            environment: variables to set in addition to this process's.
            triton: folder from which the process imports Triton; None for the environment's own.
        """
        ours, theirs = socket.socketpair()
        with theirs, log_path.open("wb") as file:
            started = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "nojit.aot.compile.processes.process_main",
                    *([] if triton is None else [str(triton)]),
                ],
                stdin=theirs.fileno(),
                stdout=file,
                stderr=file,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        return cls(ours, started.pid, log_path, started)

    def fork(self, log_path: Path, environment: Mapping[str, str]) -> Process | None:
        """Fork the process; the copy survives the end of the original.

        `log_path`: file for the process's output; `environment`: environment variables to set in the process.

        Returns:
            The copy; None if the process has other threads, which a fork would lose.

        Raises:
            EndedError: the process has ended, or the copy ended at its start.
        """
        ours, theirs = socket.socketpair()
        with theirs, log_path.open("wb") as file, self._exchange() as stream:
            try:
                write_message(stream, (FORK, dict(environment)))
                socket.send_fds(self._channel, [b"\0"], [theirs.fileno(), file.fileno()])
                _, number = read_message(stream)
            except (EOFError, OSError):
                ours.close()
                raise EndedError(self.bury()) from None
        if number is None:
            ours.close()
            return None
        copy = Process(ours, number, log_path, self)
        try:
            # its first message: it now leads a process group, which can be killed with all its children
            read_message(SocketStream(ours))
        except (EOFError, OSError):
            raise EndedError(copy.bury()) from None
        return copy

    def call(self, function: Callable[..., Any] | str, *args: Any, timeout_s: float) -> Any:
        """Run a call in the process and return its result.

        Args:
            function: the function, or its name ``module:function`` if only the process shall import the module.
            args: arguments of the call.
            timeout_s: time limit, in seconds.

        Raises:
            SilentError: the call takes longer than `timeout_s`; the process continues to run.
            EndedError: the process and all its children have ended.
            Exception: the error that the call raised, or the call or its result cannot be pickled.
        """
        try:
            with self._exchange() as stream:
                write_message(stream, (CALL, function, args))
                if not _ready(self._channel.fileno(), timeout_s):
                    raise SilentError
                ok, answer = read_message(stream)
        except (EOFError, OSError):
            raise EndedError(self.bury()) from None
        if not ok:
            raise answer
        return answer

    def is_alive(self) -> bool:
        """Return whether the process runs. If the process ends during this call, the result can be out of date."""
        if self._ended:
            return False
        try:
            descriptor = os.pidfd_open(self._number)
        except ProcessLookupError:
            return False
        try:
            return not _ready(descriptor, 0)
        finally:
            os.close(descriptor)

    def kill(self) -> None:
        """Kill the process and its children."""
        with self._life:
            # the system reuses its number only after the wait, which sets `_ended`
            if not self._ended:
                # the whole group: ptxas is a child of the worker
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._number, signal.SIGKILL)
                self._code = self._wait()
                self._ended = True

    def close(self) -> None:
        """Tell the process to end after the calls that it has received."""
        self._channel.close()
        self.bury()

    def bury(self) -> str:
        """Return a text that says how the process ended.

        Waits briefly for its end, and kills the remaining processes of its group.
        """
        if not self._ended:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(self._number)
                try:
                    _ready(descriptor, _ENDING_S)
                finally:
                    os.close(descriptor)
        self.kill()
        self._channel.close()
        if self._code is None:
            return "an unknown end"
        return signal.Signals(-self._code).name if self._code < 0 else f"exit code {self._code}"

    def last_words(self) -> str:
        """Return the end of the process's output, for messages."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARS:]

    def private_bytes(self) -> int:
        """Return the memory that the process shares with no other process, in bytes; 0 if unknown."""
        try:
            lines = Path(f"/proc/{self._number}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[SocketStream]:
        """Lock the channel for one message and its answer."""
        with self._talk:
            try:
                yield SocketStream(self._channel)
            except (KeyboardInterrupt, SystemExit):
                # the next message would get the answer to this one
                self._channel.close()
                raise

    def _wait(self) -> int | None:
        if isinstance(self._origin, subprocess.Popen):
            return self._origin.wait()
        return self._origin._wait_for_copy(self._number)  # noqa: SLF001 - the same class

    def _wait_for_copy(self, copy: int) -> int | None:
        """Wait for the forked process with pid `copy` to end, and return its exit code; None if this one has ended."""
        try:
            with self._exchange() as stream:
                write_message(stream, (WAIT, copy))
                ok, code = read_message(stream)
        except (EOFError, OSError):
            return None
        return code if ok else None


def _ready(descriptor: int, timeout_s: float) -> bool:
    """Return whether a file descriptor becomes readable within `timeout_s` seconds.

    The end of the process at the other side makes it readable as well.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
