"""The program of one process of a build: runs calls one after another, and forks copies of itself.

A process of its own keeps a source or a compiler that crashes, hangs or patches things from touching the build. A copy has
imported what its original has, and answers on a socket of its own. `nojit.aot.process` starts these processes and talks to
them. A message is a pickle behind its length, eight bytes little-endian.
"""

from __future__ import annotations

import gc
import os
import pickle
import pkgutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

from nojit.aot.tracing import own_work

__all__ = ["CALL", "FORK", "WAIT", "SocketStream", "main", "read_message", "write_message"]

CALL, FORK, WAIT = "call", "fork", "wait"
"""What a process is asked: run a call; fork a copy; wait until a copy has ended."""

_LENGTH_BYTES = 8


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class _Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> object: ...


class SocketStream:
    """A socket as a stream that reads no further than it is asked to: descriptors may come behind a message."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        return self.channel.recv(min(size, 1 << 20))

    def write(self, data: bytes, /) -> None:
        """Send all of `data`."""
        self.channel.sendall(data)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


def write_message(stream: _Writer, message: object) -> None:
    """Write one message and flush."""
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    stream.flush()


def read_message(stream: _Reader) -> Any:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
    """
    length = _read_exactly(stream, _LENGTH_BYTES)
    # both ends are ours: the parent started this very module
    return pickle.loads(_read_exactly(stream, int.from_bytes(length, "little")))  # noqa: S301


def _read_exactly(stream: _Reader, length: int) -> bytes:
    parts = []
    while length:
        part = stream.read(length)
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def main() -> None:
    """Serve the socket that is standard input, until the other side closes it."""
    # Ctrl-C reaches the whole foreground group: the parent decides what becomes of its processes
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=os.dup(0))
    # a source that reads its input must not read our messages, and its prints must not get between our answers
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if not sys.flags.safe_path:
        # the folder that it was started in, which hides what a source means to import
        del sys.path[0]
    _serve(channel)


def _serve(channel: socket.socket) -> None:
    own = False
    while True:
        try:
            kind, *asked = read_message(SocketStream(channel))
        except (EOFError, ConnectionResetError):
            if own:
                # what sources registered to run at the end is for one process to run, not for each copy
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
            return
        if kind == FORK:
            copy = _fork(channel, *asked)
            channel, own = (channel, own) if copy is None else (copy, True)
            continue
        try:
            answer = (True, _wait(*asked) if kind == WAIT else _run(*asked))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the caller
            answer = (False, error)
        _answer(channel, answer)


def _run(call: Any, args: tuple[Any, ...]) -> Any:
    return (pkgutil.resolve_name(call) if isinstance(call, str) else call)(*args)


def _wait(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _answer(channel: socket.socket, answer: tuple[bool, Any]) -> None:
    write_message(SocketStream(channel), answer)


def _fork(channel: socket.socket, environment: Mapping[str, str]) -> socket.socket | None:
    """Fork, and return the copy's socket to the copy; the original answers with its number, or None if it cannot be copied."""
    _, (own, words), _, _ = socket.recv_fds(channel, 1, 2)
    # a copy has the thread that forked alone: whatever the others held stays locked in it
    if threading.active_count() > 1:
        os.close(own)
        os.close(words)
        _answer(channel, (True, None))
        return None
    # collecting garbage would copy every page that is shared
    gc.freeze()
    with warnings.catch_warnings():
        # Python counts threads of native libraries too
        warnings.simplefilter("ignore", DeprecationWarning)
        with own_work():
            process = os.fork()
    if process:
        os.close(own)
        os.close(words)
        _answer(channel, (True, process))
        return None
    os.setsid()
    channel.close()
    os.dup2(words, 1)
    os.dup2(words, 2)
    os.close(words)
    os.environ.update(environment)
    tempfile.tempdir = None
    copy = socket.socket(fileno=own)
    _answer(copy, (True, None))
    return copy


if __name__ == "__main__":
    main()
