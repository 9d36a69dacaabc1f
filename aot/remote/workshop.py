"""Workshops, with which a worker compiles: Triton in a first process, processes for sources, and a pool, as a build on one machine has.

A job that crashes or hangs its compiler therefore costs one process and one variant, not the worker. A workshop stays open for the jobs that
follow, and closes when none came for some minutes.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from pathlib import Path
from typing import Final

from nojit.aot.backends.registry import pin
from nojit.aot.compile.processes.pool import WorkerPool
from nojit.aot.compile.processes.source_compiler import SourceCompiler
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.compile.toolchain.digests import toolchain_words
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.remote.messages import Description, Job, Other, Outcome, Setup, Tools
from nojit.aot.remote.version import nojit_version
from nojit.aot.variants.variant import CompiledVariant
from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import CompileError, ManifestError, NojitError
from nojit.runtime.recording.file import FORMAT, SUFFIX

__all__ = ["Workshop", "Workshops", "mismatch"]

# how often a job looks whether its build still wants it
_LOOK_S: Final = 0.5
# an idle workshop keeps Triton in memory for so long
_IDLE_S: Final = 300.0


class Workshop:
    """Compiles jobs of one setup until it is closed. Thread-safe.

    Args:
        setup: the setup of the jobs.
        workers: number of compilations at once.
    """

    def __init__(self, setup: Setup, workers: int) -> None:
        self.setup = setup
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        try:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="nojit-worker-")))
            self._compiler = SourceCompiler(pin=partial(pin, setup.min_driver, {}))
            self._stack.enter_context(self._compiler.session(setup.timeout_s, lambda _: None, workers))
            pool = WorkerPool(workers, setup.timeout_s)
            self._stack.callback(pool.shutdown, cancel_futures=True)
            self._pool = pool
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """End all processes and remove all files."""
        self._stack.close()

    def describe(self, archs: Sequence[str]) -> Description:
        """Return what this worker compiles with for some archs; without any, only import Triton ahead of the first job."""
        try:
            if not archs:
                self._compiler.archs()
            tools = {arch: self._compiler.toolchain(arch) for arch in archs}
            return Description(nojit_version(), platform.node(), tools)
        except (NojitError, OSError) as error:
            return Description("", platform.node(), {}, str(error) or type(error).__name__)

    def compile(self, job: Job, stopped: Callable[[], bool] = lambda: False) -> list[tuple[str, Outcome]]:
        """Return the key and the result of each variant of a job.

        Args:
            job: the job.
            stopped: whether nobody wants the results any more; called from time to time.
        """
        place = self._place(job)
        try:
            source = self._compiler.describe(place, job.arch)
            keys = self._compiler.variant_keys([variant for _, variant in job.variants], source, place)
        except ManifestError as error:
            return [(key, Other(error.finding())) for key, _ in job.variants]
        found: dict[str, Outcome] = {}
        running: dict[str, Future[CompiledVariant]] = {}
        for (key, variant), own in zip(job.variants, keys, strict=True):
            if own == key:
                running[key] = self._pool.submit(self._compiler.compile_variant, variant, place)
            else:
                found[key] = Other("its source closure gives another key than its source")
        pending = {*running.values()}
        while pending:
            _, pending = wait(pending, _LOOK_S, return_when=FIRST_EXCEPTION)
            if pending and stopped():
                # a variant that takes minutes would hold up the next build
                self._pool.abandon(pending)
                break
        for key, variant in job.variants:
            if key in running:
                found[key] = _outcome(running[key], f"{place.where}: {variant.label()}")
        return [(key, found[key]) for key, _ in job.variants]

    def _place(self, job: Job) -> SourcePlace:
        """Write the closures of a job to a recording, and return the kernel's place in it."""
        captured = job.captured
        path = self._folder / f"{_digest(captured)}{SUFFIX}"
        with self._lock:
            if not path.exists():
                path.write_bytes(b"".join(_recording(captured)))
        return SourcePlace(
            spelling=f"{path}:{captured.kernel}",
            folder=self._folder,
            where=job.where,
            project=self._folder,
            together=(str(path),),
            recorded=True,
            functions=tuple((name, f"{path}:{digest}") for name, digest in captured.functions),
        )


def _digest(captured: Captured) -> str:
    named: list[Json] = [captured.kernel, dict(captured.functions)]
    return hashlib.sha256(canonical_json(named)).hexdigest()


def _recording(captured: Captured) -> Iterator[bytes]:
    yield canonical_json({"record": "process", "format": FORMAT, "process": "job"}) + b"\n"
    for digest, closure in captured.closures:
        # the reader compares the digest with the closure
        yield b'{"closure":%b,"digest":"%b","record":"closure"}\n' % (closure, digest.encode())


def _outcome(future: Future[CompiledVariant], where: str) -> Outcome:
    if future.cancelled() or not future.done():
        return Other("the build ended")
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, ManifestError):
        return Other(error.finding())
    if not isinstance(error, CompileError):
        got = f"{type(error).__name__}: {worded(error) if isinstance(error, Exception) else error}"
        return CompileError("expected the compiler to return or refuse a variant", got=got, where=where)
    # a dead process's error does not name the variant
    error.where = error.where or where
    return error


class Workshops:
    """The one workshop of this process. A job with another setup waits for the running ones, and replaces it."""

    def __init__(self, idle_s: float = _IDLE_S) -> None:
        self._idle_s = idle_s
        self._shop: Workshop | None = None
        self._users = 0
        self._changed = threading.Condition()
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def open(self, setup: Setup, workers: int) -> Iterator[Workshop]:
        """Yield the workshop of a setup.

        Args:
            setup: the setup of the jobs.
            workers: number of compilations at once, if the workshop is new.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._users or (self._shop is not None and self._shop.setup == setup))
            if self._shop is not None and self._shop.setup != setup:
                self._close()
            if self._shop is None:
                self._shop = Workshop(setup, workers)
            shop = self._shop
            self._users += 1
            self._stop_timer()
        try:
            yield shop
        finally:
            with self._changed:
                self._users -= 1
                if not self._users:
                    self._start_timer()
                self._changed.notify_all()

    def close(self) -> None:
        """Close the workshop if no job runs."""
        with self._changed:
            if not self._users:
                self._close()

    def _close(self) -> None:
        self._stop_timer()
        if self._shop is not None:
            self._shop.close()
            self._shop = None

    def _start_timer(self) -> None:
        self._timer = threading.Timer(self._idle_s, self.close)
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def mismatch(nojit: str, tools: Iterable[tuple[str, Tools]], has: Description) -> str:
    """Return how a worker's toolchain differs from a build's; empty if it does not.

    Args:
        nojit: version of the build's nojit.
        tools: toolchain of the build for each arch.
        has: what the worker has.
    """
    if has.problem:
        return has.problem
    if has.nojit != nojit:
        return f"expected nojit {nojit}, got {has.nojit}"
    for arch, wanted in tools:
        own = has.tools.get(arch, ())
        if own != wanted:
            return f"expected {toolchain_words(wanted)} for {arch}, got {toolchain_words(own) or 'none'}"
    return ""
