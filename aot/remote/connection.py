"""The connection of a build to a Dask scheduler. All methods are for one event loop.

A scheduler spends most of its time on messages and on bytes that pass through it. Jobs that are sent at the same time therefore share a
message, and `Results` takes the result of a job from its worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, Protocol

from nojit.aot.remote import worker
from nojit.aot.remote.ends import Ends
from nojit.aot.remote.results import GATHERING_S, Results

__all__ = ["Connection", "DaskConnection", "KilledError", "LostError", "WorkerError"]

# Dask's own closing waits for an answer
_CLOSING_S: Final = 2.0
# links to workers that stay open: Dask's own number, or more where the build may open more files than it needs for other things
_LINKS_MIN: Final = 512
_FILES: Final = 512
# before the next try to take a result
_AGAIN_S: Final = 0.2


class LostError(Exception):
    """Error: the scheduler cannot be reached, or no longer knows the build."""


class KilledError(Exception):
    """Error: several workers ended while they ran the same job. The message names the last one."""


class WorkerError(Exception):
    """Error: a worker raised an error that is no result, such as a missing installation of nojit."""


class Connection(Protocol):
    """A scheduler as a build sees it."""

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""

    async def workers(self) -> Mapping[str, tuple[int, float]]:
        """Return each worker by address: the number of its threads, and the seconds since it last spoke to the scheduler.

        Raises:
            LostError: the scheduler does not answer.
        """

    async def describe(self, address: str, question: bytes) -> bytes:
        """Return a worker's answer to a question.

        Raises:
            LostError: the worker is gone.
            WorkerError: the worker cannot answer.
        """

    async def run(self, name: str, job: bytes, only: Collection[str] | None) -> bytes:
        """Run a job and return its results.

        Args:
            name: name of the job, which no other job of any build has.
            job: the job.
            only: addresses of the workers that may run it; None for all.

        Raises:
            LostError: the connection has ended, or the job was cancelled.
            KilledError: the job's workers ended.
            WorkerError: the worker raised an error.
        """

    async def places(self) -> Mapping[str, str]:
        """Return the worker that has each job, or its result, by the name of the job.

        Raises:
            LostError: the scheduler does not answer.
        """

    async def close(self) -> None:
        """Cancel all jobs and close the connection."""


class DaskConnection:
    """A connection to a scheduler of Dask; `open` makes one.

    Args:
        client: an asynchronous client of Dask.
        run_job: function that runs a job on a worker.
        describe: function that answers a question there.
    """

    def __init__(self, client: Any, run_job: Callable[[bytes], Any], describe: Callable[[bytes], Any]) -> None:
        self._client = client
        self._run_job = run_job
        self._describe = describe
        self._futures: dict[str, Any] = {}
        self._ends = Ends()
        self._results = Results(client)
        self._unsent: list[tuple[str, bytes, tuple[str, ...] | None, asyncio.Future[Any]]] = []

    @classmethod
    async def open(
        cls,
        address: str,
        timeout_s: float,
        run_job: Callable[[bytes], Any] = worker.compile_job,
        describe: Callable[[bytes], Any] = worker.describe,
    ) -> DaskConnection:
        """Connect to a scheduler.

        Args:
            address: Dask's address of the scheduler.
            timeout_s: time limit, in seconds.
            run_job: function that runs a job on a worker.
            describe: function that answers a question there.

        Raises:
            LostError: the scheduler does not answer.
        """
        import dask.config  # of an extra, and slow to import

        # otherwise Dask estimates the size of each message, to pack large ones in a thread; it reads this when it is imported
        dask.config.set({"distributed.comm.offload": False})
        from distributed import Client

        client: Any = Client(
            address,
            asynchronous=True,
            timeout=timeout_s,
            set_as_default=False,
            name="nojit",
            connection_limit=max(_LINKS_MIN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _FILES),
        )
        try:
            await client
        except Exception as error:  # noqa: BLE001 - Dask raises many kinds, TypeError for a server of another protocol
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(timeout=_CLOSING_S), 2 * _CLOSING_S)
            raise LostError(f"{type(error).__name__}: {error}") from None
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(timeout=0), _CLOSING_S)
            raise
        return cls(client, run_job, describe)

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return str(self._client.status) != "running"

    async def workers(self) -> Mapping[str, tuple[int, float]]:
        """See `Connection.workers`."""
        found: Mapping[str, tuple[int, float]] = await self._ask(
            partial(self._client.run_on_scheduler, worker.known_workers)
        )
        return found

    async def describe(self, address: str, question: bytes) -> bytes:
        """See `Connection.describe`."""
        try:
            answer = await self._client.run(self._describe, question, workers=[address])
        except OSError as error:
            raise LostError(str(error)) from None
        except Exception as error:  # noqa: BLE001 - the worker's error, or that of unpickling there
            raise WorkerError(f"{type(error).__name__}: {error}") from None
        if address not in answer:
            raise LostError("no answer")
        self._results.meet(address)
        return bytes(answer[address])

    async def run(self, name: str, job: bytes, only: Collection[str] | None) -> bytes:
        """See `Connection.run`."""
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        try:
            future = self._futures[name] = await self._submit(name, job, only)
            while True:
                if await self._ends.of(future) != "finished":
                    # raises its error
                    return bytes(await future)
                if (result := await self._results.fetch(name)) is not None:
                    return result
                # the scheduler runs the job again if its worker has gone
                await asyncio.sleep(_AGAIN_S)
        except KilledWorker as error:
            last = getattr(error.last_worker, "address", "") or str(error.last_worker)
            raise KilledError(last) from None
        except (CancelledError, asyncio.CancelledError) as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise LostError(str(error)) from None
        except OSError as error:
            raise LostError(str(error)) from None
        except Exception as error:  # noqa: BLE001 - as above
            if self.is_lost:
                raise LostError(str(error)) from None
            raise WorkerError(f"{type(error).__name__}: {error}") from None
        finally:
            # its release tells the scheduler that nobody wants the result
            self._futures.pop(name, None)

    async def places(self) -> Mapping[str, str]:
        """See `Connection.places`."""
        found: Mapping[str, Collection[str]] = await self._ask(self._client.processing)
        return self._results.giving | {name: address for address, names in found.items() for name in names}

    async def close(self) -> None:
        """See `Connection.close`."""
        self._results.close()
        with contextlib.suppress(Exception):
            if not self.is_lost and self._futures:
                cancelling = self._client.cancel(list(self._futures.values()), force=True)
                await asyncio.wait_for(cancelling, _CLOSING_S)
        self._futures.clear()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._client.close(timeout=_CLOSING_S), 2 * _CLOSING_S)

    async def _ask(self, question: Callable[[], Any]) -> Any:
        if self.is_lost:
            # Dask would try to connect for half a minute
            raise LostError("connection closed")
        try:
            return await question()
        except Exception as error:  # noqa: BLE001 - as in `open`
            raise LostError(f"{type(error).__name__}: {error}") from None

    # -- jobs ---------------------------------------------------------------------------------------------------------

    async def _submit(self, name: str, job: bytes, only: Collection[str] | None) -> Any:
        """Send a job together with others, and return Dask's future of its result."""
        if not self._unsent:
            asyncio.get_running_loop().call_later(GATHERING_S, self._flush)
        sent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unsent.append((name, job, None if only is None else tuple(only), sent))
        return await sent

    def _flush(self) -> None:
        """Send the jobs of the last moments: one message for all that the same workers may run."""
        groups: defaultdict[tuple[str, ...] | None, list[tuple[str, bytes, asyncio.Future[Any]]]] = defaultdict(list)
        for name, job, only, sent in self._unsent:
            if not sent.cancelled():
                groups[only].append((name, job, sent))
        self._unsent.clear()
        for only, group in groups.items():
            names, jobs, waiting = zip(*group, strict=True)
            try:
                workers = None if only is None else list(only)
                futures = self._client.map(self._run_job, jobs, key=list(names), pure=False, workers=workers)
            except Exception as error:  # noqa: BLE001 - `run` tells them apart
                for sent in waiting:
                    sent.set_exception(error)
            else:
                for sent, future in zip(waiting, futures, strict=True):
                    sent.set_result(future)
