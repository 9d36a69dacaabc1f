"""State that the parts of a remote executor's thread share: the build, the connection, and tasks of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from nojit.aot.remote.build_facts import Build, Limits
from nojit.aot.remote.connection import Connection, LostError
from nojit.aot.remote.messages import Tools

__all__ = ["Session"]


class Session:
    """The build, its connection, and the tasks that use it. All methods are for the executor's thread.

    Args:
        build: the build.
        limits: time limits.
    """

    def __init__(self, build: Build, limits: Limits) -> None:
        self.build = build
        self.limits = limits
        self.connection: Connection | None = None
        self.lost = ""
        """Why the connection is of no use; empty if it is not known to be."""
        self.bug: BaseException | None = None
        """An error of the executor itself."""
        self.woken = asyncio.Event()
        self.tasks: set[asyncio.Task[Any]] = set()
        self._tools: dict[str, Tools] = {}
        self._told: set[str] = set()

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Run a coroutine that ends with the connection."""
        task: asyncio.Task[Any] = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel all tasks of the connection."""
        for task in self.tasks:
            task.cancel()

    def lose(self, why: str) -> None:
        """Note that the connection is lost; the thread connects again."""
        self.lost = self.lost or why
        self.woken.set()

    def tell_once(self, text: str) -> None:
        """Warn, unless with a text that was told before."""
        if text not in self._told:
            self._told.add(text)
            self.build.tell(text)

    async def tools(self, arch: str) -> Tools:
        """Return the build's toolchain for an arch."""
        if arch not in self._tools:
            self._tools[arch] = await asyncio.to_thread(self.build.compiler.toolchain, arch)
        return self._tools[arch]

    async def places(self, connection: Connection) -> Mapping[str, str]:
        """Return the worker that has each job; nothing if the scheduler does not say it in time."""
        with contextlib.suppress(LostError, TimeoutError):
            return await asyncio.wait_for(connection.places(), self.limits.answer_s)
        return {}

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # an error of this module must end the build, or it would wait forever
            self.bug = self.bug or error
            self.woken.set()
