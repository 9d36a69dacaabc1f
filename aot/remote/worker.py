"""The functions that other machines run for a build.

A worker runs `describe`, which says what it has, and `compile_job`, which compiles; both take and return bytes. It runs `collect`, which
fetches results of other workers for the build. The scheduler runs `known_workers`.

A worker needs an installed nojit with the extra ``farm``, and nothing else: no checkout, no shared disk, no configuration of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nojit.aot.remote.messages import (
    Description,
    decode_job,
    decode_setup,
    encode_description,
    encode_refusal,
    encode_results,
)
from nojit.aot.remote.workshop import Workshops, mismatch
from nojit.runtime.errors import NojitError

__all__ = ["collect", "compile_job", "describe", "known_workers"]

_SHOPS = Workshops()
# for the results of one other worker: those of all others wait for them
_FETCH_S: Final = 2.0


async def describe(question: bytes, dask_worker: Any = None) -> bytes:
    """Return what this worker has, and start the processes that the first job needs.

    Args:
        question: the archs, as a message.
        dask_worker: the worker, which Dask passes.

    Raises:
        MessageError: the question has another form.
    """
    setup, archs = decode_setup(question)
    threads = dask_worker.state.nthreads if dask_worker else _threads()

    def ask() -> Description:
        try:
            with _SHOPS.open(setup, threads) as shop:
                return shop.describe(archs)
        except (NojitError, OSError) as error:
            return Description("", platform.node(), {}, str(error))

    # the worker must go on talking to the scheduler while Triton is imported
    return encode_description(await asyncio.to_thread(ask))


def compile_job(message: bytes) -> bytes:
    """Compile a job and return its results, or a refusal if this worker has another toolchain.

    Args:
        message: the job.

    Raises:
        MessageError: the job has another form.
    """
    job = decode_job(message)
    threads, stopped = _task()
    with _SHOPS.open(job.setup, threads) as shop:
        has = shop.describe((job.arch,))
        if mismatch(job.setup.nojit, ((job.arch, job.tools),), has):
            return encode_refusal(has)
        return encode_results(shop.compile(job, stopped), job.arch)


async def collect(places: Mapping[str, str], dask_worker: Any = None) -> dict[str, bytes]:
    """Return results that this worker and others hold, so that the build reads one message instead of many.

    A result is missing if its worker does not give it in time.

    Args:
        places: address of the worker that holds each result, by the name of the job.
        dask_worker: this worker, which Dask passes.
    """
    by_address: defaultdict[str, list[str]] = defaultdict(list)
    for name, address in places.items():
        by_address[address].append(name)
    found: dict[str, bytes] = {}
    for results in await asyncio.gather(*(_take(dask_worker, *each) for each in by_address.items())):
        found.update(results)
    return found


async def _take(dask_worker: Any, address: str, names: Sequence[str]) -> dict[str, bytes]:
    from distributed.worker import get_data_from_worker  # of an extra, and slow to import

    if address == dask_worker.address:
        return {name: dask_worker.data[name] for name in names if name in dask_worker.data}
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_FETCH_S):
            answer: Any = await get_data_from_worker(dask_worker.rpc, names, address, who=dask_worker.address)
            # a busy worker gives no data
            return dict(answer.get("data", {}))
    return {}


def known_workers(dask_scheduler: Any) -> dict[str, tuple[int, float]]:
    """Return the number of threads of each worker, and the seconds since its last heartbeat, by address.

    `dask_scheduler`: the scheduler, which Dask passes.
    """
    from distributed.metrics import time  # of an extra, and slow to import

    now = time()
    return {address: (known.nthreads, now - known.last_seen) for address, known in dask_scheduler.workers.items()}


def _task() -> tuple[int, Callable[[], bool]]:
    """Return the number of the worker's threads, and a function that tells whether the scheduler has dropped this task."""
    from distributed import get_worker  # of an extra, and slow to import

    try:
        worker = get_worker()
    except ValueError:
        return _threads(), lambda: False
    key = worker.get_current_task()

    def stopped() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return worker.state.nthreads, stopped


def _threads() -> int:
    return len(os.sched_getaffinity(0))
