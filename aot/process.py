"""One process of a build, as the build sees it: it runs calls, forks copies of itself, and ends with all that it started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nojit.aot.worker import CALL, FORK, WAIT, SocketStream, read_message, write_message

__all__ = ["EndedError", "Process", "SilentError"]

# what a process may take to end once it has nothing to do
_ENDING_S = 5
# of what a process wrote, how much an error shows
_WORDS_CHARS = 8000


class EndedError(Exception):
    """The process is gone; says how it ended."""


class SilentError(Exception):
    """No answer came in time."""


class Process:
    """A process that runs picklable calls, one at a time, and can fork. Safe to use from several threads.

    Attributes:
        words: the file that everything goes to which the process prints.
    """

    def __init__(
        self, channel: socket.socket, number: int, words: Path, origin: subprocess.Popen[bytes] | Process
    ) -> None:
        self.words = words
        self._channel = channel
        self._number = number
        self._origin = origin
        self._code: int | None = None
        self._ended = False
        self._talk = threading.Lock()
        self._life = threading.Lock()

    @classmethod
    def start(cls, words: Path, environment: Mapping[str, str]) -> Process:
        """Start a process that has imported nothing.

        Args:
            words: file for what it prints.
            environment: variables to set on top of this process's.
        """
        ours, theirs = socket.socketpair()
        with theirs, words.open("wb") as file:
            started = subprocess.Popen(
                [sys.executable, "-m", "nojit.aot.worker"],
                stdin=theirs.fileno(),
                stdout=file,
                stderr=file,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        return cls(ours, started.pid, words, started)

    def fork(self, words: Path, environment: Mapping[str, str]) -> Process | None:
        """Fork a copy, which lives on when this process ends.

        Returns:
            The copy; None if the process has other threads, which no copy would have.

        Raises:
            EndedError: the process is gone, or the copy at once.
        """
        ours, theirs = socket.socketpair()
        with theirs, words.open("wb") as file, self._talk:
            try:
                write_message(SocketStream(self._channel), (FORK, dict(environment)))
                socket.send_fds(self._channel, [b"\0"], [theirs.fileno(), file.fileno()])
                _, number = read_message(SocketStream(self._channel))
            except (EOFError, OSError):
                ours.close()
                raise EndedError(self.bury()) from None
        if number is None:
            ours.close()
            return None
        copy = Process(ours, number, words, self)
        try:
            # from here on it is the head of a process group, and can be ended with all that it starts
            read_message(SocketStream(ours))
        except (EOFError, OSError):
            raise EndedError(copy.bury()) from None
        return copy

    def call(self, function: Callable[..., Any] | str, *args: Any, timeout_s: float) -> Any:
        """Run a call and return its result.

        Args:
            function: what to call, or its name, ``module:function``, of a module that is imported there alone.
            args: what to call it with.
            timeout_s: how long it may take, in seconds.

        Raises:
            SilentError: it took longer than `timeout_s`; the process runs on.
            EndedError: the process ended; it is gone with all that it started.
            Exception: whatever the call raised, or what keeps it or its result from being sent.
        """
        try:
            with self._talk:
                write_message(SocketStream(self._channel), (CALL, function, args))
                if not _ready(self._channel.fileno(), timeout_s):
                    raise SilentError
                ok, answer = read_message(SocketStream(self._channel))
        except (EOFError, OSError):
            raise EndedError(self.bury()) from None
        if not ok:
            raise answer
        return answer

    def is_alive(self) -> bool:
        """Say whether the process runs, as far as that can be seen."""
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
        """End the process, whatever it is doing, and what it started."""
        with self._life:
            # until it is waited for, its number is nobody else's, even if it is dead
            if not self._ended:
                # the group: ptxas is a child of the worker
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._number, signal.SIGKILL)
                self._code = self._wait()
                self._ended = True

    def close(self) -> None:
        """Let the process end, once it has nothing to do."""
        self._channel.close()
        self.bury()

    def bury(self) -> str:
        """Give a process that is ending a moment to do so, end what it left behind, and say how it ended."""
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
            return "an end that nobody saw"
        return signal.Signals(-self._code).name if self._code < 0 else f"exit code {self._code}"

    def last_words(self) -> str:
        """Return the end of what the process printed."""
        return self.words.read_text(encoding="utf-8", errors="replace")[-_WORDS_CHARS:]

    def private_bytes(self) -> int:
        """Return how much memory the process shares with no other; 0 if that is not known."""
        try:
            lines = Path(f"/proc/{self._number}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))

    def _wait(self) -> int | None:
        if isinstance(self._origin, subprocess.Popen):
            return self._origin.wait()
        return self._origin._see_off(self._number)  # noqa: SLF001 - of its own kind

    def _see_off(self, copy: int) -> int | None:
        """Wait for a copy that is ending, and return its exit code; None if this process is gone itself."""
        try:
            with self._talk:
                write_message(SocketStream(self._channel), (WAIT, copy))
                ok, code = read_message(SocketStream(self._channel))
        except (EOFError, OSError):
            return None
        return code if ok else None


def _ready(descriptor: int, timeout_s: float) -> bool:
    """Wait until there is something to read, or a process has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
