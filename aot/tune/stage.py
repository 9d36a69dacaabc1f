"""What measures: the little that a GPU has to do, so that everything else can be tested without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nojit.aot.tune.events import Hello, Opened
from nojit.aot.tune.records import Status

__all__ = ["ContextLost", "Stage", "Trial", "Unready"]


class ContextLost(Exception):  # noqa: N818 - it is told apart from every error
    """The GPU's context is beyond repair: only another process can go on."""


class Unready(Exception):  # noqa: N818 - likewise
    """A problem cannot be set up here, and says why."""


class Trial(Protocol):
    """One problem, set up on the device."""

    opened: Opened

    def check(self, candidate: int) -> tuple[Status, str]:
        """Launch a candidate once and compare what it writes; say what is wrong.

        Raises:
            ContextLost: it took the context down.
        """

    def time(self, order: Sequence[int]) -> list[float]:
        """Launch candidates in this order, each with a cold L2, and wait once; return the microseconds of each.

        Raises:
            ContextLost: one of them took the context down.
        """

    def close(self) -> None:
        """Give back the memory."""


class Stage(Protocol):
    """A device, a tuning bundle and the problems to measure."""

    flush_us: float
    """What making the L2 cold takes, for each sample."""

    def hello(self) -> Hello:
        """Say what is here."""

    def open(self, problem: int) -> Trial:
        """Set up a problem of those in `hello`.

        Raises:
            Unready: it cannot be set up.
            ContextLost: setting it up took the context down.
        """

    def clock_mhz(self) -> int | None:
        """Return the clock of the multiprocessors; None if it is not known."""
