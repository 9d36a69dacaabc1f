"""The connection to a real scheduler turns each of Dask's ends of a task into one of a few errors."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from nojit.aot.remote.connection import DaskConnection, KilledError, LostError, WorkerError

from tests.aot.remote.dask_farm import Farm, free_port, opened

Talk = Callable[[DaskConnection], Awaitable[Any]]


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with opened(
        Farm(tmp_path_factory.mktemp("dask") / "farm", DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    ) as made:
        made.start(1, "--nanny")
        yield made


async def until(holds: Callable[[], Awaitable[Any]]) -> None:
    while not await holds():  # noqa: ASYNC110 - nothing tells of a change
        await asyncio.sleep(0.05)


def talk(farm: Farm, about: Talk) -> Any:
    """Call a function with a connection whose jobs are Python expressions."""

    async def run() -> Any:
        address = f"tcp://127.0.0.1:{farm.port}"
        connection = await DaskConnection.open(address, 30, run_job=eval)
        try:
            await until(connection.workers)
            return await about(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


def ask(job: bytes, name: str = "a job", only: Any = None) -> Talk:
    return lambda connection: connection.run(name, job, only)


def test_results_are_bytes(farm: Farm) -> None:
    assert talk(farm, ask(b"b'some' + bytes(2)")) == b"some\0\0"


def test_jobs_that_are_sent_together_share_a_message(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    async def about(connection: DaskConnection) -> list[bytes]:
        map_all, sent = connection._client.map, []
        monkeypatch.setattr(
            connection._client, "map", lambda *args, **more: sent.append(more) or map_all(*args, **more)
        )
        found = await asyncio.gather(*(connection.run(f"m job {n}", b"b'%d'" % n, None) for n in range(5)))
        assert [more["key"] for more in sent] == [[f"m job {n}" for n in range(5)]]
        return found

    assert talk(farm, about) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_result_passes_the_scheduler_only_if_the_build_does_not_reach_its_worker(farm: Farm) -> None:
    async def about(connection: DaskConnection) -> None:
        passed = []
        results = connection._results
        by_scheduler, past = results._take_by_scheduler, results._take
        results._take_by_scheduler = lambda name: passed.append(name) or by_scheduler(name)  # type: ignore[method-assign, func-returns-value]
        assert await connection.run("unmet", b"b'1'", None) == b"1"
        (address,) = await connection.workers()
        await results.reach(address)
        assert await connection.run("met", b"b'2'", None) == b"2"
        assert passed == ["unmet"]
        # a worker that is cut off from the build alone

        async def cut(*_: str) -> bytes:
            raise OSError("connection reset")

        results._take = cut  # type: ignore[method-assign]
        assert await connection.run("cut off", b"b'3'", None) == b"3"
        assert passed == ["unmet", "cut off"]
        results._take = past  # type: ignore[method-assign]

    talk(farm, about)


def test_a_stuck_worker_holds_up_its_own_results_only(farm: Farm) -> None:
    async def about(connection: DaskConnection) -> bytes:
        (address,) = await connection.workers()
        await connection._results.reach(address)
        take = connection._results._take
        connection._results._take = lambda name, at: asyncio.Event().wait() if name == "stuck" else take(name, at)  # type: ignore[assignment, method-assign, return-value]
        stuck = asyncio.ensure_future(connection.run("stuck", b"b'1'", None))
        await until(connection.places)
        found = await connection.run("other", b"b'2'", None)
        # the build knows where it is, and can send a copy elsewhere
        assert await connection.places() == {"stuck": address}
        assert not stuck.done()
        stuck.cancel()
        await asyncio.wait([stuck])
        return found

    assert talk(farm, about) == b"2"


def test_a_result_that_ends_with_its_worker_is_computed_again(farm: Farm) -> None:
    async def about(connection: DaskConnection) -> tuple[bytes, bytes]:
        pid = b"str(__import__('os').getpid()).encode()"
        before = await connection.run("pid", pid, None)
        fetch = connection._results.fetch

        async def end_first(name: str) -> bytes | None:
            connection._results.fetch = fetch  # type: ignore[method-assign]
            os.kill(int(before), signal.SIGKILL)
            return None

        connection._results.fetch = end_first  # type: ignore[method-assign]
        return before, await connection.run("pid again", pid, None)

    before, after = talk(farm, about)
    assert int(before) != int(after)


def test_workers_their_threads_and_their_silence(farm: Farm) -> None:
    ((address, (threads, silent_s)),) = talk(farm, lambda connection: connection.workers()).items()
    assert (address[:16], threads) == ("tcp://127.0.0.1:", 1)
    assert 0 <= silent_s < 30


def test_an_error_of_a_worker_is_told(farm: Farm) -> None:
    with pytest.raises(WorkerError, match="ZeroDivisionError: division by zero"):
        talk(farm, ask(b"1 / 0", "b job"))
    with pytest.raises(WorkerError, match="MessageError"):
        talk(farm, lambda connection: describe(connection, b"no question"))


async def describe(connection: DaskConnection, question: bytes) -> bytes:
    (address,) = await connection.workers()
    return await connection.describe(address, question)


def test_a_job_that_kills_its_worker_is_told(farm: Farm) -> None:
    with pytest.raises(KilledError, match=r"tcp://127.0.0.1:\d+"):
        talk(farm, ask(b"__import__('os')._exit(1)", "c job"))


def test_a_cancelled_job_leaves_the_worker_to_others(farm: Farm) -> None:
    async def about(connection: DaskConnection) -> bytes:
        waiting = asyncio.ensure_future(connection.run("d job", b"b'never'", ["tcp://127.0.0.1:1"]))
        await until(partial(asyncio.to_thread, lambda: connection._futures))
        assert not await connection.places()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return await connection.run("e job", b"b'e'", None)

    assert talk(farm, about) == b"e"


def test_no_scheduler_is_lost() -> None:
    with pytest.raises(LostError):
        asyncio.run(DaskConnection.open(f"tcp://127.0.0.1:{free_port()}", 0.2))


def test_a_scheduler_that_ends_is_lost(farm: Farm) -> None:
    async def about(connection: DaskConnection) -> None:
        running = asyncio.ensure_future(connection.run("f job", b"__import__('threading').Event().wait()", None))
        await until(connection.places)
        farm.scheduler.kill()
        await until(partial(asyncio.to_thread, lambda: connection.is_lost))
        running.cancel()
        await asyncio.wait([running])
        with pytest.raises(LostError):
            await connection.workers()

    talk(farm, about)
