"""Time limits for operations on a shared place, and the decision to do without the place.

Each operation runs in a thread of its own. Its future ends in time even if the operation never does. After several faults in
a row the guard refuses further operations at once, so that a build goes on without the place.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from nojit.runtime.base.wording import worded

__all__ = ["READ", "WRITE", "FaultError", "Guard", "Limits"]

A = TypeVar("A")
T = TypeVar("T")

READ, WRITE = "read", "write"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in time and number for the use of a shared place."""

    operation_s: float = 30.0
    """Longest time for one operation."""
    look_s: float = 60.0
    """Longest time for looking up all variants before the first one is compiled, plus a tenth of a second for each."""
    faults: int = 8
    """Number of faults in a row, or of operations in all that took too long, after which the build does without the place."""
    parallel: int = 16
    """Number of operations that run at the same time."""
    beat_s: float = 5.0
    """Time between two heartbeats of a build that holds claims."""
    expiry_s: float = 20.0
    """Time without a heartbeat after which a build's claims are void."""
    poll_s: float = 2.0
    """Longest time between two looks at the claims of others."""
    wait_s: float = 300.0
    """Longest time that a build waits for a variant that another build has claimed."""


class _OverdueError(Exception):
    """Error: an operation took too long."""


class FaultError(Exception):
    """Error: an operation failed or took too long, or the build does without the place."""


class Guard:
    """Runs operations on a shared place, each with a time limit.

    Args:
        place: the place, for messages.
        limits: the limits.
        tell: called once for reading and once for writing, with a warning about the first fault.
    """

    def __init__(self, place: str, limits: Limits, tell: Callable[[str], None]) -> None:
        self.faults = 0
        """Number of operations that failed."""
        self._place = place
        self._limits = limits
        self._tell = tell
        self._told: set[str] = set()
        self._row = {READ: 0, WRITE: 0}
        self._overdue = 0
        self._answers = False
        """Whether the place ever answered."""
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, weakref.ref[Future[Any]], str]] = []
        """Running and recent operations by the end of their time; weak, as the results may be large."""
        self._count = 0
        self._watching = False
        """Whether a thread waits for the operations to end."""

    def is_usable(self, kind: str) -> bool:
        """Return whether operations of a kind, `READ` or `WRITE`, are still tried."""
        if self._overdue and not self._answers:
            return False
        # a place that cannot be read is not written to. Overdue operations need not be in a row: each delays the build
        return max(self._overdue, self._row[READ], self._row[kind]) < self._limits.faults

    def submit(self, kind: str, function: Callable[..., T], /, *args: Any, may_miss: bool = False) -> Future[T]:
        """Start an operation; its future has a result or an error within the time limit.

        Every error is a fault, and becomes `FaultError`.

        Args:
            kind: `READ` or `WRITE`.
            function: the operation.
            args: its arguments.
            may_miss: whether a `FileNotFoundError` says that the place lacks an object, and is passed on.
        """
        future: Future[T] = Future()
        if not self.is_usable(kind):
            future.set_exception(FaultError("not used after several faults"))
            return future
        thread = threading.Thread(target=self._run, args=(future, kind, function, args, may_miss), daemon=True)
        self._watch(future, kind)
        thread.start()
        return future

    def each(self, kind: str, function: Callable[[A], T], items: Iterable[A]) -> Iterator[tuple[A, Future[T]]]:
        """Run an operation for each item, several at the same time; yield the items as they end, with their futures.

        A `FileNotFoundError` of a `READ` is passed on: the place lacks the item.

        Args:
            kind: `READ` or `WRITE`.
            function: the operation.
            items: its arguments.
        """
        rest = iter(items)
        running: dict[Future[T], A] = {}
        while True:
            # the first operation opens connections, and shows whether the place answers at all
            width = self._limits.parallel if self._answers else 1
            for item in islice(rest, max(0, width - len(running))):
                running[self.submit(kind, function, item, may_miss=kind == READ)] = item
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future

    def fault(self, kind: str, error: Exception) -> None:
        """Count a fault that an operation caught.

        Args:
            kind: `READ` or `WRITE`.
            error: the fault.
        """
        self._fail(Future(), kind, error)

    def _run(
        self, future: Future[T], kind: str, function: Callable[..., T], args: tuple[Any, ...], may_miss: bool
    ) -> None:
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            if may_miss and isinstance(error, FileNotFoundError):
                self._end(future, kind, error=error)
            else:
                self._fail(future, kind, error)
        else:
            self._end(future, kind, result=result)

    def _end(self, future: Future[T], kind: str, *, result: Any = None, error: Exception | None = None) -> None:
        with self._lock:
            # one that came too late was counted as a fault
            if not future.done():
                self._answers = True
                self._row[kind] = 0
        # it may have ended in time, by its limit
        with contextlib.suppress(InvalidStateError):
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def _fail(self, future: Future[Any], kind: str, error: Exception) -> None:
        reason = " ".join((worded(error) or type(error).__name__).split())[:200]
        with self._lock:
            if future.done():
                return
            self.faults += 1
            self._row[kind] += 1
            self._overdue += isinstance(error, _OverdueError)
            first = kind not in self._told
            self._told.add(kind)
        if first:
            done = "read" if kind == READ else "written"
            self._tell(f"the shared cache {self._place} cannot be {done}: {reason}; the build goes on")
        with contextlib.suppress(InvalidStateError):
            future.set_exception(FaultError(reason))

    def _watch(self, future: Future[Any], kind: str) -> None:
        with self._changed:
            self._count += 1
            heapq.heappush(
                self._due, (time.monotonic() + self._limits.operation_s, self._count, weakref.ref(future), kind)
            )
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._end_overdue, name="nojit-cache-limits", daemon=True).start()
            self._changed.notify()

    def _end_overdue(self) -> None:
        """Fail each operation whose time is over."""
        while True:
            with self._changed:
                while self._due and (left := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left)
                if not self._due:
                    # the next operation starts another thread
                    self._watching = False
                    return
                _, _, known, kind = heapq.heappop(self._due)
            self._end_one(known, kind)

    def _end_one(self, known: weakref.ref[Future[Any]], kind: str) -> None:
        # the thread of a running operation keeps the future
        future = known()
        if future is not None and not future.done():
            self._fail(future, kind, _OverdueError(f"no answer within {self._limits.operation_s:g} s"))
