"""Operations on a shared place end in time, and a place that fails again and again is left alone."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest
from nojit.aot.cache.time_limits import READ, WRITE, FaultError, Guard, Limits

LIMITS = Limits(operation_s=0.05, faults=3)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def guard(told: list[str]) -> Guard:
    return Guard("s3://bucket", LIMITS, told.append)


@pytest.fixture
def hang() -> Iterator[Callable[[], bool]]:
    """An operation that ends with the test."""
    over = threading.Event()
    yield over.wait
    over.set()


DENIED = PermissionError(13, "Access Denied")


def fail(error: Exception = DENIED) -> None:
    raise error


def test_a_result_is_passed_on(guard: Guard) -> None:
    assert guard.submit(READ, lambda x: x + 1, 1).result() == 2


def test_a_missing_object_is_no_fault_of_a_read(guard: Guard, told: list[str]) -> None:
    for _ in range(2 * LIMITS.faults):
        with pytest.raises(FileNotFoundError):
            guard.submit(READ, fail, FileNotFoundError(), may_miss=True).result()
    assert (guard.faults, told) == (0, [])


def test_a_missing_place_is_a_fault_of_a_read(guard: Guard, told: list[str]) -> None:
    with pytest.raises(FaultError, match="no such bucket"):
        guard.submit(READ, fail, FileNotFoundError("no such bucket")).result()
    assert told == ["the shared cache s3://bucket cannot be read: no such bucket; the build goes on"]


def test_a_missing_place_is_a_fault_of_a_write(guard: Guard, told: list[str]) -> None:
    with pytest.raises(FaultError, match="no such bucket"):
        guard.submit(WRITE, fail, FileNotFoundError("no such bucket")).result()
    assert told == ["the shared cache s3://bucket cannot be written: no such bucket; the build goes on"]


def test_an_operation_that_never_ends_is_a_fault(guard: Guard, hang: Callable[[], bool], told: list[str]) -> None:
    with pytest.raises(FaultError, match=r"no answer within 0\.05 s"):
        guard.submit(READ, hang).result(timeout=10)
    assert told == ["the shared cache s3://bucket cannot be read: no answer within 0.05 s; the build goes on"]


def test_many_that_never_end_take_no_longer_than_one(guard: Guard, hang: Callable[[], bool]) -> None:
    futures = [guard.submit(READ, hang) for _ in range(50)]
    assert all(isinstance(future.exception(timeout=10), FaultError) for future in futures)


def test_a_result_is_kept_by_nobody_but_the_caller(told: list[str]) -> None:
    class Data:
        pass

    guard, threads = Guard("here", Limits(operation_s=1e6), told.append), []

    def read() -> Data:
        threads.append(threading.current_thread())
        return Data()

    future = guard.submit(READ, read)
    data = weakref.ref(future.result())
    threads[0].join()
    del future
    gc.collect()
    assert data() is None


def test_each_kind_of_fault_is_told_once(guard: Guard, told: list[str]) -> None:
    for kind in (READ, WRITE, WRITE, READ):
        guard.submit(kind, fail).exception()
    assert told == [
        "the shared cache s3://bucket cannot be read: Access Denied; the build goes on",
        "the shared cache s3://bucket cannot be written: Access Denied; the build goes on",
    ]
    assert guard.faults == 4


def test_after_faults_in_a_row_nothing_is_tried(guard: Guard) -> None:
    for _ in range(LIMITS.faults):
        assert guard.is_usable(READ)
        guard.submit(READ, fail).exception()
    tried: list[int] = []
    assert isinstance(guard.submit(READ, tried.append, 1).exception(), FaultError)
    assert isinstance(guard.submit(WRITE, tried.append, 1).exception(), FaultError)
    assert tried == []
    assert guard.faults == LIMITS.faults


def test_a_place_that_cannot_be_written_is_still_read(guard: Guard) -> None:
    for _ in range(LIMITS.faults):
        guard.submit(WRITE, fail).exception()
    assert (guard.is_usable(READ), guard.is_usable(WRITE)) == (True, False)


def test_a_success_forgives_faults_but_no_slowness(guard: Guard, hang: Callable[[], bool]) -> None:
    for _ in range(3 * LIMITS.faults):
        guard.submit(READ, fail).exception()
        guard.submit(READ, int).result()
    for _ in range(LIMITS.faults):
        assert guard.is_usable(READ)
        guard.submit(READ, hang).exception(timeout=10)
        guard.submit(READ, int).exception()
    assert not guard.is_usable(READ)


def test_items_end_with_their_futures_and_few_run_at_once(told: list[str]) -> None:
    together, begun = threading.Barrier(4), list[int]()

    def operate(number: int) -> int:
        # the first runs alone; of the others, each waits for three more
        if number > 0:
            together.wait(10)
        return fail(OSError("odd")) if number % 2 else number  # type: ignore[return-value]

    def items() -> Iterator[int]:
        for number in range(49):
            begun.append(number)
            yield number

    guard = Guard("here", Limits(parallel=4, faults=1000), told.append)
    ended: dict[int, BaseException | None] = {}
    most = 0
    for item, future in guard.each(READ, operate, items()):
        most = max(most, len(begun) - len(ended))
        ended[item] = future.exception()
    assert {item for item, error in ended.items() if error is None} == {*range(0, 49, 2)}
    assert len(ended) == 49
    assert most == 4


def test_no_thread_outlives_the_operations() -> None:
    before = set(threading.enumerate())
    guard = Guard("place", Limits(operation_s=0.05), lambda _: None)
    for _ in range(2):
        assert guard.submit(READ, lambda: 1).result(10) == 1
        end = time.monotonic() + 10
        while any(thread.name == "nojit-cache-limits" for thread in threading.enumerate() if thread not in before):
            assert time.monotonic() < end
            time.sleep(0.01)
