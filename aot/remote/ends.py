"""The ends of Dask's futures. One look at all of them costs less than Dask's own wait for each: an event and a task."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

__all__ = ["Ends"]

# time between two looks, and more for each future: looking takes less than a hundredth of a core, and the results of a large farm share
# messages; its workers have other jobs at hand
_LOOK_S: Final = 0.02
_LOOK_EACH_S: Final = 0.0001
_RUNNING: Final = frozenset({"pending", "lost"})


class _Future(Protocol):
    @property
    def status(self) -> str | None:
        """Dask's word for the state."""


class Ends:
    """Waits for futures of Dask. All methods are for one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[str], _Future] = {}

    async def of(self, future: Any) -> str:
        """Wait for the end of a future; return its status."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(_LOOK_S, self._look)
        end: asyncio.Future[str] = loop.create_future()
        self._waiting[end] = future
        return await end

    def _look(self) -> None:
        ended = []
        for end, future in self._waiting.items():
            status = future.status
            if status not in _RUNNING or end.done():
                ended.append((end, status))
        for end, status in ended:
            del self._waiting[end]
            if not end.done():
                end.set_result(str(status))
        if self._waiting:
            asyncio.get_running_loop().call_later(_LOOK_S + _LOOK_EACH_S * len(self._waiting), self._look)
