"""The program of one build worker: reads calls from its standard input, answers on its standard output.

A process of its own keeps a compiler that crashes, hangs or leaks from ending the build. `nojit.aot.pool` starts it.
A message is a pickle behind its length, eight bytes little-endian.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import Any, BinaryIO

__all__ = ["main", "read_message", "write_message"]

_LENGTH_BYTES = 8


def write_message(stream: BinaryIO, message: object) -> None:
    """Write one message and flush."""
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    stream.flush()


def read_message(stream: BinaryIO) -> Any:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
    """
    length = _read_exactly(stream, _LENGTH_BYTES)
    # both ends of the pipe are ours: the parent started this very module
    return pickle.loads(_read_exactly(stream, int.from_bytes(length, "little")))  # noqa: S301


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise EOFError
    return data


def main() -> None:
    """Serve calls until the parent closes the pipe."""
    # Ctrl-C reaches the whole foreground group: the parent decides what becomes of its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # what a compiler prints must not get between the answers
    os.dup2(2, 1)
    while True:
        try:
            call, args = read_message(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (True, call(*args))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the caller
            answer = (False, error)
        write_message(answers, answer)


if __name__ == "__main__":
    main()
