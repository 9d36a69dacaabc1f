"""The results of jobs, which a build takes from their workers, past the scheduler, where it reaches the workers.

Most of a build's time for a result is that of a message. When many workers have results, the build therefore asks one worker to
collect them, and reads one message. The same worker collects those of the same others each time, since a new link between two workers takes
them longer than a result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

from nojit.aot.remote import worker

__all__ = ["GATHERING_S", "Results"]

GATHERING_S: Final = 0.02
"""Jobs of this time share a message, and so do results."""
# results that a worker collects, at least and at most
_TOGETHER_MIN: Final = 3
_TOGETHER_MAX: Final = 64
# workers that share one that collects: it keeps a link to each, and Dask closes links beyond 512
_SHARING: Final = 250
# a network may let workers reach the scheduler only
_VAIN_MAX: Final = 3
# for all of them, if the worker that collects is stuck; it gives up those of another stuck worker earlier
_COLLECT_S: Final = 5.0
# for a connection to a worker that the build may not reach at all
_REACH_S: Final = 5.0
# for the result of a job, once it is ready
_FETCH_S: Final = 30.0

_Place = tuple[str, bytes | None]


class Results:
    """Takes the results of jobs. All methods are for one event loop.

    Args:
        client: an asynchronous client of Dask.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        # workers that the build reaches past the scheduler
        self._direct: set[str] = set()
        # the worker that collects the results of a group, and the group of each worker
        self._collectors: dict[int, str] = {}
        self._groups: dict[str, int] = {}
        # workers in a row that brought less than half of the results
        self._vain = 0
        self._wanted: dict[str, asyncio.Future[_Place]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.giving: dict[str, str] = {}
        """The workers whose results are on their way, by the name of the job."""

    @property
    def collects(self) -> bool:
        """Whether workers reach each other, as far as is known."""
        return self._vain < _VAIN_MAX

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
            self._groups.setdefault(address, len(self._groups) // _SHARING)

    async def fetch(self, name: str) -> bytes | None:
        """Return the result of a job that is done; None if its worker does not give it now."""
        if not self._wanted:
            asyncio.get_running_loop().call_later(GATHERING_S, lambda: self._spawn(self._gather()))
        address = ""
        try:
            address, found = await self._wanted.setdefault(name, asyncio.get_running_loop().create_future())
            if found is not None:
                return found
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
            self.giving.pop(name, None)
        return None

    def close(self) -> None:
        """End what runs in the background."""
        for task in self._tasks:
            task.cancel()

    async def _take(self, name: str, address: str) -> bytes | None:
        from distributed.worker import get_data_from_worker  # of an extra, and slow to import

        answer: Any = await get_data_from_worker(self._client.rpc, [name], address, who=self._client.id)
        # a busy worker gives no data
        found = answer.get("data", {}).get(name)
        return None if found is None else bytes(found)

    async def _take_by_scheduler(self, name: str) -> bytes | None:
        # Dask's own `gather` takes all results that wait, and returns none of them while one worker is stuck
        answer = await self._client.scheduler.gather(keys=[name])
        return bytes(answer["data"][name]) if answer["status"] == "OK" else None

    # -- together -----------------------------------------------------------------------------------------------------

    async def _gather(self) -> None:
        """Find the workers of all wanted results, and let some of them collect those of others."""
        wanted = {name: waiting for name, waiting in self._wanted.items() if not waiting.done()}
        self._wanted = {}
        found: Mapping[str, Collection[str]] = {}
        with contextlib.suppress(Exception):
            # a lost connection ends the waiting jobs elsewhere
            found = await self._client.scheduler.who_has(keys=list(wanted))
        places = {name: next(iter(found.get(name, ())), "") for name in wanted}
        self.giving |= {name: address for name, address in places.items() if not wanted[name].done()}
        together = self._together(places)
        for name in places.keys() - {name for names in together.values() for name in names}:
            _give(wanted[name], (places[name], None))
        for group, names in together.items():
            for start in range(0, len(names), _TOGETHER_MAX):
                part = {name: places[name] for name in names[start : start + _TOGETHER_MAX]}
                self._spawn(self._collect(group, part, wanted))

    def _together(self, places: Mapping[str, str]) -> dict[int, list[str]]:
        """Return the names of the results to collect, by the group of their workers."""
        near: defaultdict[int, list[str]] = defaultdict(list)
        for name, address in places.items():
            if address in self._direct and self.collects:
                near[self._groups[address]].append(name)
        return {group: names for group, names in near.items() if len({places[name] for name in names}) >= _TOGETHER_MIN}

    async def _collect(
        self, group: int, places: Mapping[str, str], wanted: Mapping[str, asyncio.Future[_Place]]
    ) -> None:
        """Take results of a group by the worker that collects for it; those that it does not get are taken one by one."""
        from distributed.protocol.pickle import dumps  # of an extra, and slow to import

        # a worker that has just finished a job is hardly stuck
        if self._collectors.get(group) not in self._direct:
            self._collectors[group] = next(iter(places.values()))
        address = self._collectors[group]
        found: Mapping[str, bytes] = {}
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_COLLECT_S):
                link = self._client.rpc(address)
                answer: Any = await link.run(function=dumps(worker.collect), args=dumps((dict(places),)))
                found = answer["result"]
        if 2 * len(found) > len(places):
            self._vain = 0
        elif self._collectors.get(group) == address:
            # it has gone, is stuck, or does not reach the others; its other collections may fail too, and do not count
            del self._collectors[group]
            self._vain += 1
        for name, owner in places.items():
            _give(wanted[name], (owner, found.get(name)))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _give(waiting: asyncio.Future[_Place], place: _Place) -> None:
    if not waiting.done():
        waiting.set_result(place)
