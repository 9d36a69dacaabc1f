"""Executor that compiles variants on the workers of a scheduler, and ends as a pool on one machine would.

A build submits one variant at a time (`job_runner.Job`); a job of a worker holds several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future

from nojit.aot.compile import job_runner
from nojit.aot.remote.build_facts import Build, Limits
from nojit.aot.remote.connection import Connection
from nojit.aot.remote.loop import Loop

__all__ = ["RemoteExecutor"]


class RemoteExecutor(job_runner.JobExecutor):
    """Executor that compiles the variants of a build on remote workers.

    Args:
        connect: opens a connection to the scheduler.
        address: the scheduler's address, for messages.
        build: the build.
        limits: time limits; None for the usual ones.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], address: str, build: Build, limits: Limits | None = None
    ) -> None:
        self._loop = Loop(connect, address, build, limits or Limits())
        self._loop.start()

    def expect(self, archs: Sequence[str]) -> None:
        """Name the archs of the variants that follow. Call before the first variant; workers are used from then on."""
        self._loop.expect(tuple(archs))

    @property
    def ahead(self) -> int:
        """Number of variants to submit at the same time so that no worker waits."""
        return self._loop.ahead

    @property
    def slots(self) -> int:
        """Number of threads of the workers that can be used."""
        return self._loop.slots

    @property
    def jobs_sent(self) -> int:
        """Number of jobs sent to workers so far, copies included."""
        return self._loop.jobs_sent

    def submit_job(self, job: job_runner.Job, following: int) -> Future[job_runner.Sealed]:
        """Queue a variant and return the future of its image; `following` is the number of variants that come after it."""
        return self._loop.put(job, following)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what the workers still have, and end the thread. Futures without a result are cancelled."""
        del cancel_futures
        self._loop.stop()
        if wait:
            self._loop.join()
