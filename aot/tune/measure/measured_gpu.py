"""Interface to the GPU for measurements, so that the rest of the tuner can be tested without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nojit.aot.tune.measure.events import Hello, Opened
from nojit.aot.tune.store.records import Status

__all__ = ["ContextLost", "MeasuredGpu", "Trial", "Unready"]


class ContextLost(Exception):  # noqa: N818 - a signal to the worker, not an error for users
    """Raised when the CUDA context is lost; only a new process can continue."""


class Unready(Exception):  # noqa: N818 - a signal to the worker, not an error for users
    """Raised when a problem cannot be prepared; the message gives the reason."""


class Trial(Protocol):
    """One problem whose tensors are on the device: it runs, checks and times configs."""

    opened: Opened

    def check(self, candidate: int) -> tuple[Status, str]:
        """Launch a candidate once and compare its output; return the status and, unless ``ok``, the error.

        Raises:
            ContextLost: the launch destroyed the context.
        """

    def time(self, order: Sequence[int]) -> list[float]:
        """Launch candidates in this order, each with a cold L2 cache; return the microseconds of each launch.

        Raises:
            ContextLost: a launch destroyed the context.
        """

    def close(self) -> None:
        """Free the memory."""


class MeasuredGpu(Protocol):
    """A device, a tuning bundle and the problems to measure."""

    flush_us: float
    """Duration of one flush of the L2 cache, in microseconds; each sample starts with a flush."""

    def hello(self) -> Hello:
        """Return the device, the problems, and the kernels that the bundle lacks."""

    def open(self, problem: int) -> Trial:
        """Prepare a problem, given by its index in `hello`.

        Raises:
            Unready: the problem cannot be prepared.
            ContextLost: the preparation destroyed the context.
        """

    def clock_mhz(self) -> int | None:
        """Return the clock of the multiprocessors in MHz; None if unknown."""
