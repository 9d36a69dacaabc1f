"""The thread of a remote executor: an event loop that holds the connection to a scheduler.

`roster` keeps its workers, `jobs` the jobs. If the connection ends, the thread connects again, and the jobs send again what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final

from nojit.aot.compile import job_runner
from nojit.aot.remote.build_facts import Build, Limits
from nojit.aot.remote.connection import Connection, LostError
from nojit.aot.remote.jobs import Call, Jobs
from nojit.aot.remote.roster import Roster
from nojit.aot.remote.session import Session
from nojit.runtime.base.wording import counted
from nojit.runtime.errors import PackageError

__all__ = ["Loop"]

# variants of one turn: the first jobs leave while the last ones are made
_TAKEN_AT_ONCE: Final = 250


class Loop:
    """The thread of an executor, and all state that only this thread uses."""

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], address: str, build: Build, limits: Limits
    ) -> None:
        self._connect = connect
        self._address = address
        self._session = Session(build, limits)
        self._roster = Roster(self._session)
        self._jobs = Jobs(self._session, self._roster, f"nojit-{uuid.uuid4().hex[:12]}")
        self._inbox: deque[Call] = deque()
        # variants that the build has not handed in yet
        self._following = 0
        self._connecting: asyncio.Future[Connection] | None = None
        self._error: Exception | None = None
        self._stopping = False
        self._lock = threading.Lock()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="nojit-remote", daemon=True)

    # -- called by other threads -------------------------------------------------------------------------------------

    @property
    def ahead(self) -> int:
        """See `nojit.aot.remote.executor.RemoteExecutor.ahead`."""
        return self._jobs.ahead

    def expect(self, archs: tuple[str, ...]) -> None:
        """See `nojit.aot.remote.executor.RemoteExecutor.expect`."""
        self._roster.archs = archs
        with contextlib.suppress(RuntimeError):
            self._events.call_soon_threadsafe(self._roster.expecting.set)

    @property
    def slots(self) -> int:
        """See `nojit.aot.remote.executor.RemoteExecutor.slots`."""
        return self._roster.workers.slots

    @property
    def jobs_sent(self) -> int:
        """See `nojit.aot.remote.executor.RemoteExecutor.jobs_sent`."""
        return self._jobs.count

    def start(self) -> None:
        """Start the thread; return once it runs."""
        self._thread.start()
        self._started.wait()

    def put(self, job: job_runner.Job, following: int) -> Future[job_runner.Sealed]:
        """See `nojit.aot.remote.executor.RemoteExecutor.submit_job`."""
        call = Call(job)
        with self._lock:
            if self._error is not None:
                call.future.set_exception(self._error)
                return call.future
            if self._stopping:
                raise RuntimeError("expected an open executor, got one that was shut down")
            # the put of the first one woke the thread, which takes all
            wakes = not self._inbox
            self._inbox.append(call)
            self._following = following
        if wakes:
            self._wake()
        return call.future

    def stop(self) -> None:
        """Cancel what the workers still have, and let the thread end."""
        with self._lock:
            self._stopping = True
        with contextlib.suppress(RuntimeError):
            self._events.call_soon_threadsafe(self._stop_connecting)
        self._wake()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _wake(self) -> None:
        # the loop is closed once the thread has ended
        with contextlib.suppress(RuntimeError):
            self._events.call_soon_threadsafe(self._session.woken.set)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            self._events = runner.get_loop()
            self._events.set_exception_handler(_log_error)
            self._started.set()
            runner.run(self._run())

    async def _run(self) -> None:
        try:
            await self._reach("")
            while not self._stopping:
                await self._turn()
        except Exception as error:  # noqa: BLE001 - every future passes it on
            self._error = error
        finally:
            await self._end()

    async def _end(self) -> None:
        """Give every open call a result, and release everything."""
        with self._lock:
            self._stopping = True
            self._jobs.open.update(self._inbox)
            self._inbox.clear()
        for call in self._jobs.open:
            if self._error is not None and not call.future.done():
                call.future.set_exception(self._error)
            call.future.cancel()
        self._session.cancel()
        if self._session.connection is not None:
            await self._session.connection.close()
        await self._jobs.close()

    async def _turn(self) -> None:
        session = self._session
        with contextlib.suppress(TimeoutError):
            # `wait_for` would make a task for each turn
            async with asyncio.timeout(session.limits.look_s):
                await session.woken.wait()
        session.woken.clear()
        if session.bug is not None:
            raise session.bug
        if session.connection is None or session.connection.is_lost or session.lost:
            await self._reach(session.lost or "connection closed")
        for _ in range(min(len(self._inbox), _TAKEN_AT_ONCE)):
            self._jobs.take(self._inbox.popleft())
        self._roster.look()
        self._check_manned()
        if self._jobs.send(len(self._inbox) + self._following) or self._inbox:
            # the jobs go out, and results come in, before the next turn
            session.woken.set()
            await asyncio.sleep(0)
        self._jobs.send_late()

    def _check_manned(self) -> None:
        """Raise if there has been no worker to use for too long."""
        if (got := self._roster.problem(bool(self._jobs.open))) is not None:
            limit_s = self._session.limits.workers_s
            what = f"expected a worker to use at the scheduler {self._address} within {limit_s:g} s"
            raise PackageError(f"{what}{self._left()}", got=got)

    def _stop_connecting(self) -> None:
        # a scheduler that nobody waits for any more may be slow to refuse
        if self._connecting is not None:
            self._connecting.cancel()

    # -- the connection -----------------------------------------------------------------------------------------------

    async def _reach(self, why: str) -> None:
        """Connect, or connect again after the connection was lost, which `why` explains.

        Raises:
            PackageError: the scheduler cannot be reached within the limit.
        """
        session, limits = self._session, self._session.limits
        if why:
            session.build.tell(
                f"lost the scheduler at {self._address} ({why}): trying again for {limits.reconnect_s:g} s"
            )
        session.cancel()
        self._jobs.begin()
        self._roster.begin()
        session.lost = ""
        if session.connection is not None:
            await session.connection.close()
            session.connection = None
        until = time.monotonic() + limits.reconnect_s
        while not self._stopping:
            self._connecting = asyncio.ensure_future(self._connect())
            try:
                session.connection = await asyncio.wait_for(self._connecting, 2 * limits.connect_s)
                break
            except (LostError, TimeoutError) as error:
                got = str(error) or "no answer"
            except asyncio.CancelledError:
                # by `stop`
                return
            if time.monotonic() > until:
                raise PackageError(
                    f"expected a scheduler at {self._address}{self._left()}: start it, or build without --executor",
                    got=got,
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(session.woken.wait(), limits.look_s)
        # the time without a worker begins
        self._roster.begin()

    def _left(self) -> str:
        count = len(self._jobs.open) + len(self._inbox)
        return f" ({counted(count, 'variant')} missing; the cache has the others)" if count else ""


def _log_error(events: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that nothing waits for, unless it says that the scheduler's answer was late.

    Dask leaves futures of such waits behind, and then a build that succeeded would end with a `TimeoutError`.
    """
    if not ("future" in context and isinstance(context.get("exception"), TimeoutError)):
        events.default_exception_handler(context)
