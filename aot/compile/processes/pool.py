"""Executor with worker processes: a worker that crashes or hangs fails only its own job."""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from nojit.aot.compile.processes.process import EndedError, Process, SilentError
from nojit.runtime.errors import CompileError

__all__ = ["Home", "WorkerPool"]

T = TypeVar("T")


class Home(Protocol):
    """Starter of worker processes for certain calls.

    The workers are copies of a process that has already imported the modules that the call needs.
    """

    key: Hashable
    """Key of the starter. Calls whose starters have equal keys share worker processes; other calls use others."""
    call: Callable[..., Any] | str
    """Function that the worker calls in place of the submitted one, in the form that `Process.call` takes."""

    def open(self, log_path: Path, environment: Mapping[str, str]) -> Process:
        """Start a worker process that writes its output to `log_path`.

        `environment`: environment variables to set in the process.
        """

    def kill(self) -> None:
        """Cancel a start of a worker that is in progress."""


@dataclass(frozen=True, slots=True)
class _Job:
    future: Future[Any]
    call: Callable[..., Any] | str
    args: tuple[Any, ...]
    home: Home | None

    @property
    def key(self) -> Hashable:
        """Key of the starter (`Home`) of the job's workers; None if the job runs in a worker without imports."""
        return None if self.home is None else self.home.key


class _Jobs:
    """Queue of jobs, grouped by the key of their starter.

    A thread takes jobs with its worker's key first, then jobs of the key that has the most jobs per worker.
    """

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
        """Close the queue: `take` returns None as soon as the queue is empty."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, last: _Job | None) -> _Job | None:
        """Wait for a job and return it, preferably one with the key of `last`; None once the closed queue is empty."""
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
    """State that the pool and its threads share."""

    timeout_s: float
    folder: Path
    jobs: _Jobs = field(default_factory=_Jobs)
    stopping: threading.Event = field(default_factory=threading.Event)


class WorkerPool(Executor):
    """Executor that runs picklable calls in `workers` processes.

    A call that ends its process or exceeds `timeout_s` fails with `CompileError`. The pool replaces the process, and
    other calls go on. An exception in the ``with`` block, Ctrl-C included, ends the processes at once. If a submitted
    function has a method ``home``, that returns the `Home` of each call. Other calls run in processes that have imported
    nothing.

    Args:
        workers: number of processes.
        timeout_s: time limit of one call, in seconds.
    """

    def __init__(self, workers: int, timeout_s: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nojit-build-")
        self._shared = _Shared(timeout_s, Path(self._folder.name))
        self._keepers = [_Keeper(number, self._shared) for number in range(workers)]
        for keeper in self._keepers:
            keeper.thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a call and return its future; keyword arguments are not supported."""
        if kwargs:
            raise TypeError(f"expected positional arguments only, got {', '.join(kwargs)}")
        if self._shared.stopping.is_set():
            raise RuntimeError("expected an open pool, got one that was shut down")
        future: Future[T] = Future()
        home: Home | None = fn.home(*args) if hasattr(fn, "home") else None
        self._shared.jobs.put(_Job(future, fn if home is None else home.call, args, home))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the workers: after all queued calls, or immediately if `cancel_futures` is set."""
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

    def abandon(self, futures: Collection[Future[Any]]) -> None:
        """Cancel calls, and end the processes of those that run already, so that other calls need not wait for them."""
        for future in futures:
            future.cancel()
        for keeper in self._keepers:
            keeper.abandon(futures)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool | None:
        self.shutdown(cancel_futures=kind is not None)
        return None


class _Keeper:
    """A thread that owns one worker process and passes calls to it."""

    def __init__(self, number: int, shared: _Shared) -> None:
        self._shared = shared
        self._log_path = shared.folder / f"worker-{number}.log"
        self._scratch = shared.folder / f"worker-{number}"
        self._scratch.mkdir()
        self._process: Process | None = None
        self._key: Hashable = None
        """Key of the starter (`Home`) that started the worker process."""
        self._opening: Home | None = None
        self._serving: Future[Any] | None = None
        """Future of the call that runs."""
        self._spent = False
        """Whether the process was ended, and the next call needs another."""
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._serve, name=f"nojit-worker-{number}", daemon=True)

    def kill(self) -> None:
        """Kill the worker process and its children."""
        opening = self._opening
        if opening is not None:
            opening.kill()
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def abandon(self, futures: Collection[Future[Any]]) -> None:
        """End the process if it runs the call of one of the futures."""
        with self._lock:
            if self._process is not None and self._serving in futures:
                self._spent = True
                self._process.kill()

    def _serve(self) -> None:
        job: _Job | None = None
        while (job := self._shared.jobs.take(job)) is not None:
            if self._shared.stopping.is_set() or not job.future.set_running_or_notify_cancel():
                job.future.cancel()
                continue
            try:
                answer = self._ask(job)
            except Exception as error:  # noqa: BLE001 - the future passes it on
                self._served()
                job.future.set_exception(error)
            else:
                self._served()
                job.future.set_result(answer)
        if self._process is not None:
            self._process.close()

    def _served(self) -> None:
        with self._lock:
            self._serving = None

    def _ask(self, job: _Job) -> Any:
        process = self._running(job)
        try:
            return process.call(job.call, *job.args, timeout_s=self._shared.timeout_s)
        except SilentError:
            self.kill()
            raise CompileError(
                f"expected to compile within {self._shared.timeout_s:g} s; nojit build --timeout S allows longer",
                got="no result",
                log=process.last_words(),
            ) from None
        except EndedError as error:
            what = "expected the compiler to finish; nojit build --keep-going builds the other variants"
            raise CompileError(what, got=str(error), log=process.last_words()) from None

    def _running(self, job: _Job) -> Process:
        # set before `_open` reads `stopping`; `kill` reads this after setting `stopping`, so one of them sees the other
        self._opening = job.home
        try:
            return self._open(job)
        finally:
            self._opening = None

    def _open(self, job: _Job) -> Process:
        with self._lock:
            if self._shared.stopping.is_set():
                # `kill` is over, and would not end a process started now
                raise CancelledError
            usable = not self._spent and self._process is not None and self._process.is_alive()
            if self._process is not None and not (usable and self._key == job.key):
                self._process.close()
                self._process = None
            self._serving, self._spent = job.future, False
            if self._process is None:
                environment = {"TMPDIR": str(self._scratch)}
                opened = Process.start if job.home is None else job.home.open
                self._process = opened(self._log_path, environment)
                self._key = job.key
            return self._process
