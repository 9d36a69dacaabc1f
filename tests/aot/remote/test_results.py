"""A worker collects the results of others; the build takes those that it does not get one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from nojit.aot.remote import worker
from nojit.aot.remote.connection import DaskConnection

WORKERS = 4
NAMES = [f"job {number}" for number in range(WORKERS)]
Talk = Callable[[DaskConnection, list[Any]], Awaitable[Any]]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the results that the build took one by one."""
    from nojit.aot.remote.results import Results

    taken: list[str] = []
    take = Results._take
    monkeypatch.setattr(Results, "_take", lambda self, name, at: taken.append(name) or take(self, name, at))
    return taken


def talk(about: Talk) -> Any:
    """Call a function with a connection and the workers, all in one event loop."""
    from distributed import Scheduler, Worker

    async def run() -> Any:
        async with AsyncExitStack() as stack:
            scheduler = await stack.enter_async_context(Scheduler(host="127.0.0.1", port=0, dashboard=False))
            make = [Worker(scheduler.address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(WORKERS)]
            workers = [await stack.enter_async_context(each) for each in make]
            connection = await DaskConnection.open(scheduler.address, 30, run_job=eval)
            stack.push_async_callback(connection.close)
            for each in workers:
                await connection._results.reach(each.address)
            return await about(connection, workers)

    return asyncio.run(run())


async def run_all(connection: DaskConnection, workers: list[Any], names: Sequence[str] = NAMES) -> list[bytes | None]:
    """Run a job on each worker, and fetch all results at once, in the order of the names."""
    jobs = [
        connection._client.submit(eval, b"b'%d'" % number, key=name, workers=[each.address])
        for number, (name, each) in enumerate(zip(NAMES, workers, strict=True))
    ]
    for job in jobs:
        assert await connection._ends.of(job) == "finished"
    return await asyncio.gather(*map(connection._results.fetch, names))


def test_results_of_several_workers_come_in_one_message(alone: list[str]) -> None:
    assert talk(run_all) == [b"0", b"1", b"2", b"3"]
    assert not alone


def test_the_same_worker_collects_until_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def collect(places: Any, dask_worker: Any = None) -> dict[str, bytes]:
        return dict.fromkeys(places, dask_worker.address.encode())

    async def about(connection: DaskConnection, workers: list[Any]) -> list[set[bytes | None]]:
        first = workers[0].address

        async def fail(places: Any, dask_worker: Any = None) -> dict[str, bytes]:
            return dict.fromkeys(places, dask_worker.address.encode()) if dask_worker.address != first else {}

        found = []
        for answer, names in ((collect, NAMES), (collect, NAMES[::-1]), (fail, NAMES[::-1]), (fail, NAMES[::-1])):
            monkeypatch.setattr(worker, "collect", answer)
            found.append({*await run_all(connection, workers, names)})
        last = workers[-1].address.encode()
        assert found == [{first.encode()}, {first.encode()}, {b"0", b"1", b"2", b"3"}, {last}]
        return found

    assert talk(about)


def test_a_stuck_worker_does_not_end_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(places: Any, dask_worker: Any = None) -> dict[str, bytes]:
        return {}

    monkeypatch.setattr(worker, "collect", fail)

    async def about(connection: DaskConnection, workers: list[Any]) -> bool:
        results, waiting = connection._results, {"x": asyncio.get_running_loop().create_future()}
        # all of them ask the same worker
        await asyncio.gather(*(results._collect(0, {"x": workers[0].address}, waiting) for _ in range(5)))
        return results.collects

    assert talk(about)


def test_results_that_a_worker_cannot_collect_are_taken_one_by_one(
    alone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(places: Any, dask_worker: Any = None) -> dict[str, bytes]:
        return {"job 0": b"collected"}

    monkeypatch.setattr(worker, "collect", fail)

    assert talk(run_all) == [b"collected", b"1", b"2", b"3"]
    assert sorted(alone) == NAMES[1:]


def test_a_worker_that_gives_no_result_does_not_keep_those_of_others(
    alone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed.worker

    give = distributed.worker.get_data_from_worker

    async def about(connection: DaskConnection, workers: list[Any]) -> list[bytes | None]:
        async def stick(rpc: Any, names: Any, address: str, *, who: str) -> Any:
            if address == workers[2].address and who in {each.address for each in workers}:
                await asyncio.Event().wait()
            return await give(rpc, names, address, who=who)

        monkeypatch.setattr(distributed.worker, "get_data_from_worker", stick)
        monkeypatch.setattr(worker, "_FETCH_S", 0.1)
        return await run_all(connection, workers)

    assert talk(about) == [b"0", b"1", b"2", b"3"]
    # on a busy machine, others may be late too, but the worker that collects has its own
    assert "job 2" in alone
    assert len(alone) < len(NAMES)


def test_a_stuck_collecting_worker_does_not_keep_the_results_of_others(
    alone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nojit.aot.remote import results

    async def stick(places: Any, dask_worker: Any = None) -> dict[str, bytes]:
        return await asyncio.Event().wait()  # type: ignore[return-value] # which never comes

    monkeypatch.setattr(worker, "collect", stick)
    monkeypatch.setattr(results, "_COLLECT_S", 0.1)
    assert talk(run_all) == [b"0", b"1", b"2", b"3"]
    assert sorted(alone) == NAMES


def test_workers_that_do_not_reach_each_other_are_not_asked_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(places: Any, dask_worker: Any = None) -> dict[str, bytes]:
        return {}

    monkeypatch.setattr(worker, "collect", fail)

    async def about(connection: DaskConnection, workers: list[Any]) -> list[bool]:
        results, states = connection._results, []
        for _ in range(3):
            await results._collect(0, {"x": workers[0].address}, {"x": asyncio.get_running_loop().create_future()})
            states.append(results.collects)
        return states

    # one failure may be that of a worker that ends
    assert talk(about) == [True, True, False]
