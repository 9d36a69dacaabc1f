"""The results of jobs, which a build takes from their workers, past the scheduler, where it reaches the workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Any, Final

__all__ = ["GATHERING_S", "Results"]

GATHERING_S: Final = 0.02
"""Jobs and questions of this time share a message."""
# for a connection to a worker that the build may not reach at all
_REACH_S: Final = 5.0
# for the result of a job, once it is ready
_FETCH_S: Final = 30.0


class Results:
    """Takes the results of jobs. All methods are for one event loop.

    Args:
        client: an asynchronous client of Dask.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        # workers that the build reaches past the scheduler
        self._direct: set[str] = set()
        self._unplaced: dict[str, asyncio.Future[Collection[str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.giving: dict[str, str] = {}
        """The workers whose results are on their way, by the name of the job."""

    def meet(self, address: str) -> None:
        """Try to reach a worker past the scheduler, in the background."""
        if address not in self._direct:
            self._spawn(self.reach(address))

    async def reach(self, address: str) -> None:
        """Find out whether the build reaches a worker past the scheduler."""
        with contextlib.suppress(Exception):
            link = await asyncio.wait_for(self._client.rpc.connect(address), _REACH_S)
            self._client.rpc.reuse(address, link)
            self._direct.add(address)

    async def fetch(self, name: str) -> bytes | None:
        """Return the result of a job that is done; None if its worker does not give it now."""
        address = next(iter(await self._holders(name)), "")
        self.giving[name] = address
        try:
            # `wait_for` would make a task of its own for each result
            async with asyncio.timeout(_FETCH_S):
                if address in self._direct:
                    return await self._take(name, address)
                if address:
                    return await self._take_by_scheduler(name)
        except (OSError, TimeoutError):
            # the scheduler may still reach it
            self._direct.discard(address)
        finally:
            del self.giving[name]
        return None

    def close(self) -> None:
        """End what runs in the background."""
        for task in self._tasks:
            task.cancel()

    async def _take(self, name: str, address: str) -> bytes | None:
        from distributed.worker import get_data_from_worker  # noqa: PLC0415 - of an extra, and slow to import

        answer: Any = await get_data_from_worker(self._client.rpc, [name], address, who=self._client.id)
        # a busy worker gives no data
        found = answer.get("data", {}).get(name)
        return None if found is None else bytes(found)

    async def _take_by_scheduler(self, name: str) -> bytes | None:
        # Dask's own `gather` takes all results that wait, and returns none of them while one worker is stuck
        answer = await self._client.scheduler.gather(keys=[name])
        return bytes(answer["data"][name]) if answer["status"] == "OK" else None

    async def _holders(self, name: str) -> Collection[str]:
        """Return the workers that have the result of a job; asked together with those of other jobs."""
        if not self._unplaced:
            asyncio.get_running_loop().call_later(GATHERING_S, self._spawn_place)
        return await self._unplaced.setdefault(name, asyncio.get_running_loop().create_future())

    def _spawn_place(self) -> None:
        asked, self._unplaced = self._unplaced, {}
        self._spawn(self._place(asked))

    async def _place(self, asked: Mapping[str, asyncio.Future[Collection[str]]]) -> None:
        found: Mapping[str, Collection[str]] = {}
        with contextlib.suppress(Exception):
            # a lost connection ends the waiting jobs elsewhere
            found = await self._client.scheduler.who_has(keys=list(asked))
        for name, holders in asked.items():
            if not holders.done():
                holders.set_result(found.get(name, ()))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
