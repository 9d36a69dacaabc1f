"""Threads that are let go together, and tell what they met."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["run_together"]

# seconds; only a deadlock takes so long
_TIMEOUT = 120


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
