"""Main program of a build's worker processes: runs calls one after another, and forks copies of itself.

Separate processes protect the build from sources and compilers that crash, hang or patch modules. A copy has the same
imports as its original, and answers on its own socket. `nojit.aot.compile.processes.process` starts these processes and talks to them. A
message is its length, eight bytes little-endian, followed by a pickle. The argument, if there is one, is the folder of
another Triton than that of the environment.
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

from nojit.aot.compile.sources.reads import own_work
from nojit.aot.compile.toolchain.installed_triton import use_triton

__all__ = ["CALL", "FORK", "WAIT", "SocketStream", "main", "read_message", "write_message"]

CALL, FORK, WAIT = "call", "fork", "wait"
"""Requests to a process: run a call; fork a copy; wait until a copy has ended."""

_LENGTH_BYTES = 8


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class _Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> object: ...


class SocketStream:
    """A socket as an unbuffered stream: reading ahead would lose descriptors that follow a message."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; empty at the end."""
        return self.channel.recv(min(size, 1 << 20))

    def write(self, data: bytes, /) -> None:
        """Send all of `data`."""
        self.channel.sendall(data)

    def flush(self) -> None:
        """Do nothing: the stream has no buffer."""


def write_message(stream: _Writer, message: object) -> None:
    """Write one message and flush."""
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    stream.flush()


def read_message(stream: _Reader) -> Any:
    """Read and return one message.

    Raises:
        EOFError: the other side has closed the connection.
    """
    length = _read_exactly(stream, _LENGTH_BYTES)
    # trusted: the parent started this module
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
    """Serve the socket on standard input until the other side closes it."""
    # Ctrl-C reaches the whole foreground group, but only the parent shall end its processes
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=os.dup(0))
    # a source must not read messages from standard input, nor print into the answers
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if not sys.flags.safe_path:
        # the start folder, whose modules could shadow those that a source imports
        del sys.path[0]
    for folder in sys.argv[1:]:
        use_triton(folder)
    _serve(channel)


def _serve(channel: socket.socket) -> None:
    own = False
    while True:
        try:
            kind, *asked = read_message(SocketStream(channel))
        except (EOFError, ConnectionResetError):
            if own:
                # a copy skips atexit functions, which sources may have registered
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
        except Exception as error:  # noqa: BLE001 - the caller gets every exception
            answer = (False, error)
        _answer(channel, answer)


def _run(call: Any, args: tuple[Any, ...]) -> Any:
    return (pkgutil.resolve_name(call) if isinstance(call, str) else call)(*args)


def _wait(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _answer(channel: socket.socket, answer: tuple[bool, Any]) -> None:
    write_message(SocketStream(channel), answer)


def _fork(channel: socket.socket, environment: Mapping[str, str]) -> socket.socket | None:
    """Fork this process: the copy gets its socket; the original answers with the copy's pid (None if it cannot fork).

    `environment`: environment variables to set in the process.
    """
    _, (own, log), _, _ = socket.recv_fds(channel, 1, 2)
    # fork copies only the current thread: locks that other threads hold would stay locked
    if threading.active_count() > 1:
        os.close(own)
        os.close(log)
        _answer(channel, (True, None))
        return None
    # garbage collection would write to all shared pages, and so copy them
    gc.freeze()
    with warnings.catch_warnings():
        # Python also counts threads of native libraries
        warnings.simplefilter("ignore", DeprecationWarning)
        with own_work():
            process = os.fork()
    if process:
        os.close(own)
        os.close(log)
        _answer(channel, (True, process))
        return None
    os.setsid()
    channel.close()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(environment)
    tempfile.tempdir = None
    copy = socket.socket(fileno=own)
    _answer(copy, (True, None))
    return copy


if __name__ == "__main__":
    main()
