"""Compiling on a scheduler's workers ends as on one machine, whatever happens to workers, scheduler and connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.remote.connection import KilledError, WorkerError
from nojit.aot.remote.messages import Job, Other, encode_refusal
from nojit.runtime.errors import CompileError, PackageError

from tests.aot.remote.cluster import JOBS, LIMITS, PLACE, FakeBuild, Worker, job, key_of, until

Make = Callable[..., FakeBuild]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda workers=None, **more: FakeBuild(tmp_path, workers or {"a": Worker(), "b": Worker()}, **more)


def right(build: FakeBuild, *jobs: Any) -> list[bytes]:
    return [build.here.compile_variant(each.variant, PLACE).image for each in jobs]


def has(job: Job, number: int) -> bool:
    return any(key == key_of(number) for key, _ in job.variants)


async def forever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(("error", "count"), [(TimeoutError("Timeout"), 0), (OSError("disk full"), 1)])
def test_of_errors_that_nothing_waits_for_only_timeouts_are_not_logged(
    make: Make, caplog: pytest.LogCaptureFixture, error: Exception, count: int
) -> None:
    def leave(*_: Any) -> None:
        asyncio.get_running_loop().create_future().set_exception(error)

    with make({"a": Worker(act=leave)}) as build:
        build.images(JOBS[0])
    # others may come from futures of earlier tests
    assert sum(str(error) in str(record.exc_info) for record in caplog.records) == count


def test_variants_travel_in_jobs_and_give_the_images_of_one_machine(make: Make) -> None:
    with make() as build:
        build.wait_for_workers()
        assert build.images(*JOBS) == right(build, *JOBS)
        assert len(build.compiler.compiled()) == sum(build.cluster.sizes) == len(JOBS)
        assert len(build.cluster.sizes) < len(JOBS)
        # a list of workers would slow the scheduler down
        assert build.cluster.onlys[-1] is None
        assert not build.told


def test_jobs_shrink_towards_the_end(make: Make) -> None:
    with make() as build:
        build.wait_for_workers()
        build.images(*JOBS)
        # the last ones take no worker long
        assert build.cluster.sizes[-1] == 1 < max(build.cluster.sizes)


def test_a_failure_names_its_variant_and_the_file_of_this_machine(make: Make) -> None:
    def fail(job: Job, _: str) -> Any:
        error = CompileError(
            "expected to compile", got="x", where=f"<demo:k:1>:7:3, {PLACE.where}", log="at <demo:k:1>:7"
        )
        return [(key, error) for key, _ in job.variants]

    with make({"a": Worker(act=fail)}) as build:
        (future,) = build.submit(JOBS[0])
        with pytest.raises(CompileError) as caught:
            future.result(30)
    assert caught.value.where == f"/src/demo.py:7:3, {PLACE.where}"
    assert caught.value.log == "at /src/demo.py:7"


def test_a_failed_variant_leaves_the_others_of_its_job_alone(make: Make) -> None:
    with make(d3="fail") as build:
        futures = build.submit(*JOBS[:6])
        assert [future.exception(30) is None for future in futures] == [True, True, True, False, True, True]


def test_a_worker_with_another_toolchain_is_named_and_gets_no_job(make: Make) -> None:
    with make(
        {"a": Worker(), "b": Worker(version="0.9"), "c": Worker(nojit="0.0.9 (x)"), "d": Worker(problem="no GPU")}
    ) as build:
        assert build.images(*JOBS) == right(build, *JOBS)
        assert sorted(build.told) == [
            "the worker b on host is not used: expected fake 1.0 for sm_90, got fake 0.9",
            f"the worker c on host is not used: expected nojit {build.cluster.workers['a'].nojit}, got 0.0.9 (x)",
            "the worker d on host is not used: no GPU",
        ]
        assert set(map(tuple, filter(None, build.cluster.onlys))) == {("a",)}


def test_a_worker_that_comes_later_refuses_and_its_job_goes_elsewhere(make: Make) -> None:
    late = Worker(version="0.9", threads=0)
    # the look takes a minute: the scheduler knows the worker, the build does not
    with make({"a": Worker()}, limits=replace(LIMITS, look_s=60)) as build:
        build.images(JOBS[0])
        build.cluster.workers = {"late": late, "a": build.cluster.workers["a"]}
        assert build.images(*JOBS) == right(build, *JOBS)
        assert any("is not used: expected fake 1.0 for sm_90, got fake 0.9" in text for text in build.told)


def test_a_worker_that_refuses_what_it_could_do_does_not_hold_up_a_build(make: Make) -> None:
    honest = Worker().description()
    with make({"a": Worker(act=lambda *_: encode_refusal(honest))}) as build:
        assert build.images(*JOBS[:3]) == right(build, *JOBS[:3])
        assert any("k is compiled on this machine: workers refused it 30 times" in text for text in build.told)


def test_a_worker_that_was_changed_is_met_again(make: Make) -> None:
    with make() as build:
        build.wait_for_workers()
        build.cluster.workers["a"].version = "0.9"
        assert build.images(*JOBS) == right(build, *JOBS)
        assert "the worker a on host is not used: expected fake 1.0 for sm_90, got fake 0.9" in build.told


def test_no_usable_worker_is_an_error_that_says_why(make: Make) -> None:
    with make({"a": Worker(version="0.9")}, limits=replace(LIMITS, workers_s=0.05)) as build:
        futures = build.submit(*JOBS[:3])
        for future in futures:
            with pytest.raises(
                PackageError, match=r"3 variants missing.*got a: expected fake 1.0 for sm_90, got fake 0.9"
            ):
                future.result(30)
        assert not build.cluster.sizes


def test_without_workers_some_jobs_are_sent_so_that_a_cluster_can_grow(make: Make) -> None:
    with make() as build:
        workers, build.cluster.workers = build.cluster.workers, {}
        futures = build.submit(*JOBS)
        until(lambda: build.cluster.sizes)
        build.cluster.workers = workers
        assert [future.result(30).compiled.image for future in futures] == right(build, *JOBS)


def test_a_job_that_kills_its_workers_fails_alone(make: Make) -> None:
    def die(job: Job, _: str) -> Any:
        if has(job, 2):
            raise KilledError("tcp://a:1")

    with make({"a": Worker(act=die)}) as build:
        futures = build.submit(*JOBS[:8])
        errors = [future.exception(30) for future in futures]
    assert [number for number, error in enumerate(errors) if error] == [2]
    assert isinstance(errors[2], CompileError)
    assert "the last one tcp://a:1" in str(errors[2])
    assert errors[2].where == f"{PLACE.where}: {JOBS[2].variant.label()}"


def test_a_bug_of_a_worker_fails_the_variant_that_meets_it(make: Make) -> None:
    def stumble(job: Job, _: str) -> Any:
        if has(job, 1):
            raise WorkerError("ZeroDivisionError: division by zero")

    with make({"a": Worker(act=stumble)}) as build:
        errors = [future.exception(30) for future in build.submit(*JOBS[:4])]
    assert [error is None for error in errors] == [True, False, True, True]
    assert "ZeroDivisionError" in str(errors[1])


def test_damaged_results_are_never_used(make: Make) -> None:
    with make({"a": Worker(act=lambda *_: b"no results")}) as build:
        (future,) = build.submit(JOBS[0])
        assert "expected a zstd frame" in str(future.exception(30))


def test_a_stuck_worker_costs_a_second_copy(make: Make) -> None:
    stuck = Worker(act=lambda *_: forever())
    with make({"stuck": stuck, "b": Worker(), "c": Worker()}, limits=replace(LIMITS, late_s=0.05)) as build:
        build.wait_for_workers()
        assert build.images(*JOBS) == right(build, *JOBS)
        assert all("stuck" not in only for only in build.cluster.onlys if only is not None)


def test_jobs_of_a_silent_worker_are_sent_to_others_while_variants_wait(make: Make) -> None:
    silent = Worker(act=lambda *_: forever(), silent_s=100)
    # jobs are late only after a minute, and the silent worker gets its share of them
    with make({"silent": silent, "b": Worker()}) as build:
        assert build.images(*JOBS) == right(build, *JOBS)
        copies = [only for only in build.cluster.onlys if only is not None]
        assert copies
        assert set(map(tuple, copies)) == {("b",)}
        assert build.executor.slots == 1
        assert not build.told


def test_a_silent_worker_that_speaks_again_is_used(make: Make) -> None:
    with make({"a": Worker(silent_s=100)}) as build:
        (future,) = build.submit(JOBS[0])
        until(lambda: build.executor._loop._roster.workers.silent)
        build.cluster.workers["a"].silent_s = 0
        assert future.result(30).compiled.image == right(build, JOBS[0])[0]


def test_a_job_of_a_worker_that_has_gone_for_good_is_sent_again(make: Make) -> None:
    with make({"a": Worker(), "other": Worker(version="0.9")}) as build:
        build.cluster.workers["a"].act = lambda *_: forever()
        futures = build.submit(*JOBS[:4])
        until(lambda: build.cluster.onlys)
        build.cluster.workers = {"b": Worker(), "other": Worker(version="0.9")}
        assert [future.result(30).compiled.image for future in futures] == right(build, *JOBS[:4])


def test_a_lost_scheduler_that_comes_back_gets_what_is_missing(make: Make) -> None:
    with make() as build:
        for worker in build.cluster.workers.values():
            worker.act = lambda job, _: forever() if has(job, 9) else None
        futures = build.submit(*JOBS)
        until(lambda: sum(future.done() for future in futures) >= 20)
        for worker in build.cluster.workers.values():
            worker.act = None
        build.executor._loop._events.call_soon_threadsafe(lambda: build.cluster.lose(reachable=True))
        assert [future.result(30).compiled.image for future in futures] == right(build, *JOBS)
        # those with a result are not compiled again
        assert len(build.compiler.compiled()) < 1.5 * len(JOBS)
        assert any("lost the scheduler at tcp://scheduler:8786" in text for text in build.told)


def test_a_scheduler_that_stays_away_ends_the_build(make: Make) -> None:
    with make(limits=replace(LIMITS, reconnect_s=0.05)) as build:
        build.cluster.workers["a"].act = build.cluster.workers["b"].act = lambda job, _: (
            forever() if has(job, 9) else None
        )
        futures = build.submit(*JOBS[:10])
        until(lambda: sum(future.done() for future in futures) >= 5)
        build.executor._loop._events.call_soon_threadsafe(lambda: build.cluster.lose(reachable=False))
        with pytest.raises(
            PackageError, match=r"expected a scheduler at tcp://scheduler:8786 .*missing; the cache has the others"
        ):
            futures[9].result(30)
        with pytest.raises(PackageError):
            build.submit(JOBS[20])[0].result(30)


def test_a_scheduler_that_is_not_there_is_named(make: Make) -> None:
    build = make(limits=replace(LIMITS, reconnect_s=0.05))
    build.cluster.reachable = False
    with (
        build,
        pytest.raises(PackageError, match=r"expected a scheduler at tcp://scheduler:8786.*got connection refused"),
    ):
        build.submit(JOBS[0])[0].result(30)


def test_the_end_of_a_build_waits_for_no_connection(make: Make) -> None:
    build = make(limits=replace(LIMITS, connect_s=1e6))
    build.cluster.connect = forever  # type: ignore[method-assign] # a host that never answers
    with build:
        (future,) = build.submit(JOBS[0])
    assert future.cancelled()


def test_the_end_of_a_build_cancels_what_workers_have(make: Make) -> None:
    with make({"a": Worker(act=lambda *_: forever())}) as build:
        futures = build.submit(*JOBS)
        until(lambda: build.cluster.sizes)
    assert build.cluster.connections[0].closed
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(0)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"line_info": True}, "its line info holds paths of this machine"),
        (
            {"options": (*JOBS[0].variant.options, ("extern_libs", (("a", "a.bc"),)))},
            "its extern_libs are files of this machine",
        ),
    ],
)
def test_variants_that_cannot_travel_are_compiled_here(make: Make, changed: dict[str, Any], why: str) -> None:
    own = job(0, **changed)
    with make() as build:
        assert build.images(own, JOBS[1]) == right(build, own, JOBS[1])
        assert build.told == [f"k is compiled on this machine: {why}"]
        assert len(build.compiler.compiled()) == 1


def test_variants_with_another_key_there_are_compiled_here(make: Make) -> None:
    with make({"a": Worker(act=lambda job, _: [(key, Other("another key")) for key, _ in job.variants])}) as build:
        assert build.images(*JOBS[:3]) == right(build, *JOBS[:3])
        assert build.told == ["k is compiled on this machine: another key"]


def test_kernels_whose_source_cannot_be_read_are_compiled_here(make: Make) -> None:
    with make() as build:
        build.unread = "expected a source that can be read"
        assert build.images(*JOBS[:3]) == right(build, *JOBS[:3])
        assert build.told == [f"k is compiled on this machine: expected a source that can be read - at {PLACE.where}"]
        assert not build.compiler.compiled()


def test_images_that_differ_from_their_facts_are_compiled_here(make: Make) -> None:
    def lie(job: Job, _: str) -> Any:
        honest = build.here.compile_variant(job.variants[0][1], PLACE)
        return [(key, replace(honest, image=b"forged")) for key, _ in job.variants]

    with make({"a": Worker(act=lie)}) as build:
        assert build.images(JOBS[0]) == right(build, JOBS[0])
