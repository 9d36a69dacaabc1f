"""A scheduler in memory: its workers compile with the fake compiler, or suffer what a test asks for."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import msgspec
from nojit.aot.compile import job_runner
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.remote.build_facts import Build, Limits
from nojit.aot.remote.connection import LostError
from nojit.aot.remote.executor import RemoteExecutor
from nojit.aot.remote.messages import (
    Description,
    Job,
    Outcome,
    Setup,
    decode_job,
    encode_description,
    encode_refusal,
    encode_results,
)
from nojit.aot.remote.workshop import mismatch
from nojit.aot.variants.expand import expand_kernel
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime.errors import CompileError, ManifestError

from tests.aot.fake_compiler import FakeCompiler, FakeSource

__all__ = ["JOBS", "NOJIT", "Cluster", "FakeBuild", "Worker", "job", "key_of", "until"]

NOJIT = "0.1.0 (0123456789ab)"
SPEC = msgspec.convert(
    {"name": "k", "source": "demo:k", "params": {"x": "*fp16"}, "matrix": {"D": list(range(40))}}, KernelSpec
)
VARIANTS = expand_kernel(SPEC, "sm_90", "here").variants
PLACE = SourcePlace("demo:k", Path("/nowhere"), "demo.toml kernel k")
CAPTURED = Captured("0" * 64, (), (("0" * 64, b'{"definitions":[]}'),), (("<demo:k:1>", "/src/demo.py"),))
# a busy machine makes honest jobs late: only tests of late jobs have a short `late_s`
LIMITS = Limits(look_s=0.01, late_s=60, reconnect_s=5, workers_s=5)

Answer = Callable[[Job, str], Any]


def key_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def until(holds: Callable[[], Any], limit_s: float = 30) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "expected the condition to hold in time"
        time.sleep(0.001)


def job(number: int, **changed: Any) -> job_runner.Job:
    return job_runner.Job(replace(VARIANTS[number], **changed), PLACE, key_of(number))


JOBS = [job(number) for number in range(len(VARIANTS))]


@dataclass
class Worker:
    """A worker: what it has, and what it does instead of compiling."""

    threads: int = 1
    nojit: str = NOJIT
    version: str = "1.0"
    problem: str = ""
    silent_s: float = 0.0
    act: Answer | None = None
    """Called with a job and its name; returns results or bytes, or an awaitable of either, or None to compile."""

    def description(self) -> Description:
        return Description(self.nojit, "host", {"sm_90": (("fake", self.version),)}, self.problem)


@dataclass
class Cluster:
    """The scheduler. Each job goes to the worker with the fewest."""

    compiler: FakeCompiler
    workers: dict[str, Worker]
    reachable: bool = True
    connections: list[Connection] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Number of variants of each job that was run."""
    onlys: list[Collection[str] | None] = field(default_factory=list)

    async def connect(self) -> Connection:
        if not self.reachable:
            raise LostError("connection refused")
        self.connections.append(Connection(self))
        return self.connections[-1]

    def lose(self, *, reachable: bool) -> None:
        """End all connections, as if the scheduler had ended."""
        self.reachable = reachable
        for connection in self.connections:
            connection.lost = True
            for task in connection.tasks:
                task.cancel("lost")


