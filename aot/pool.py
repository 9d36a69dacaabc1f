"""An executor whose workers are processes that may crash or hang without taking anything but their own job along."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from nojit.aot.worker import read_message, write_message
from nojit.runtime.errors import CompileError

__all__ = ["WorkerPool"]

T = TypeVar("T")
# what a worker may take to end once it has nothing to do
_ENDING_S = 5
_Job = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the pool and its keepers share."""

    timeout_s: float
    folder: Path
    jobs: queue.SimpleQueue[_Job | None] = field(default_factory=queue.SimpleQueue)
    stopping: threading.Event = field(default_factory=threading.Event)


class WorkerPool(Executor):
    """Runs picklable calls in `workers` processes.

    A call that ends its process, or that runs past `timeout_s`, fails with `CompileError`; the process is replaced and
    the other calls go on. Leaving the ``with`` block by an exception, Ctrl-C included, ends the processes at once.

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
        self._shared.jobs.put((future, fn, args))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the workers: after the queued calls, or now if `cancel_futures`."""
        if cancel_futures:
            self._shared.stopping.set()
            for keeper in self._keepers:
                keeper.kill()
        for _ in self._keepers:
            self._shared.jobs.put(None)
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
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._serve, name=f"nojit-worker-{number}", daemon=True)

    def kill(self) -> None:
        """End the process, whatever it is doing, and what it started."""
        with self._lock:
            # until it is waited for, its number is nobody else's, even if it is dead
            if self._process is not None and self._process.returncode is None:
                # the group: ptxas is a child of the worker
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def _serve(self) -> None:
        while (job := self._shared.jobs.get()) is not None:
            future, call, args = job
            if self._shared.stopping.is_set() or not future.set_running_or_notify_cancel():
                future.cancel()
                continue
            try:
                ok, answer = self._ask(call, args)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the future
                future.set_exception(error)
            else:
                future.set_result(answer) if ok else future.set_exception(answer)
        self._end()

    def _ask(self, call: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        process = self._running()
        stdin, stdout = _pipe(process.stdin), _pipe(process.stdout)
        try:
            write_message(stdin, (call, args))
            if not select.select([stdout], [], [], self._shared.timeout_s)[0]:
                self.kill()
                raise CompileError(
                    f"expected an answer within {self._shared.timeout_s:g} s", got="none", log=self._last_words()
                )
            return _answer(read_message(stdout))
        except (EOFError, BrokenPipeError):
            code = self._bury(process)
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise CompileError("expected the compiler to live", got=how, log=self._last_words()) from None

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._shared.stopping.is_set():
                # `kill` has come and gone: nothing would end a process that started now
                raise CancelledError
            if self._process is None or self._process.poll() is not None:
                self._close_pipes()
                with self._words.open("wb") as words:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "nojit.aot.worker"],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=words,
                        env=os.environ | {"TMPDIR": str(self._scratch)},
                        start_new_session=True,
                    )
            return self._process

    def _last_words(self) -> str:
        return self._words.read_text(encoding="utf-8", errors="replace")[-8000:]

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        self._close_pipes()
        self._bury(process)

    def _bury(self, process: subprocess.Popen[bytes]) -> int:
        """Give a process that is ending a moment to do so, end what it left behind, and return its exit code."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            try:
                select.select([descriptor], [], [], _ENDING_S)
            finally:
                os.close(descriptor)
        self.kill()
        return process.wait()

    def _close_pipes(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    _pipe(pipe).close()


def _answer(message: Any) -> tuple[bool, Any]:
    ok, answer = message
    return ok, answer


def _pipe(pipe: Any) -> BinaryIO:
    if pipe is None:
        raise RuntimeError("worker started without pipes")
    return pipe  # type: ignore[no-any-return]
