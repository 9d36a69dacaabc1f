"""Compilation of many variants in worker processes, with a cache. Each distinct variant is compiled at most once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass

from nojit.aot.compile.cache import Cache
from nojit.aot.plan.source import SourcePlace
from nojit.aot.plan.variant import CompiledVariant, Variant, decode_compiled, encode_compiled
from nojit.runtime.errors import BundleFormatError, CompileError

__all__ = ["Finished", "Job", "run"]

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


def run(
    jobs: Sequence[Job],
    compile_variant: Compile,
    open_executor: Callable[[], AbstractContextManager[Executor]],
    cache: Cache,
    *,
    keep_going: bool,
    check: Check = lambda _variant, _compiled: None,
) -> Iterator[Finished]:
    """Yield the result of each job as soon as the job finishes.

    Args:
        jobs: the variants to compile.
        compile_variant: the compiler; it runs in the executor.
        open_executor: starts the executor, whose workers may die in a call; not called if the cache has everything.
        cache: cache of compiled variants. It is read before compiling, and every new result is written to it.
        keep_going: whether to go on after a failure; otherwise the first failure is the last result.
        check: function that raises `CompileError` if a cached image does not belong to the variant.

    Raises:
        PackageError: the cache cannot be written.
    """
    waiting: dict[str, list[Job]] = {}
    for job in jobs:
        waiting.setdefault(job.key, []).append(job)
    for key, same in list(waiting.items()):
        if (compiled := _cached(cache, key, same[0].variant, check)) is not None:
            yield from (Finished(job, compiled, None, cached=True) for job in waiting.pop(key))
    if waiting:
        with open_executor() as executor:
            yield from _compile_all(waiting, compile_variant, executor, cache, keep_going=keep_going)


def _cached(cache: Cache, key: str, variant: Variant, check: Check) -> CompiledVariant | None:
    """Return the cached result of a variant; None if there is no usable entry.

    An entry that cannot be used is recorded in the cache.

    `check`: raises if a cached image does not belong to the variant.
    """
    stored = cache.get(key)
    if stored is None:
        return None
    try:
        compiled = decode_compiled(stored, variant.arch)
        check(variant, compiled)
    except (BundleFormatError, CompileError) as error:
        cache.refuse(key, error.finding())
        return None
    return compiled


def _compile_all(
    waiting: dict[str, list[Job]], compile_variant: Compile, executor: Executor, cache: Cache, *, keep_going: bool
) -> Iterator[Finished]:
    running: dict[Future[CompiledVariant], str] = {
        executor.submit(compile_variant, same[0].variant, same[0].place): key for key, same in waiting.items()
    }
    while running:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            events = list(_finish(future, waiting[running.pop(future)], cache))
            yield from events
            if events[0].error is not None and not keep_going:
                executor.shutdown(wait=True, cancel_futures=True)
                return


def _finish(future: Future[CompiledVariant], same: Sequence[Job], cache: Cache) -> Iterator[Finished]:
    try:
        compiled = _checked(future.result(), same[0].key)
    except CompileError as error:
        if not error.where:
            # a dead worker's error does not name the variant that it compiled
            error.where = f"{same[0].place.where}: {same[0].variant.label()}"
        yield from (Finished(job, None, error, cached=False) for job in same)
        return
    cache.put(same[0].key, encode_compiled(compiled, same[0].variant.arch))
    for number, job in enumerate(same):
        yield Finished(job, compiled, None, cached=number > 0)


def _checked(compiled: CompiledVariant, key: str) -> CompiledVariant:
    """Return a worker's result unchanged; raise if its key differs from `key`.

    The keys differ if source files or tools changed during the build.
    """
    if compiled.key not in {"", key}:
        raise CompileError(
            "expected sources, settings and toolchain to stay the same during the build: build again",
            got="a change before this variant was compiled",
        )
    return compiled
