"""Threads that are let go together, and tell what they met."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Self

__all__ = ["Pace", "run_together"]

# seconds; only a deadlock takes so long
_TIMEOUT = 300


def run_together(work: Callable[[int], object], threads: int) -> None:
    """Run `work` with each number below `threads` in a thread of its own; raise the first error that one met."""
    barrier = threading.Barrier(threads)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(_TIMEOUT)
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    started = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(_TIMEOUT)
    if any(thread.is_alive() for thread in started):
        raise TimeoutError("a thread hangs")
    if errors:
        raise errors[0]


class Pace:
    """Lets one thread act about as often as others do something: ``for _ in pace`` there, ``with pace`` and `step` here.

    It ends with the first of them. One that acted all the time would take what time they need on a busy machine.
    """

    def __init__(self) -> None:
        self._steps = threading.Semaphore(0)
        self._ended = False

    def __iter__(self) -> Iterator[None]:
        while self._steps.acquire(timeout=_TIMEOUT) and not self._ended:
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._steps.release()

    def step(self) -> None:
        """Let the other thread act once more."""
        self._steps.release()
