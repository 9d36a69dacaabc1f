"""Retries of failed requests: how often, and the pause before each, as after status 429; time limits of requests."""

from __future__ import annotations

import time
from dataclasses import dataclass

from nojit.runtime.errors import RegistryError

__all__ = ["Limits", "Retries"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for a registry, and how often to try."""

    connect_s: float = 10.0
    read_s: float = 60.0
    """Longest time without any byte of an answer, and the time over which its pace is measured."""
    bytes_s_min: int = 1000
    """Slowest pace of an answer, after its first byte, in bytes a second."""
    tries: int = 4
    pause_s: float = 0.5
    """Time before the second try; it doubles with each further one."""
    pause_max_s: float = 30.0


class Retries:
    """Counts the failed tries of one operation.

    Args:
        limits: the number of tries, and the pauses between them.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._failed = 0

    def start_again(self) -> None:
        """Forget the failed tries, because the last one got further."""
        self._failed = 0

    def failed(self, error: RegistryError, wait_s: float | None = None) -> None:
        """Wait before the next try.

        Args:
            error: how the last try failed.
            wait_s: time to wait, if the registry gave one; otherwise it follows from the number of failed tries.

        Raises:
            RegistryError: `error`, after the last try or if another one would fail as well.
        """
        self._failed += 1
        if error.reason != "unavailable":
            raise error
        if self._failed >= self._limits.tries:
            error.got += f", at each of {self._limits.tries} tries"
            raise error
        pause_s = self._limits.pause_s * 2 ** (self._failed - 1) if wait_s is None else wait_s
        time.sleep(min(pause_s, self._limits.pause_max_s))
