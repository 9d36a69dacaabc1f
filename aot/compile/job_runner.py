"""Compilation of many variants in worker processes, with a cache. Each distinct variant is compiled at most once."""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Self

from nojit.aot.cache.cache import Cache, Turn
from nojit.aot.cache.entry import EntryError, seal
from nojit.aot.cache.time_limits import FaultError
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.variants.variant import CompiledVariant, Variant, decode_compiled, encode_compiled
from nojit.runtime.errors import BundleFormatError, CompileError

__all__ = ["Finished", "Job", "JobExecutor", "Sealed", "run"]

# pause before the first look at the variants that other builds compile
_PAUSE_S: Final = 0.1
# variants that a build hands to a farm before it lets the farm's thread send some, and between two looks whether the farm wants more
_HANDED_AT_ONCE: Final = 1000
_HANDED_S: Final = 0.02
# new objects between two garbage collections: a large farm has ten thousands of variants on their way, which each collection would traverse
_COLLECTED_AT: Final = 50_000

Compile = Callable[[Variant, SourcePlace], CompiledVariant]
Check = Callable[[Variant, CompiledVariant], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One variant to compile, with its cache key and the place of its source."""

    variant: Variant
    place: SourcePlace
    key: str
    """Cache key of the variant; of several jobs with the same key, only one is compiled."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of compiling one variant: the image or the error, and whether it came from the cache."""

    job: Job
    compiled: CompiledVariant | None
    """The compiled variant; None if the compilation failed."""
    error: CompileError | None
    cached: bool
    """True if the result comes from the cache, or from another job with the same key."""


class Sealed(NamedTuple):
    """A compiled variant with its cache entry, which need not be made again to be written."""

    compiled: CompiledVariant
    entry: bytes

    @classmethod
    def of(cls, key: str, compiled: CompiledVariant, arch: str) -> Self:
        """Make the entry of a compiled variant."""
        return cls(compiled, seal(key, encode_compiled(compiled, arch)))


class JobExecutor(Executor):
    """Executor that takes whole jobs instead of calls, because it compiles on other machines."""

    @property
    @abstractmethod
    def ahead(self) -> int:
        """Most jobs to submit at the same time; enough that no worker waits. It grows with the workers."""

    @abstractmethod
    def submit_job(self, job: Job, following: int) -> Future[Sealed]:
        """Queue a job and return the future of its compiled variant.

        Args:
            job: the job.
            following: number of jobs that come after it.
        """


def run(
    jobs: Sequence[Job],
    compile_variant: Compile,
    open_executor: Callable[[], AbstractContextManager[Executor]],
    cache: Cache,
    *,
    keep_going: bool,
    check: Check = lambda _variant, _compiled: None,
    ahead: int = 1,
    expect: Callable[[int], None] = lambda _count: None,
) -> Iterator[Finished]:
    """Yield the result of each job as soon as the job finishes.

    Args:
        jobs: the variants to compile.
        compile_variant: the compiler; it runs in the executor.
        open_executor: starts the executor, whose workers may die in a call; not called if the cache has everything. A
            `JobExecutor` gets whole jobs.
        cache: cache of compiled variants. It is read before compiling, and every new result is written to it. If it is
            shared, builds divide the missing variants among them.
        keep_going: whether to go on after a failure; otherwise the first failure is the last result.
        check: function that raises `CompileError` if a cached image does not belong to the variant.
        ahead: number of variants that this build may claim at the same time, if the cache is shared. A `JobExecutor`
            has its own.
        expect: called with the number of variants to compile, before the first one, and again when another build
            compiled some.

    Raises:
        PackageError: the cache cannot be written.
    """
    done = False
    try:
        with _uncollected():
            build = _BuildJobs(jobs, compile_variant, cache, check, expect)
            yield from build.find()
            if build.missing:
                with open_executor() as executor:
                    yield from build.compile_missing(executor, ahead, keep_going=keep_going)
        done = True
    finally:
        cache.close(hurry=not done)


class _BuildJobs:
    """The jobs of one build, by key: found in the cache, compiled here, or left to other builds."""

    def __init__(
        self,
        jobs: Sequence[Job],
        compile_variant: Compile,
        cache: Cache,
        check: Check,
        expect: Callable[[int], None],
    ) -> None:
        self._jobs: dict[str, list[Job]] = {}
        for job in jobs:
            self._jobs.setdefault(job.key, []).append(job)
        self.missing = dict.fromkeys(self._jobs)
        """Keys without a result, in the order of the jobs."""
        # an image with line info holds paths of this machine
        self._own = {key for key, same in self._jobs.items() if same[0].variant.line_info}
        self._compile = compile_variant
        self._cache = cache
        self._check = check
        self._expect = expect
        self._expected = 0

    def find(self) -> Iterator[Finished]:
        """Yield the results that the cache has."""
        for key, compiled in self._cache.find(list(self._jobs), self._read, self._own):
            yield from self._found(key, compiled)

    def compile_missing(self, executor: Executor, ahead: int, *, keep_going: bool) -> Iterator[Finished]:
        """Compile the missing variants, or take them from other builds; yield the results."""
        self._expected = len(self.missing)
        self._expect(self._expected)
        queue = deque(self._cache.order(list(self.missing)))
        flight = _Flight(self._cache, self._own, partial(self._submit, executor))
        others = _Others(self._cache, flight.done.put)
        pace = _Pace(executor, ahead if self._cache.divides else None)
        while self.missing:
            flight.hand_in(queue, pace.most(len(self.missing)), pace.at_once(len(queue)))
            if not queue:
                others.look()
            for future in _taken(flight.done, pace.wait_s(len(queue))):
                if future in flight.asking:
                    yield from self._take_turn(flight, others, future, len(queue))
                elif future in flight.running:
                    events = list(self._finish(flight.running.pop(future), future))
                    yield from events
                    if events[0].error is not None and not keep_going:
                        executor.shutdown(wait=True, cancel_futures=True)
                        return
            queue.extend(others.freed())

    def _take_turn(self, flight: _Flight, others: _Others, answer: Future[Any], following: int) -> Iterator[Finished]:
        """Act on the shared cache's answer for a variant: take its entry, leave it to another build, or compile it."""
        key = flight.asking.pop(answer)
        turn = self._cache.begun(key, answer, self._read)
        if isinstance(turn, CompiledVariant):
            self._expected -= 1
            self._expect(self._expected)
            yield from self._found(key, turn)
        elif turn is Turn.HELD:
            others.held.add(key)
        else:
            flight.compile(key, following)

    def _submit(self, executor: Executor, key: str, following: int) -> Future[Any]:
        job = self._jobs[key][0]
        if isinstance(executor, JobExecutor):
            return executor.submit_job(job, following)
        return executor.submit(self._compile, job.variant, job.place)

    def _read(self, key: str, data: bytes) -> CompiledVariant:
        """Return the compiled variant of an entry's data.

        Raises:
            EntryError: the data cannot be used.
        """
        variant = self._jobs[key][0].variant
        try:
            compiled = decode_compiled(data, variant.arch)
            self._check(variant, compiled)
        except (BundleFormatError, CompileError) as error:
            raise EntryError(error.finding()) from None
        return compiled

    def _found(self, key: str, compiled: CompiledVariant) -> Iterator[Finished]:
        del self.missing[key]
        yield from (Finished(job, compiled, None, cached=True) for job in self._jobs[key])

    def _finish(self, key: str, future: Future[CompiledVariant | Sealed]) -> Iterator[Finished]:
        same = self._jobs[key]
        del self.missing[key]
        try:
            compiled, entry = self._sealed(key, future.result())
        except CompileError as error:
            if not error.where:
                # a dead worker's error does not name the variant that it compiled
                error.where = f"{same[0].place.where}: {same[0].variant.label()}"
            self._cache.abandon(key)
            yield from (Finished(job, None, error, cached=False) for job in same)
            return
        # before the caller hears of it: a build that is killed resumes from the cache
        self._cache.put_entry(key, entry, self._own)
        for number, job in enumerate(same):
            yield Finished(job, compiled, None, cached=number > 0)

    def _sealed(self, key: str, made: CompiledVariant | Sealed) -> Sealed:
        if isinstance(made, CompiledVariant):
            made = Sealed.of(key, made, self._jobs[key][0].variant.arch)
        _check_key(made.compiled, key)
        return made


class _Pace:
    """How many variants are on their way at a time: all on one machine, as many as builds with a shared cache may claim, or as a farm wants.

    Args:
        executor: compiles the variants; a `JobExecutor` is a farm.
        claimed: number of variants that this build may claim in a shared cache; None if the cache is not shared.
    """

    def __init__(self, executor: Executor, claimed: int | None) -> None:
        self._farm = executor if isinstance(executor, JobExecutor) else None
        self._claimed = claimed

    def most(self, missing: int) -> int:
        """Return how many of the missing variants may be on their way."""
        if self._farm is not None:
            return self._farm.ahead
        return missing if self._claimed is None else self._claimed

    def at_once(self, waiting: int) -> int:
        """Return how many of the waiting variants to hand in before the build looks at results."""
        return waiting if self._farm is None else _HANDED_AT_ONCE

    def wait_s(self, waiting: int) -> float | None:
        """Return how long to wait for a result before more variants are handed in; None waits until there is one."""
        return _HANDED_S if waiting and self._farm is not None else None


class _Flight:
    """The variants that wait for their turn, and those that are being compiled, by the future of the answer.

    Args:
        cache: the cache of all builds.
        own: keys that concern the local folder only.
        submit: starts a compilation, by key and the number of variants that come after it.
    """

    def __init__(self, cache: Cache, own: Collection[str], submit: Callable[[str, int], Future[Any]]) -> None:
        self.asking: dict[Future[Any], str] = {}
        self.running: dict[Future[Any], str] = {}
        self.done: SimpleQueue[Future[Any]] = SimpleQueue()
        """Futures that are done. A wait for all futures would look at each of them again for every variant."""
        self._cache = cache
        self._own = own
        self._submit = submit

    def hand_in(self, queue: deque[str], most: int, at_once: int) -> None:
        """Take up to `at_once` keys from the queue, as long as fewer than `most` are on their way."""
        for _ in range(min(len(queue), most - len(self.asking) - len(self.running), at_once)):
            key = queue.popleft()
            asked = self._cache.begin(key, self._own)
            if asked is None:
                self.compile(key, len(queue))
            else:
                self.asking[asked] = key
                asked.add_done_callback(self.done.put)

    def compile(self, key: str, following: int) -> None:
        """Compile a variant; `following` is the number of keys in the queue."""
        compiling = self._submit(key, following)
        self.running[compiling] = key
        compiling.add_done_callback(self.done.put)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Exempt existing objects from garbage collection, and collect less often.

    Collections would traverse all variants again and again.
    """
    if gc.get_freeze_count():
        # someone else's
        yield
        return
    youngest, *older = gc.get_threshold()
    gc.freeze()
    # 0 stands for no collections
    gc.set_threshold(youngest and max(youngest, _COLLECTED_AT), *older)
    try:
        yield
    finally:
        gc.set_threshold(youngest, *older)
        gc.unfreeze()


def _taken(done: SimpleQueue[Future[Any]], limit_s: float | None) -> Iterator[Future[Any]]:
    """Wait for a future that is done, and yield it and all others that are done by then; none after the limit."""
    with suppress(Empty):
        yield done.get(timeout=limit_s)
        for _ in range(done.qsize()):
            yield done.get_nowait()


class _Others:
    """The variants that other builds compile. From time to time it looks whether they still do.

    Args:
        cache: the cache of all builds.
        done: called with the future of each look, once it is done.
    """

    def __init__(self, cache: Cache, done: Callable[[Future[Any]], None]) -> None:
        self.held: set[str] = set()
        self._cache = cache
        self._done = done
        self._look: Future[set[str]] | None = None
        self._pause_s = _PAUSE_S

    def look(self) -> None:
        """Start the next look, which begins after a pause; none if other builds compile nothing."""
        if self._look is None and self.held:
            self._look = self._cache.freed(self.held, self._pause_s)
            self._look.add_done_callback(self._done)

    def freed(self) -> set[str]:
        """Return the keys that other builds have finished or given up, by the last look."""
        if self._look is None or not self._look.done():
            return set()
        try:
            freed = self._look.result() & self.held
        except FaultError:
            freed = set(self.held)
        # soon after one variant, the next may be finished
        self._pause_s = (
            _PAUSE_S if freed and not self._look.exception() else min(1.5 * self._pause_s, self._cache.poll_s)
        )
        self._look = None
        self.held -= freed
        return freed


def _check_key(compiled: CompiledVariant, key: str) -> None:
    """Raise if the key of a worker's result differs from `key`.

    The keys differ if source files or tools changed during the build.
    """
    if compiled.key not in {"", key}:
        raise CompileError(
            "expected sources, settings and toolchain to stay the same during the build: build again",
            got="a change before this variant was compiled",
        )
