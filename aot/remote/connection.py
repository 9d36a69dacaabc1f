"""The connection of a build to a Dask scheduler. All methods are for one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

from nojit.aot.remote import worker

__all__ = ["Connection", "DaskConnection", "KilledError", "LostError", "WorkerError"]

# Dask's own closing waits for an answer
_CLOSING_S: Final = 2.0


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

    async def threads(self) -> Mapping[str, int]:
        """Return the number of threads of each worker, by address.

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
        """Return the worker that has each job, by the name of the job.

        Raises:
            LostError: the scheduler does not answer.
        """

    async def close(self) -> None:
        """Cancel all jobs and close the connection."""


class DaskConnection:
    """A connection to a scheduler of Dask; `open` makes one.

    Args:
        client: an asynchronous client of Dask.
        run_job: function that the workers run.
    """

    def __init__(self, client: Any, run_job: Callable[[bytes], Any]) -> None:
        self._client = client
        self._run_job = run_job
        self._futures: dict[str, Any] = {}

    @classmethod
    async def open(
        cls, address: str, timeout_s: float, run_job: Callable[[bytes], Any] = worker.compile_job
    ) -> DaskConnection:
        """Connect to a scheduler.

        Args:
            address: Dask's address of the scheduler.
            timeout_s: time limit, in seconds.
            run_job: function that the workers run.

        Raises:
            LostError: the scheduler does not answer.
        """
        from distributed import Client  # noqa: PLC0415 - of an extra, and slow to import

        client: Any = Client(address, asynchronous=True, timeout=timeout_s, set_as_default=False, name="nojit")
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
        return cls(client, run_job)

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return str(self._client.status) != "running"

    async def threads(self) -> Mapping[str, int]:
        """See `Connection.threads`."""
        found: Mapping[str, int] = await self._ask(self._client.ncores)
        return found

    async def describe(self, address: str, question: bytes) -> bytes:
        """See `Connection.describe`."""
        try:
            answer = await self._client.run(worker.describe, question, workers=[address])
        except OSError as error:
            raise LostError(str(error)) from None
        except Exception as error:  # noqa: BLE001 - the worker's error, or that of unpickling there
            raise WorkerError(f"{type(error).__name__}: {error}") from None
        if address not in answer:
            raise LostError("no answer")
        return bytes(answer[address])

    async def run(self, name: str, job: bytes, only: Collection[str] | None) -> bytes:
        """See `Connection.run`."""
        from distributed import CancelledError  # noqa: PLC0415 - as above
        from distributed.scheduler import KilledWorker  # noqa: PLC0415 - as above

        try:
            future = self._client.submit(
                self._run_job, job, key=name, pure=False, workers=None if only is None else list(only)
            )
            self._futures[name] = future
            return bytes(await future)
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
        return {name: address for address, names in found.items() for name in names}

    async def close(self) -> None:
        """See `Connection.close`."""
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