class Connection:
    """Implements `nojit.aot.remote.connection.Connection`."""

    def __init__(self, cluster: Cluster) -> None:
        self.lost = False
        self.closed = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.running: dict[str, str] = {}
        self._cluster = cluster

    @property
    def is_lost(self) -> bool:
        return self.lost

    async def workers(self) -> Mapping[str, tuple[int, float]]:
        self._check()
        return {address: (worker.threads, worker.silent_s) for address, worker in self._cluster.workers.items()}

    async def describe(self, address: str, question: bytes) -> bytes:
        self._check()
        worker = self._cluster.workers.get(address)
        if worker is None:
            raise LostError("no such worker")
        return encode_description(worker.description())

    async def run(self, name: str, job: bytes, only: Collection[str] | None) -> bytes:
        self._check()
        decoded = decode_job(job)
        self._cluster.sizes.append(len(decoded.variants))
        self._cluster.onlys.append(only)
        while not (fit := [each for each in self._cluster.workers if only is None or each in only]):  # noqa: ASYNC110 - as a scheduler waits
            await asyncio.sleep(0.01)
        busy = list(self.running.values())
        self.running[name] = min(fit, key=busy.count)
        task = asyncio.ensure_future(self._work(self._cluster.workers[self.running[name]], decoded, name))
        self.tasks.add(task)
        try:
            answer = await task
        except asyncio.CancelledError:
            if not self.lost:
                raise
            raise LostError("connection closed") from None
        finally:
            task.cancel()
            self.tasks.discard(task)
            del self.running[name]
        return answer if isinstance(answer, bytes) else encode_results(answer, decoded.arch)

    async def places(self) -> Mapping[str, str]:
        self._check()
        return dict(self.running)

    async def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.lost:
            raise LostError("connection closed")

    async def _work(self, worker: Worker, job: Job, name: str) -> Any:
        if mismatch(job.setup.nojit, ((job.arch, job.tools),), has := worker.description()):
            return encode_refusal(has)
        done = worker.act(job, name) if worker.act else None
        if asyncio.iscoroutine(done):
            done = await done
        return [(key, self._compiled(variant)) for key, variant in job.variants] if done is None else done

    def _compiled(self, variant: Variant) -> Outcome:
        try:
            return self._cluster.compiler.compile_variant(variant, PLACE)
        except CompileError as error:
            return error


class FakeBuild:
    """A build whose executor works on a cluster. Use as a context manager."""

    def __init__(self, folder: Path, workers: Mapping[str, Worker], limits: Limits = LIMITS, **mishaps: str) -> None:
        self.compiler = FakeCompiler(
            folder / "remote",
            {"demo:k": FakeSource(("x",), ("D",))},
            mishaps={f"D={place[1:]} ": mishap for place, mishap in mishaps.items()},
        )
        self.here = FakeCompiler(folder / "here", self.compiler.sources)
        self.cluster = Cluster(self.compiler, dict(workers))
        self.told: list[str] = []
        self.unread = ""
        """Why the closures cannot be captured; empty if they can."""
        self._limits = limits
        self._local = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        build = Build(self, Setup(NOJIT, None, 60.0), ("sm_90",), lambda: self._local, self.told.append)
        self.executor = RemoteExecutor(self.cluster.connect, "tcp://scheduler:8786", build, self._limits)
        self.executor.expect(["sm_90"])
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.shutdown(cancel_futures=True)

    def submit(self, *jobs: job_runner.Job) -> list[Future[job_runner.Sealed]]:
        """Hand in jobs, and let the executor see none before it can see all."""
        handed_in = threading.Event()
        with contextlib.suppress(RuntimeError):
            self.executor._loop._events.call_soon_threadsafe(handed_in.wait)
        try:
            return [self.executor.submit_job(each, len(jobs) - number) for number, each in enumerate(jobs, 1)]
        finally:
            handed_in.set()

    def wait_for_workers(self) -> None:
        """Wait until the executor has met all workers."""
        until(lambda: self.executor.slots == sum(worker.threads for worker in self.cluster.workers.values()))

    def images(self, *jobs: job_runner.Job) -> list[bytes]:
        """Compile jobs and return their images."""
        return [future.result(30).compiled.image for future in self.submit(*jobs)]

    # the compiler of the build

    def captured(self, place: SourcePlace, arch: str, names: Any) -> Captured:
        if self.unread:
            raise ManifestError(self.unread, where=place.where)
        return CAPTURED

    def toolchain(self, arch: str) -> tuple[tuple[str, str], ...]:
        return self.here.toolchain(arch)

    def check_compiled(self, variant: Variant, compiled: CompiledVariant) -> None:
        self.here.check_compiled(variant, compiled)

    @property
    def compile_variant(self) -> Callable[[Variant, SourcePlace], CompiledVariant]:
        return self.here.compile_variant
