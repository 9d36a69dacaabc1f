"""An executor whose workers are processes that may crash or hang without taking anything but their own job along."""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from nojit.aot.process import EndedError, Process, SilentError
from nojit.runtime.errors import CompileError

__all__ = ["Home", "WorkerPool"]

T = TypeVar("T")


class Home(Protocol):
    """Where a call runs: in copies of a process that has imported what the call needs."""

    key: Hashable
    """Calls of one key share workers; other calls never run in them."""
    call: Callable[..., Any] | str
    """What to call in the worker in place of the function that was submitted, as `Process.call` takes it."""

    def open(self, words: Path, environment: Mapping[str, str]) -> Process:
        """Start a worker."""

    def kill(self) -> None:
        """Give up starting one."""


@dataclass(frozen=True, slots=True)
class _Job:
    future: Future[Any]
    call: Callable[..., Any] | str
    args: tuple[Any, ...]
    home: Home | None

    @property
    def key(self) -> Hashable:
        """What its worker must be a copy of; None for a worker that has imported nothing."""
        return None if self.home is None else self.home.key


class _Jobs:
    """What is queued, by key. A keeper stays with its worker's key while there is work for it, then helps where most waits."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[_Job]] = {}
        self._served: dict[Hashable, int] = {}
        self._closed = False
        self._changed = threading.Condition()

    def put(self, job: _Job) -> None:
        with self._changed:
            self._waiting.setdefault(job.key, deque()).append(job)
            self._changed.notify()

    def close(self) -> None:
        """Let keepers go once nothing waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, last: _Job | None) -> _Job | None:
        """Wait for a job, of the last one's key if there is any; None if there is none and will be none."""
        with self._changed:
            if last is not None:
                self._served[last.key] -= 1
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            key = last.key if last is not None and last.key in self._waiting else max(self._waiting, key=self._need)
            queue = self._waiting[key]
            job = queue.popleft()
            if not queue:
                del self._waiting[key]
            self._served[key] = self._served.get(key, 0) + 1
            return job

    def _need(self, key: Hashable) -> float:
        return len(self._waiting[key]) / (1 + self._served.get(key, 0))


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the pool and its keepers share."""

    timeout_s: float
    folder: Path
    jobs: _Jobs = field(default_factory=_Jobs)
    stopping: threading.Event = field(default_factory=threading.Event)


class WorkerPool(Executor):
    """Runs picklable calls in `workers` processes.

    A call that ends its process, or that runs past `timeout_s`, fails with `CompileError`; the process is replaced and
    the other calls go on. Leaving the ``with`` block by an exception, Ctrl-C included, ends the processes at once. A
    function with a method ``home`` is asked for the `Home` of each call; other calls run in processes that imported nothing.

    Args:
        workers: how many processes.
        timeout_s: how long one call may run, in seconds.
    """

    def __init__(self, workers: int, timeout_s: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nojit-build-")
        self._shared = _Shared(timeout_s, Path(self._folder.name))
        self._keepers = [_Keeper(number, self._shared) for number in range(workers)]
        for keeper in self._keepers:
            keeper.thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a call; keyword arguments are not supported."""
        if kwargs:
            raise TypeError(f"expected positional arguments only, got {', '.join(kwargs)}")
        if self._shared.stopping.is_set():
            raise RuntimeError("cannot submit to a pool that was shut down")
        future: Future[T] = Future()
        home: Home | None = fn.home(*args) if hasattr(fn, "home") else None
        self._shared.jobs.put(_Job(future, fn if home is None else home.call, args, home))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the workers: after the queued calls, or now if `cancel_futures`."""
        if cancel_futures:
            self._shared.stopping.set()
            for keeper in self._keepers:
                keeper.kill()
        self._shared.jobs.close()
        if wait:
            for keeper in self._keepers:
                keeper.thread.join()
            self._shared.stopping.set()
            self._folder.cleanup()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool | None:
        self.shutdown(cancel_futures=kind is not None)
        return None


class _Keeper:
    """One thread that keeps one worker process and hands it calls."""

    def __init__(self, number: int, shared: _Shared) -> None:
        self._shared = shared
        self._words = shared.folder / f"worker-{number}.log"
        self._scratch = shared.folder / f"worker-{number}"
        self._scratch.mkdir()
        self._process: Process | None = None
        self._key: Hashable = None
        """What the process is a copy of."""
        self._opening: Home | None = None
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._serve, name=f"nojit-worker-{number}", daemon=True)

    def kill(self) -> None:
        """End the process, whatever it is doing, and what it started."""
        opening = self._opening
        if opening is not None:
            opening.kill()
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _serve(self) -> None:
        job: _Job | None = None
        while (job := self._shared.jobs.take(job)) is not None:
            if self._shared.stopping.is_set() or not job.future.set_running_or_notify_cancel():
                job.future.cancel()
                continue
            try:
                answer = self._ask(job)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the future
                job.future.set_exception(error)
            else:
                job.future.set_result(answer)
        if self._process is not None:
            self._process.close()

    def _ask(self, job: _Job) -> Any:
        process = self._running(job)
        try:
            return process.call(job.call, *job.args, timeout_s=self._shared.timeout_s)
        except SilentError:
            self.kill()
            raise CompileError(
                f"expected to compile within {self._shared.timeout_s:g} s; nojit build --timeout S allows longer",
                got="no end",
                log=process.last_words(),
            ) from None
        except EndedError as error:
            raise CompileError("expected the compiler to live", got=str(error), log=process.last_words()) from None

    def _running(self, job: _Job) -> Process:
        # before the event is looked at, which is set before `kill` looks here
        self._opening = job.home
        try:
            return self._open(job)
        finally:
            self._opening = None

    def _open(self, job: _Job) -> Process:
        with self._lock:
            if self._shared.stopping.is_set():
                # `kill` has come and gone: nothing would end a process that started now
                raise CancelledError
            if self._process is not None and not (self._process.is_alive() and self._key == job.key):
                self._process.close()
                self._process = None
            if self._process is None:
                environment = {"TMPDIR": str(self._scratch)}
                opened = Process.start if job.home is None else job.home.open
                self._process = opened(self._words, environment)
                self._key = job.key
            return self._process
