"""The connection to a real scheduler turns each of Dask's ends of a task into one of a few errors."""

from __future__ import annotations

import asyncio
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
            await until(connection.threads)
            return await about(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


def ask(job: bytes, name: str = "a job", only: Any = None) -> Talk:
    return lambda connection: connection.run(name, job, only)


def test_results_are_bytes(farm: Farm) -> None:
    assert talk(farm, ask(b"b'some' + bytes(2)")) == b"some\0\0"


def test_workers_and_their_threads(farm: Farm) -> None:
    ((address, threads),) = talk(farm, lambda connection: connection.threads()).items()
    assert (address[:16], threads) == ("tcp://127.0.0.1:", 1)


def test_an_error_of_a_worker_is_told(farm: Farm) -> None:
    with pytest.raises(WorkerError, match="ZeroDivisionError: division by zero"):
        talk(farm, ask(b"1 / 0", "b job"))
    with pytest.raises(WorkerError, match="MessageError"):
        talk(farm, lambda connection: describe(connection, b"no question"))


async def describe(connection: DaskConnection, question: bytes) -> bytes:
    (address,) = await connection.threads()
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
            await connection.threads()

    talk(farm, about)
