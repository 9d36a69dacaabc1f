"""Compiling many variants: what the cache has, each key once, what a failure ends, in whatever order calls finish."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.cache.cache import Cache
from nojit.aot.compile import job_runner
from nojit.aot.compile.job_runner import Finished, Job, JobExecutor, Sealed
from nojit.aot.compile.processes.pool import WorkerPool
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.variants.expand import expand_kernel
from nojit.aot.variants.variant import CompiledVariant, Variant, decode_compiled, encode_compiled
from nojit.runtime.errors import BundleFormatError, PackageError

from tests.aot.fake_compiler import FakeCompiler, FakeSource

SPEC = msgspec.convert(
    {"name": "k", "source": "demo:k", "params": {"x": "*fp16"}, "matrix": {"D": list(range(8))}}, KernelSpec
)
VARIANTS = expand_kernel(SPEC, "sm_90", "here").variants
PLACE = SourcePlace("demo:k", Path("/nowhere"), "demo.toml kernel k")


def key_of(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def job(number: int, key: object = None) -> Job:
    return Job(VARIANTS[number], PLACE, key_of(number if key is None else key))


class Orderly(Executor):
    """Runs what was submitted when the last of `expected` calls comes, in the order given by `order`."""

    def __init__(self, order: list[int]) -> None:
        self.order = order
        self.calls: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []
        self.shut_down: list[bool] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append((future, fn, args))
        if len(self.calls) == len(self.order):
            for place in self.order:
                waiting, call, given = self.calls[place]
                try:
                    waiting.set_result(call(*given))
                except Exception as error:  # noqa: BLE001 - it belongs to the future
                    waiting.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.shut_down.append(cancel_futures)


class Remote(JobExecutor):
    """Compiles one variant each time that it is asked how many it wants, and wants one more from then on."""

    def __init__(self, compiler: FakeCompiler) -> None:
        self.open: deque[tuple[Job, Future[Sealed]]] = deque()
        self.wanted = 0
        self.most: list[tuple[int, int]] = []
        """Number of open jobs and of wanted ones, after each new job."""
        self.following: list[int] = []
        self._compiler = compiler

    @property
    def ahead(self) -> int:
        if self.open:
            job, future = self.open.popleft()
            compiled = self._compiler.compile_variant(job.variant, job.place)
            future.set_result(Sealed.of(job.key, compiled, job.variant.arch))
        self.wanted += 1
        return self.wanted

    def submit_job(self, job: Job, following: int) -> Future[Sealed]:
        self.following.append(following)
        self.open.append((job, Future()))
        self.most.append((len(self.open), self.wanted))
        return self.open[-1][1]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def compiler(tmp_path: Path) -> Callable[..., FakeCompiler]:
    def make(**mishaps: str) -> FakeCompiler:
        parts = {f"D={place[1:]} ": mishap for place, mishap in mishaps.items()}
        return FakeCompiler(tmp_path / "journal", {"demo:k": FakeSource(("x",), ("D",))}, mishaps=parts)

    return make


def run(
    jobs: list[Job],
    compiler: FakeCompiler,
    cache: Cache,
    *,
    keep_going: bool = False,
    executor: Callable[[], Any] = lambda: ThreadPoolExecutor(1),
) -> list[Finished]:
    check = compiler.check_compiled
    return list(job_runner.run(jobs, compiler.compile_variant, executor, cache, keep_going=keep_going, check=check))


def no_executor() -> Any:
    raise AssertionError("nothing has to be compiled")


def test_every_job_is_compiled_and_kept(cache, compiler):
    events = run([job(i) for i in range(4)], compiler(), cache)
    assert sorted(event.job.variant.axes[0][1] for event in events) == [0, 1, 2, 3]
    assert not any(event.cached or event.error for event in events)
    for event in events:
        assert event.compiled == compiler().compile_variant(event.job.variant, PLACE)
        assert cache.get(event.job.key) == encode_compiled(event.compiled, event.job.variant.arch)


@pytest.mark.parametrize(("frozen", "expected"), [(0, ["freeze", "compile", "unfreeze"]), (1, ["compile"])])
def test_the_garbage_collector_leaves_variants_alone_while_they_compile(cache, compiler, monkeypatch, frozen, expected):
    calls: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, partial(calls.append, name))
    run(
        [job(0)],
        compiler(),
        cache,
        executor=lambda: ThreadPoolExecutor(1, initializer=calls.append, initargs=("compile",)),
    )
    assert calls == expected


def test_the_garbage_collector_runs_less_often_while_variants_compile(cache, compiler, monkeypatch):
    calls: list[Any] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    monkeypatch.setattr(gc, "get_threshold", lambda: (700, 10, 5))
    monkeypatch.setattr(gc, "set_threshold", lambda *thresholds: calls.append(thresholds))
    run(
        [job(0)],
        compiler(),
        cache,
        executor=lambda: ThreadPoolExecutor(1, initializer=calls.append, initargs=("compile",)),
    )
    assert calls == [(50_000, 10, 5), "compile", (700, 10, 5)]


def test_what_the_cache_has_needs_no_executor(cache, compiler):
    jobs = [job(i) for i in range(4)]
    first = {event.job: event.compiled for event in run(jobs, compiler(), cache)}
    journal = compiler().compiled()
    events = run(jobs, compiler(), cache, executor=no_executor)
    assert [event.job for event in events] == jobs
    assert all(event.cached for event in events)
    assert {event.job: event.compiled for event in events} == first
    assert compiler().compiled() == journal


def test_no_jobs_need_no_executor(cache, compiler):
    assert run([], compiler(), cache, executor=no_executor) == []


def test_what_it_lacks_is_compiled_after_the_hits(cache, compiler):
    run([job(1), job(3)], compiler(), cache)
    events = run([job(i) for i in range(4)], compiler(), cache)
    assert [event.cached for event in events] == [True, True, False, False]
    assert len(compiler().compiled()) == 4


def test_other_machines_get_no_more_variants_than_they_want(cache, compiler):
    remote = Remote(compiler())
    found = run([job(number) for number in range(8)], compiler(), cache, executor=lambda: nullcontext(remote))
    assert sorted(finished.job.key for finished in found) == sorted(map(key_of, range(8)))
    assert len(remote.most) == 8
    assert all(count <= wanted for count, wanted in remote.most)
    # each says how many come after it
    assert remote.following == [*reversed(range(8))]
    # not one after the other, as soon as more are wanted
    assert max(count for count, _ in remote.most) > 1


def test_other_machines_get_a_few_variants_before_the_build_hands_in_more(cache, compiler, monkeypatch):
    monkeypatch.setattr(job_runner, "_HANDED_AT_ONCE", 3)
    remote = Remote(compiler())
    remote.wanted = 100
    assert len(run([job(number) for number in range(8)], compiler(), cache, executor=lambda: nullcontext(remote))) == 8
    # by how many times it asked
    assert Counter(wanted for _, wanted in remote.most) == {101: 3, 102: 3, 103: 2}


def test_a_damaged_entry_is_compiled_again(cache, compiler):
    run([job(0), job(1)], compiler(), cache)
    path = next(path for path in cache.folder.rglob("*") if path.name == job(0).key[2:])
    path.write_bytes(path.read_bytes()[:-1])
    assert {e.job: e.cached for e in run([job(0), job(1)], compiler(), cache)} == {job(0): False, job(1): True}
    assert all(event.cached for event in run([job(0), job(1)], compiler(), cache))


def test_each_key_is_compiled_once_and_every_job_hears(cache, compiler):
    jobs = [job(0, "same"), job(1), job(2, "same"), job(3, "same")]
    events = run(jobs, compiler(), cache)
    assert {event.job for event in events} == set(jobs)
    assert len(compiler().compiled()) == 2
    assert [event.cached for event in events if event.job.key == key_of("same")] == [False, True, True]
    assert len({event.compiled for event in events if event.job.key == key_of("same")}) == 1


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(6)))
def test_the_order_in_which_calls_finish_changes_nothing(tmp_path_factory, order):
    folder = tmp_path_factory.mktemp("farm")
    compiler = FakeCompiler(folder / "journal", {"demo:k": FakeSource(("x",), ("D",))}, mishaps={"D=2 ": "fail"})

    @contextmanager
    def executor() -> Iterator[Executor]:
        yield Orderly(list(order))

    jobs = [job(i) for i in range(6)]
    events = run(jobs, compiler, Cache(folder / "cache"), keep_going=True, executor=executor)
    assert {event.job for event in events} == set(jobs)
    for event in events:
        number = event.job.variant.axes[0][1]
        assert (event.compiled is None) == (event.error is not None) == (number == 2)


class TestFailures:
    def test_the_first_is_the_last_event(self, cache, compiler):
        executor = Orderly([0, 1, 2, 3])
        opened: list[str] = []

        @contextmanager
        def open_executor() -> Iterator[Executor]:
            opened.append("in")
            yield executor
            opened.append("out")

        events = run([job(i) for i in range(4)], compiler(D1="fail", D3="fail"), cache, executor=open_executor)
        assert [event.error is not None for event in events][-1]
        assert sum(event.error is not None for event in events) == 1
        assert executor.shut_down == [True]
        assert opened == ["in", "out"]

    def test_leave_nothing_in_the_cache(self, cache, compiler):
        run([job(0)], compiler(D0="fail"), cache)
        assert cache.get(job(0).key) is None
        (event,) = run([job(0)], compiler(), cache)
        assert event.error is None

    def test_with_keep_going_every_job_gets_its_event(self, cache, compiler):
        events = run([job(i) for i in range(6)], compiler(D1="fail", D4="fail"), cache, keep_going=True)
        assert sorted(e.job.variant.axes[0][1] for e in events if e.error) == [1, 4]
        assert len(events) == 6

    def test_every_job_of_a_key_that_failed_hears_of_it(self, cache, compiler):
        events = run([job(0, "same"), job(1, "same")], compiler(D0="fail"), cache)
        assert [str(event.error) for event in events] == ["expected to compile, got a fake failure - at fake.py:1"] * 2
        assert not any(event.cached for event in events)

    def test_keep_the_place_that_the_compiler_named(self, cache, compiler):
        (event,) = run([job(0)], compiler(D0="fail"), cache)
        assert event.error is not None
        assert (event.error.where, event.error.log) == ("fake.py:1", "line 1\nline 2")

    def test_that_are_no_compile_errors_end_the_build(self, cache, compiler):
        with pytest.raises(ZeroDivisionError, match="a bug of the compiler"):
            run([job(0), job(1)], compiler(D0="bug"), cache, keep_going=True)

    def test_of_the_cache_end_the_build(self, cache, compiler, monkeypatch):
        def full(self: Cache, key: str, *_: object) -> None:
            raise PackageError("expected to write a cache entry", got="no space", where=key)

        left: list[object] = []

        @contextmanager
        def executor() -> Iterator[Executor]:
            try:
                with ThreadPoolExecutor(1) as threads:
                    yield threads
            except PackageError as error:
                left.append(error)
                raise

        monkeypatch.setattr(Cache, "put_entry", full)
        with pytest.raises(PackageError, match="expected to write a cache entry, got no space"):
            run([job(0), job(1)], compiler(), cache, keep_going=True, executor=executor)
        assert len(left) == 1

    def test_another_key_where_it_was_compiled_is_one(self, cache, compiler):
        """Whatever a worker compiles that is not what was asked for is kept under no key."""

        def stale(variant: Variant, place: SourcePlace) -> CompiledVariant:
            return replace(compiler().compile_variant(variant, place), key=key_of("other"))

        (event,) = job_runner.run([job(0)], stale, lambda: ThreadPoolExecutor(1), cache, keep_going=True)
        assert event.compiled is None
        assert "expected sources, settings and toolchain to stay the same" in str(event.error)
        assert "demo.toml kernel k: k sm_90 D=0" in str(event.error)
        assert cache.get(job(0).key) is None


FACTS = json.loads(encode_compiled(FakeCompiler(Path(os.devnull), {"demo:k": FakeSource(("x",), ("D",))}).compile_variant(VARIANTS[0], PLACE), "sm_90").partition(b"\n")[0])  # fmt: skip


def entry_of(facts: object, image: bytes = b"fake image\n") -> bytes:
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode() + b"\n" + image


WHOLE = {**FACTS, "image_bytes": 11}
GARBAGE = {
    "nothing": b"",
    "no JSON": b"garbage",
    "a cut JSON": entry_of(WHOLE)[:40],
    "nested JSON": b"[" * 100_000 + b"\n",
    "another thing": entry_of([1, 2]),
    "a field too few": entry_of({key: value for key, value in WHOLE.items() if key != "registers"}),
    "a field too many": entry_of({**WHOLE, "more": 1}),
    "spaces": entry_of(WHOLE).replace(b":", b": ", 1),
    "a wrong type": entry_of({**WHOLE, "registers": "32"}),
    "a number out of range": entry_of({**WHOLE, "spill_bytes": -1}),
    "a float": entry_of({**WHOLE, "registers": 1.5}),
    "a launch of another shape": entry_of({**WHOLE, "launch": {}}),
    "a wrong layout": entry_of({**WHOLE, "layout": "x"}),
    "another arch": entry_of({**WHOLE, "arch": "sm_80"}),
    "a shorter image": entry_of(WHOLE, b"fake"),
    "another image": entry_of(WHOLE, b"other bytes"),
}


class TestEntriesOfNoUse:
    @pytest.mark.parametrize("kind", GARBAGE)
    def test_are_compiled_again_and_noted_whatever_their_checksum_says(self, cache, compiler, kind):
        cache.put(job(0).key, GARBAGE[kind])
        (event,) = run([job(0)], compiler(), cache)
        assert (event.cached, event.error) == (False, None)
        (misfit,) = cache.misfits
        assert misfit.path == str(cache.folder / job(0).key[:2] / job(0).key[2:])
        assert misfit.reason.startswith("expected ")
        (again,) = run([job(0)], compiler(), Cache(cache.folder), executor=no_executor)
        assert again.compiled == event.compiled

    def test_a_whole_one_is_of_use(self, cache, compiler):
        cache.put(job(0).key, entry_of(WHOLE))
        (event,) = run([job(0)], compiler(), cache, executor=no_executor)
        assert event.cached
        assert cache.misfits == ()

    def test_two_that_changed_places_are_compiled_again(self, cache, compiler):
        first = {event.job: event.compiled for event in run([job(0), job(1)], compiler(), cache)}
        paths = [cache.folder / one.key[:2] / one.key[2:] for one in (job(0), job(1))]
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, reversed(contents), strict=True):
            path.write_bytes(content)
        events = run([job(0), job(1)], compiler(), cache)
        assert {event.job: event.compiled for event in events} == first
        assert not any(event.cached for event in events)
        assert len(cache.misfits) == 2

    def test_a_folder_in_the_place_of_one_stays_and_the_build_goes_on(self, cache, compiler):
        place = cache.folder / job(0).key[:2] / job(0).key[2:]
        place.mkdir(parents=True)
        (event,) = run([job(0)], compiler(), cache)
        assert event.compiled is not None
        assert place.is_dir()
        assert [one.path for one in cache.misfits] == [str(place)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from([*WHOLE, *WHOLE["launch"]]), JSON, min_size=1, max_size=3), st.binary(max_size=20)
)
def test_reading_an_entry_fails_in_one_way_only(changes, image):
    launch = {**WHOLE["launch"], **{key: value for key, value in changes.items() if key in WHOLE["launch"]}}
    facts = {**WHOLE, "launch": launch, **{key: value for key, value in changes.items() if key in WHOLE}}
    with contextlib.suppress(BundleFormatError):
        decode_compiled(entry_of(facts, image), "sm_90")


class TestInWorkers:
    """With real processes, which can end without a word."""

    pytestmark = pytest.mark.usefixtures("workers_find_tests")

    def test_the_variant_that_killed_its_worker_is_named(self, cache, compiler):
        jobs = [job(i) for i in range(5)]
        events = run(jobs, compiler(D1="segv", D3="exit"), cache, keep_going=True, executor=lambda: WorkerPool(2, 60))
        failed = {event.job.variant.axes[0][1]: str(event.error) for event in events if event.error}
        place = "demo.toml kernel k: k sm_90 D={} num_warps=4 num_stages=3 num_ctas=1"
        assert failed == {
            1: f"expected the compiler to finish; nojit build --keep-going builds the other variants, got SIGSEGV - at {place.format(1)}",
            3: f"expected the compiler to finish; nojit build --keep-going builds the other variants, got exit code 3 - at {place.format(3)}",
        }
        assert {event.job for event in events} == set(jobs)

    def test_a_consumer_that_stops_listening_ends_the_workers(self, cache, compiler):
        made: list[WorkerPool] = []

        def executor() -> WorkerPool:
            made.append(WorkerPool(2, 60))
            return made[0]

        jobs = [job(i) for i in range(5)]
        events = job_runner.run(jobs, compiler(D4="hang").compile_variant, executor, cache, keep_going=True)
        next(events)
        events.close()
        with pytest.raises(RuntimeError, match="shut down"):
            made[0].submit(len, "")


def compiled_with(variant: Variant, **changes: Any) -> CompiledVariant:
    compiler = FakeCompiler(Path("/dev/null"), {"demo:k": FakeSource(("x",), ("D",))})
    made = compiler.compile_variant(variant, PLACE)
    return CompiledVariant(
        **{name: changes.get(name, getattr(made, name)) for name in CompiledVariant.__dataclass_fields__}
    )


@settings(deadline=None)
@given(st.binary(min_size=1), st.integers(0, 255), st.integers(0, 2**31), st.integers(0, 2**31))
def test_a_compiled_variant_survives_the_cache(image, registers, spill_bytes, compile_ms):
    compiled = compiled_with(
        VARIANTS[0], image=image, registers=registers, spill_bytes=spill_bytes, compile_ms=compile_ms
    )
    assert decode_compiled(encode_compiled(compiled, "sm_90"), "sm_90") == compiled


def test_a_label_says_what_tells_a_variant_from_others():
    entry = msgspec.convert(
        {
            "name": "k",
            "source": "demo:k",
            "params": {"x": "*{d}", "y": "*fp16?", "n": "i32"},
            "matrix": {"d": ["fp16"], "F": [True]},
            "configs": [{"B": 64, "maxnreg": 64}],
            "derived": {"EVEN": "n == 2"},
            "hints": [{"x": 16, "n": 16}],
        },
        KernelSpec,
    )
    labels = [variant.label() for variant in expand_kernel(entry, "sm_90", "here").variants]
    assert (
        labels[0] == "k sm_90 d='fp16' F=True B=64 num_warps=4 num_stages=3 num_ctas=1 maxnreg=64 EVEN=True n:16 x:16"
    )
    assert "y=none" in labels[-1]
    assert len(set(labels)) == len(labels) == 8
