"""Engine that serves requests with a model: requests join between two steps, and all running requests share each step.

One thread owns the model. Other threads submit requests, and receive tokens through a callback.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from model import Decoder
from nojit import runtime

SEEDS = 1 << 31
"""Number of requests after which seeds repeat."""
Update = int | Exception | None
"""A token; an exception that ended the request; None after the last token."""


class BusyError(Exception):
    """Raised if the queue of waiting requests is full."""


@dataclass(eq=False)
class Request:
    """A request and its progress."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    tell: Callable[[Update], object]
    """Callback; the engine's thread calls it, so it must not block."""
    cancelled: bool = False
    made: int = 0

    def inform(self, update: Update) -> None:
        """Pass an update to the callback; if it raises, because its listener is gone, cancel the request."""
        try:
            self.tell(update)
        except Exception:
            logging.getLogger(__name__).exception("nobody listens to a request")
            self.cancelled = True


class Engine:
    """The thread that serves requests.

    Attributes:
        model: used by this thread only.
        counts: number of ``tokens``, and of requests by outcome: ``done``, ``cancelled``, ``failed`` or ``refused``.

    Args:
        model: the model.
        queue: maximum number of waiting requests.
    """

    def __init__(self, model: Decoder, queue: int = 32) -> None:
        self.model = model
        self.counts: Counter[str] = Counter()
        self._queue = queue
        self._waiting: deque[Request] = deque()
        self._slots: list[Request | None] = [None] * model.shape.slots
        self._wake = threading.Condition()
        self._stopping = False
        self._begun = 0
        self._rehearsed: tuple[int, ...] = ()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Return whether the thread serves requests."""
        return self._thread.is_alive()

    @property
    def device_usable(self) -> bool:
        """Return whether the device is usable: a GPU according to nojit, the CPU always."""
        return self.model.device.type == "cpu" or runtime.healthy()

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait for a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Return the number of requests with a slot."""
        return sum(request is not None for request in self._slots)

    def start(self, rehearsed: Iterable[int] = ()) -> None:
        """Start the thread; it first rehearses prompts of the given lengths.

        The rehearsal runs in the serving thread, because torch and the driver have state per thread.

        Raises:
            Exception: an error of the rehearsal; the thread has ended.
        """
        self._rehearsed = tuple(rehearsed)
        self._thread.start()
        self._ready.result()

    def stop(self) -> None:
        """End running requests after the current step, and the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises:
            BusyError: the queue is full, or the engine is stopping.
        """
        with self._wake:
            if len(self._waiting) >= self._queue or self._stopping:
                self.counts["refused"] += 1
                raise BusyError(f"expected fewer than {self._queue} requests that wait")
            self._waiting.append(request)
            self._wake.notify()

    def cancel(self, request: Request) -> None:
        """Cancel a request; do nothing if it has ended."""
        with self._wake:
            request.cancelled = True
            if request in self._waiting:
                self._waiting.remove(request)
                self.counts["cancelled"] += 1
            self._wake.notify()

    def _run(self) -> None:
        try:
            if self._rehearse():
                while self._wait():
                    self._serve()
        finally:
            # nobody may wait for an engine that has ended
            with self._wake:
                self._stopping = True
            for request in (*self._waiting, *filter(None, self._slots)):
                request.inform(BusyError("the server is stopping"))

    def _rehearse(self) -> bool:
        """Rehearse, and signal the end to the starting thread; return whether it succeeded."""
        try:
            self.model.rehearse(self._rehearsed)
        except Exception as error:  # noqa: BLE001 - who starts it is told
            self._ready.set_exception(error)
            return False
        self._ready.set_result(None)
        return True

    def _serve(self) -> None:
        """Run one step; if it fails, end all running requests, because any of them could be the cause."""
        try:
            self._admit()
            if self.running:
                self._step()
        except Exception as error:
            logging.getLogger(__name__).exception("a step failed")
            failed = [slot for slot, request in enumerate(self._slots) if request is not None]
            for slot in failed:
                self._end(slot, "failed", error)
            # on a lost device this fails too, and ends the thread
            for slot in failed:
                self.model.release(slot)

    def _wait(self) -> bool:
        """Wait for work; return whether to continue."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._waiting or self.running)
            return not self._stopping

    def _admit(self) -> None:
        """Give free slots to waiting requests."""
        self._sweep()
        for slot, holder in enumerate(self._slots):
            if holder is None and (request := self._next()) is not None:
                # assign the slot before anything can fail
                self._slots[slot] = request
                self._begun += 1
                seed = self._begun % SEEDS
                self._tell(slot, self.model.start(slot, request.prompt, request.temperature, seed))

    def _next(self) -> Request | None:
        with self._wake:
            return self._waiting.popleft() if self._waiting else None

    def _sweep(self) -> None:
        """Free the slots of cancelled requests."""
        for slot, request in enumerate(self._slots):
            if request is not None and request.cancelled:
                self._end(slot, "cancelled", None)
                self.model.release(slot)

    def _step(self) -> None:
        for slot, token in enumerate(self.model.step()):
            self._tell(slot, token)

    def _tell(self, slot: int, token: int) -> None:
        request = self._slots[slot]
        if request is None or request.cancelled:
            return
        request.made += 1
        self.counts["tokens"] += 1
        request.inform(token)
        if request.made == request.max_tokens:
            self._end(slot, "done", None)
            self.model.release(slot)

    def _end(self, slot: int, how: str, last: Exception | None) -> None:
        request, self._slots[slot] = self._slots[slot], None
        self.counts[how] += 1
        if request is not None:
            request.inform(last)
