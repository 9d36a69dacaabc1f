"""Book-keeping of a scheduler's workers: which there are, which a build can use, and which keep silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from nojit.aot.remote.connection import Connection, LostError, WorkerError
from nojit.aot.remote.messages import Description, MessageError, decode_description, encode_setup
from nojit.aot.remote.session import Session
from nojit.aot.remote.workshop import mismatch
from nojit.runtime.base.wording import few

__all__ = ["Roster", "Workers"]

_DESCRIBED_AT_ONCE: Final = 64
_NAMED_MAX: Final = 4
# workers up to which Dask's heartbeats are as frequent as `Limits.silent_s` expects
_PROMPT: Final = 400


@dataclass(slots=True)
class Workers:
    """The workers that the scheduler has, by address."""

    threads: dict[str, int] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    usable: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    """Those without a heartbeat for long: stuck, stopped, or cut off."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reason for each worker that is not used."""
    looked: bool = False
    """Whether the scheduler has been asked for its workers."""

    able: frozenset[str] = frozenset()
    """Those that can be used and do not keep silent, by the last `settle`."""
    slots: int = 0
    """Number of their threads."""
    all_usable: bool = True
    """Whether the scheduler has no other workers than those that can be used, by the last `settle`."""

    def settle(self) -> None:
        """Count again. Call after each change."""
        self.able = frozenset(self.usable & self.threads.keys() - self.silent)
        self.slots = sum(self.threads[address] for address in self.able)
        self.all_usable = self.threads.keys() <= self.usable


class Roster:
    """Looks from time to time which workers the scheduler has, and meets new ones.

    Args:
        session: state of the executor's thread.
    """

    def __init__(self, session: Session) -> None:
        self.workers = Workers()
        self.archs: tuple[str, ...] = ()
        """The archs of the build's jobs, once `expecting` is set."""
        self.expecting = asyncio.Event()
        self._session = session
        self.looked: Callable[[Connection], Awaitable[None]] | None = None
        """Called after each look."""
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
        self._unmanned_since = time.monotonic()

    def begin(self) -> None:
        """Forget all workers: those of a new connection follow."""
        self.workers, self._looking = Workers(), None
        self._unmanned_since = time.monotonic()
        self._looked_at = float("-inf")

    def meet_again(self) -> None:
        """Ask all workers again what they have."""
        self.workers.asked.clear()
        self._looked_at = float("-inf")

    def look(self) -> None:
        """Start the next look if it is due."""
        session = self._session
        due = self._looked_at + session.limits.look_s * max(1, len(self.workers.threads) / 200)
        if self._looking is None and time.monotonic() >= due and session.connection is not None:
            self._looking = session.spawn(self._look_at(session.connection))

    async def _look_at(self, connection: Connection) -> None:
        """Ask which workers there are, and ask new ones what they have."""
        try:
            known = await asyncio.wait_for(connection.workers(), self._session.limits.answer_s)
        except (LostError, TimeoutError) as error:
            self._session.lose(str(error) or f"no answer within {self._session.limits.answer_s:g} s")
            return
        workers = self.workers
        threads = {address: count for address, (count, _) in known.items()}
        silent_s = self._session.limits.silent_s * max(1, len(threads) / _PROMPT)
        workers.threads, workers.looked = threads, True
        workers.silent = {address for address, (_, silent) in known.items() if silent > silent_s}
        workers.asked &= threads.keys()
        workers.usable &= threads.keys()
        workers.settle()
        new = threads.keys() - workers.asked
        workers.asked |= new
        permits = asyncio.Semaphore(_DESCRIBED_AT_ONCE)
        for address in new:
            self._session.spawn(self._meet(connection, address, permits))
        if self.looked is not None:
            await self.looked(connection)
        self._looked_at, self._looking = time.monotonic(), None

    async def _meet(self, connection: Connection, address: str, permits: asyncio.Semaphore) -> None:
        """Ask a new worker what it has, and use or refuse it."""
        workers = self.workers
        try:
            async with permits:
                if not self.expecting.is_set():
                    # while the build plans, the worker imports Triton and reads its files
                    await self._ask(connection, address, self._session.build.archs)
            await self.expecting.wait()
            async with permits:
                has = await self._ask(connection, address, self.archs)
            tools = [(arch, await self._session.tools(arch)) for arch in self.archs]
            why, host = mismatch(self._session.build.setup.nojit, tools, has), has.host
        except LostError:
            workers.asked.discard(address)
            return
        except (WorkerError, MessageError) as error:
            why, host = f"expected an installed nojit {self._session.build.setup.nojit}, got {error}", ""
        except TimeoutError:
            why, host = f"expected an answer within {self._session.limits.describe_s:g} s", ""
        if why:
            self._refuse(address, why, host)
        else:
            workers.usable.add(address)
            workers.settle()
        self._session.woken.set()

    async def _ask(self, connection: Connection, address: str, archs: tuple[str, ...]) -> Description:
        question = encode_setup(self._session.build.setup, archs)
        return decode_description(
            await asyncio.wait_for(connection.describe(address, question), self._session.limits.describe_s)
        )

    def _refuse(self, address: str, why: str, host: str) -> None:
        workers = self.workers
        workers.usable.discard(address)
        workers.settle()
        if address not in workers.refused:
            workers.refused[address] = why
            name = f"{address} on {host}" if host else address
            self._session.build.tell(f"the worker {name} is not used: {why}")

    def problem(self, needed: bool) -> str | None:
        """Return why there has been no worker to use for too long; None if there has.

        `needed`: whether variants wait.
        """
        now = time.monotonic()
        if self.workers.able or not needed:
            self._unmanned_since = now
        elif now - self._unmanned_since > self._session.limits.workers_s:
            reasons = [f"{address}: {why}" for address, why in sorted(self.workers.refused.items())]
            return few(reasons, _NAMED_MAX) or "none"
        return None

    def only(self) -> list[str] | None:
        """Return the workers that may get a job; None for all."""
        workers = self.workers
        # a list makes the scheduler slower, and a cluster without workers needs jobs to start some
        return None if workers.all_usable else sorted(workers.able or workers.usable)
