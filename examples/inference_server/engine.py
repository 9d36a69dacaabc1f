"""Serves requests with a model: new ones join between two steps, and all that have begun take each step together.

One thread owns the model. Those who ask hand it requests, and get tokens through a function of theirs.
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
"""Requests until draws repeat."""
Update = int | Exception | None
"""A token; what ended a request; None after its last token."""


class BusyError(Exception):
    """As many requests wait as may."""


@dataclass(eq=False)
class Request:
    """What is asked for, and how much of it is there."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    tell: Callable[[Update], object]
    """Called by the engine's thread, and not to wait for anything."""
    cancelled: bool = False
    made: int = 0

    def inform(self, update: Update) -> None:
        """Tell it; if whoever listened is gone, that cancels it, and is nobody else's loss."""
        try:
            self.tell(update)
        except Exception:
            logging.getLogger(__name__).exception("nobody listens to a request")
            self.cancelled = True


class Engine:
    """The thread that serves.

    Attributes:
        model: nobody else's while it runs.
        counts: of ``tokens``, and of requests by how they ended: ``done``, ``cancelled``, ``failed`` or ``refused``.

    Args:
        model: what to serve with.
        queue: requests that may wait for a slot.
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
        """Say whether it serves."""
        return self._thread.is_alive()

    @property
    def device_usable(self) -> bool:
        """Say whether its device can be used: a GPU as nojit says, the CPU always."""
        return self.model.device.type == "cpu" or runtime.healthy()

    @property
    def waiting(self) -> int:
        """Say how many requests wait for a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Say how many requests have one."""
        return sum(request is not None for request in self._slots)

    def start(self, rehearsed: Iterable[int] = ()) -> None:
        """Begin to serve, once the model has rehearsed prompts of these lengths.

        It does so in the thread that will serve, for which torch and the driver keep things too.

        Raises:
            Exception: what the rehearsal raised; nothing serves then.
        """
        self._rehearsed = tuple(rehearsed)
        self._thread.start()
        self._ready.result()

    def stop(self) -> None:
        """End what is under way after the present step, and the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def submit(self, request: Request) -> None:
        """Have a request served.

        Raises:
            BusyError: too many wait, or the engine is stopping.
        """
        with self._wake:
            if len(self._waiting) >= self._queue or self._stopping:
                self.counts["refused"] += 1
                raise BusyError(f"expected fewer than {self._queue} requests that wait")
            self._waiting.append(request)
            self._wake.notify()

    def cancel(self, request: Request) -> None:
        """Want no more of a request; one that has ended stays as it is."""
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
            # nobody is left waiting for what will not come
            with self._wake:
                self._stopping = True
            for request in (*self._waiting, *filter(None, self._slots)):
                request.inform(BusyError("the server is stopping"))

    def _rehearse(self) -> bool:
        """Rehearse, and tell who waits for it; say whether it went well."""
        try:
            self.model.rehearse(self._rehearsed)
        except Exception as error:  # noqa: BLE001 - who starts it is told
            self._ready.set_exception(error)
            return False
        self._ready.set_result(None)
        return True

    def _serve(self) -> None:
        """Take a step; if one fails, all that were under way end, for whose fault it is nobody knows."""
        try:
            self._admit()
            if self.running:
                self._step()
        except Exception as error:
            logging.getLogger(__name__).exception("a step failed")
            failed = [slot for slot, request in enumerate(self._slots) if request is not None]
            for slot in failed:
                self._end(slot, "failed", error)
            # on a device that is lost this fails too, and ends the thread
            for slot in failed:
                self.model.release(slot)

    def _wait(self) -> bool:
        """Wait for something to do; say whether to go on."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._waiting or self.running)
            return not self._stopping

    def _admit(self) -> None:
        """Give free slots to those who wait."""
        self._sweep()
        for slot, holder in enumerate(self._slots):
            if holder is None and (request := self._next()) is not None:
                # it has its slot before anything can fail
                self._slots[slot] = request
                self._begun += 1
                seed = self._begun % SEEDS
                self._tell(slot, self.model.start(slot, request.prompt, request.temperature, seed))

    def _next(self) -> Request | None:
        with self._wake:
            return self._waiting.popleft() if self._waiting else None

    def _sweep(self) -> None:
        """Free the slots of those who went away."""
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
