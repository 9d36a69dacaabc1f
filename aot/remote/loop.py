"""The thread of a remote executor: an event loop that sends jobs and reads results.

It bundles variants to jobs (`batches`), gives them only to workers with the toolchain of the build, sends a job again whose worker
refused it, divides a job that killed its workers, and sends a second copy of one that takes far too long. If the connection ends, it
connects again and sends again what is missing. Variants that cannot travel are compiled on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Final

from nojit.aot.compile import job_runner
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.plan.variant import CompiledVariant, functions_of
from nojit.aot.remote.batches import ROUNDS, VARIANTS_MAX, Batches
from nojit.aot.remote.build_facts import Build, Limits
from nojit.aot.remote.connection import Connection, KilledError, LostError, WorkerError
from nojit.aot.remote.messages import (
    Description,
    Job,
    MessageError,
    Other,
    Outcome,
    Refused,
    Tools,
    decode_description,
    decode_results,
    encode_job,
    encode_setup,
)
from nojit.aot.remote.workshop import mismatch
from nojit.runtime.base.wording import counted, few
from nojit.runtime.errors import CompileError, NojitError, PackageError

__all__ = ["Loop"]

# jobs of each thread: one runs, one is at hand
_JOBS_AHEAD: Final = 2
# at the end, when fewer jobs of a whole length wait for each thread: one that is at hand at one worker cannot go to another
_ENDING: Final = 2
_JOBS_AHEAD_ENDING: Final = 1.3
# jobs to send while there is no worker, so that a cluster that grows on demand starts some
_UNMANNED: Final = 8
_DESCRIBED_AT_ONCE: Final = 64
# variants and jobs of one turn: the first jobs leave while the last ones are made
_TAKEN_AT_ONCE: Final = 1000
_SENT_AT_ONCE: Final = 50
_NAMED_MAX: Final = 4
_LATE_FACTOR: Final = 3
# workers up to which Dask's heartbeats are as frequent as `Limits.silent_s` expects
_PROMPT: Final = 400
# refusals of one variant by workers that came after the last look
_REFUSALS_MAX: Final = 30


@dataclass(eq=False, slots=True)
class _Group:
    """The facts that the variants of a job have in common. One for each combination of the first three."""

    place: SourcePlace
    arch: str
    names: tuple[str, ...]
    """Functions among constexprs."""
    captured: asyncio.Task[Captured] | None = None
    """The source closures; None until the first job is sent."""


@dataclass(eq=False, slots=True)
class _Call:
    """One variant to compile, and the future of its result."""

    job: job_runner.Job
    future: Future[CompiledVariant] = field(default_factory=Future)
    refusals: int = 0
    """How many workers refused it."""


@dataclass(eq=False, slots=True)
class _Sent:
    """A job that workers have: its calls, and the tasks that wait for its copies."""

    group: _Group
    calls: list[_Call]
    only: list[str] | None
    sent_at: float = field(default_factory=time.monotonic)
    names: list[str] = field(default_factory=list)
    is_copied: bool = False
    copies: set[asyncio.Task[None]] = field(default_factory=set)


@dataclass(slots=True)
class _Workers:
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

    def settle(self) -> None:
        """Count again. Call after each change."""
        self.able = frozenset(self.usable & self.threads.keys() - self.silent)
        self.slots = sum(self.threads[address] for address in self.able)


class Loop:
    """The thread of an executor, and all state that only this thread uses."""

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], address: str, build: Build, limits: Limits
    ) -> None:
        self._connect = connect
        self._address = address
        self._build = build
        self._limits = limits
        self._name = f"nojit-{uuid.uuid4().hex[:12]}"
        self._archs: tuple[str, ...] = ()
        self._inbox: deque[_Call] = deque()
        # variants that the build has not handed in yet
        self._following = 0
        self._open: set[_Call] = set()
        self._waiting: Batches[_Group, _Call] = Batches(limits.job_s)
        # in their order
        self._sent: dict[_Sent, None] = {}
        self._workers = _Workers()
        self._groups: dict[tuple[SourcePlace, str, tuple[str, ...]], _Group] = {}
        self._tools: dict[str, Tools] = {}
        self._told: set[str] = set()
        self._count = 0
        self._connection: Connection | None = None
        self._connecting: asyncio.Future[Connection] | None = None
        self._local: Executor | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._error: Exception | None = None
        self._bug: BaseException | None = None
        self._unmanned_since = time.monotonic()
        self._looked_at = self._checked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._lost = ""
        self._stopping = False
        self._lock = threading.Lock()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="nojit-remote", daemon=True)

    # -- called by other threads -------------------------------------------------------------------------------------

    @property
    def ahead(self) -> int:
        """See `nojit.aot.remote.executor.RemoteExecutor.ahead`."""
        slots = max(self._workers.slots, _UNMANNED)
        fitting = self._limits.job_s / max(self._waiting.mean_s, 1e-3)
        # beside the jobs that workers have, as many variants as make whole jobs, and results that nobody has read yet
        return (_JOBS_AHEAD + ROUNDS + 1) * slots * max(1, min(VARIANTS_MAX, int(fitting)))

    def expect(self, archs: tuple[str, ...]) -> None:
        """See `nojit.aot.remote.executor.RemoteExecutor.expect`."""
        self._archs = archs
        with contextlib.suppress(RuntimeError):
            self._events.call_soon_threadsafe(self._expecting.set)

    @property
    def slots(self) -> int:
        """See `nojit.aot.remote.executor.RemoteExecutor.slots`."""
        return self._workers.slots

    @property
    def jobs_sent(self) -> int:
        """See `nojit.aot.remote.executor.RemoteExecutor.jobs_sent`."""
        return self._count

    def start(self) -> None:
        """Start the thread; return once it runs."""
        self._thread.start()
        self._started.wait()

    def put(self, job: job_runner.Job, following: int) -> Future[CompiledVariant]:
        """See `nojit.aot.remote.executor.RemoteExecutor.submit_job`."""
        call = _Call(job)
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
            self._events.call_soon_threadsafe(self._woken.set)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            self._events = runner.get_loop()
            self._woken, self._expecting = asyncio.Event(), asyncio.Event()
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
            self._open.update(self._inbox)
            self._inbox.clear()
        for call in self._open:
            if self._error is not None and not call.future.done():
                call.future.set_exception(self._error)
            call.future.cancel()
        captured = [group.captured for group in self._groups.values() if group.captured is not None]
        for task in [*self._tasks, *captured]:
            task.cancel()
        if self._connection is not None:
            await self._connection.close()
        if self._local is not None:
            await asyncio.to_thread(self._local.shutdown, cancel_futures=True)

    async def _turn(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), self._limits.look_s)
        self._woken.clear()
        if self._bug is not None:
            raise self._bug
        if self._connection is None or self._connection.is_lost or self._lost:
            await self._reach(self._lost or "connection closed")
        for _ in range(min(len(self._inbox), _TAKEN_AT_ONCE)):
            self._take(self._inbox.popleft())
        self._look()
        self._check_manned()
        if self._send() or self._inbox:
            # the jobs go out, and results come in, before the next turn
            self._woken.set()
            await asyncio.sleep(0)
        self._send_late()

    def _stop_connecting(self) -> None:
        # a scheduler that nobody waits for any more may be slow to refuse
        if self._connecting is not None:
            self._connecting.cancel()

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # an error of this module must end the build, or it would wait forever
            self._bug = self._bug or error
            self._woken.set()

    # -- the connection -----------------------------------------------------------------------------------------------

    async def _reach(self, why: str) -> None:
        """Connect, or connect again after the connection was lost, which `why` explains.

        Raises:
            PackageError: the scheduler cannot be reached within the limit.
        """
        if why:
            self._build.tell(
                f"lost the scheduler at {self._address} ({why}): trying again for {self._limits.reconnect_s:g} s"
            )
        for task in self._tasks:
            task.cancel()
        for sent in self._sent:
            self._waiting.put_again(sent.group, [call for call in sent.calls if not call.future.done()])
        self._sent.clear()
        self._workers, self._looking, self._lost = _Workers(), None, ""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        until = time.monotonic() + self._limits.reconnect_s
        while not self._stopping:
            self._connecting = asyncio.ensure_future(self._connect())
            try:
                self._connection = await asyncio.wait_for(self._connecting, 2 * self._limits.connect_s)
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
                await asyncio.wait_for(self._woken.wait(), self._limits.look_s)
        self._unmanned_since = time.monotonic()
        self._looked_at = float("-inf")

    def _left(self) -> str:
        count = len(self._open) + len(self._inbox)
        return f" ({counted(count, 'variant')} missing; the cache has the others)" if count else ""

    # -- workers ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        due = self._looked_at + self._limits.look_s * max(1, len(self._workers.threads) / 200)
        if self._looking is None and time.monotonic() >= due and self._connection is not None:
            self._looking = self._spawn(self._look_at(self._connection))

    async def _look_at(self, connection: Connection) -> None:
        """Ask which workers there are, and ask new ones what they have."""
        try:
            known = await asyncio.wait_for(connection.workers(), self._limits.answer_s)
        except (LostError, TimeoutError) as error:
            self._lost = str(error) or f"no answer within {self._limits.answer_s:g} s"
            self._woken.set()
            return
        workers = self._workers
        threads = {address: count for address, (count, _) in known.items()}
        silent_s = self._limits.silent_s * max(1, len(threads) / _PROMPT)
        workers.threads, workers.looked = threads, True
        workers.silent = {address for address, (_, silent) in known.items() if silent > silent_s}
        workers.asked &= threads.keys()
        workers.usable &= threads.keys()
        workers.settle()
        new = threads.keys() - workers.asked
        workers.asked |= new
        permits = asyncio.Semaphore(_DESCRIBED_AT_ONCE)
        for address in new:
            self._spawn(self._meet(connection, address, permits))
        for sent in [*self._sent]:
            if sent.only is not None and workers.usable.isdisjoint(sent.only) and not threads.keys() & set(sent.only):
                # the scheduler would keep it for workers that never come back
                self._drop(sent)
                self._waiting.put_again(sent.group, [call for call in sent.calls if not call.future.done()])
        if workers.silent:
            await self._send_silent(connection)
        self._looked_at, self._looking = time.monotonic(), None

    async def _tools_for(self, arch: str) -> Tools:
        if arch not in self._tools:
            self._tools[arch] = await asyncio.to_thread(self._build.compiler.toolchain, arch)
        return self._tools[arch]

    async def _meet(self, connection: Connection, address: str, permits: asyncio.Semaphore) -> None:
        """Ask a new worker what it has, and use or refuse it."""
        workers = self._workers
        try:
            async with permits:
                if not self._expecting.is_set():
                    # while the build plans, the worker imports Triton and reads its files
                    await self._ask(connection, address, self._build.archs)
            await self._expecting.wait()
            async with permits:
                has = await self._ask(connection, address, self._archs)
            tools = [(arch, await self._tools_for(arch)) for arch in self._archs]
            why, host = mismatch(self._build.setup.nojit, tools, has), has.host
        except LostError:
            workers.asked.discard(address)
            return
        except (WorkerError, MessageError) as error:
            why, host = f"expected an installed nojit {self._build.setup.nojit}, got {error}", ""
        except TimeoutError:
            why, host = f"expected an answer within {self._limits.describe_s:g} s", ""
        if why:
            self._refuse(address, why, host)
        else:
            workers.usable.add(address)
            workers.settle()
        self._woken.set()

    async def _ask(self, connection: Connection, address: str, archs: tuple[str, ...]) -> Description:
        question = encode_setup(self._build.setup, archs)
        return decode_description(
            await asyncio.wait_for(connection.describe(address, question), self._limits.describe_s)
        )

    def _refuse(self, address: str, why: str, host: str) -> None:
        workers = self._workers
        workers.usable.discard(address)
        workers.settle()
        if address not in workers.refused:
            workers.refused[address] = why
            name = f"{address} on {host}" if host else address
            self._build.tell(f"the worker {name} is not used: {why}")

    def _check_manned(self) -> None:
        """Raise if there has been no worker to use for too long."""
        now = time.monotonic()
        if self._workers.able or not self._open:
            self._unmanned_since = now
        elif now - self._unmanned_since > self._limits.workers_s:
            reasons = [f"{address}: {why}" for address, why in sorted(self._workers.refused.items())]
            got = few(reasons, _NAMED_MAX) or "none"
            what = f"expected a worker to use at the scheduler {self._address} within {self._limits.workers_s:g} s"
            raise PackageError(f"{what}{self._left()}", got=got)

    def _only(self) -> list[str] | None:
        """Return the workers that may get a job; None for all."""
        workers = self._workers
        others = workers.threads.keys() - workers.usable
        # a list makes the scheduler slower, and a cluster without workers needs jobs to start some
        return sorted(workers.able or workers.usable) if others else None

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _take(self, call: _Call) -> None:
        self._open.add(call)
        variant, place = call.job.variant, call.job.place
        if variant.line_info:
            self._compile_here(call, "its line info holds paths of this machine")
        elif dict(variant.options).get("extern_libs"):
            self._compile_here(call, "its extern_libs are files of this machine")
        else:
            names = tuple(sorted({function.name for _, function in functions_of(variant)}))
            facts = (place, variant.arch, names)
            group = self._groups.get(facts)
            if group is None:
                group = self._groups[facts] = _Group(*facts)
            self._waiting.put(group, call)

    def _send(self) -> bool:
        """Send jobs as long as workers take some, but not too many at once; return whether more can be sent."""
        workers = self._workers
        slots = workers.slots
        if not slots:
            # refused ones would not compile what others wait for
            slots = 0 if workers.threads or not workers.looked else _UNMANNED // _JOBS_AHEAD
        for _ in range(_SENT_AT_ONCE):
            following = len(self._inbox) + self._following
            if not len(self._waiting) or len(self._sent) >= self._most_sent(slots, following):
                return False
            group, calls = self._waiting.take(slots, following)
            sent = _Sent(group, calls, self._only())
            self._sent[sent] = None
            self._copy(sent)
        return True

    def _most_sent(self, slots: int, following: int) -> float:
        """Return how many jobs the workers should have."""
        left_s = (len(self._waiting) + following) * self._waiting.mean_s
        ending = left_s < _ENDING * slots * self._limits.job_s
        return _JOBS_AHEAD_ENDING * slots if ending else _JOBS_AHEAD * slots

    def _copy(self, sent: _Sent) -> None:
        self._count += 1
        name = f"{self._name}-{self._count}"
        sent.names.append(name)
        assert self._connection is not None  # noqa: S101 - a turn begins with one
        task = self._spawn(self._follow(self._connection, sent, name, sent.only))
        sent.copies.add(task)
        task.add_done_callback(sent.copies.discard)

    async def _follow(self, connection: Connection, sent: _Sent, name: str, only: list[str] | None) -> None:
        """Send one copy of a job and deal with its end."""
        try:
            message = await self._message(sent)
            answer = await connection.run(name, message, only)
            results = decode_results(answer, sent.group.arch)
        except LostError as error:
            # the scheduler cancels a job if it was restarted
            self._lost = self._lost or str(error) or "it dropped a job"
        except KilledError as error:
            self._divide(sent, f"the end of each worker that compiled it, the last one {error}")
        except (WorkerError, MessageError) as error:
            self._divide(sent, str(error))
        except NojitError as error:
            for call in sent.calls:
                self._compile_here(call, error.finding())
            self._drop(sent)
        else:
            if isinstance(results, Refused):
                self._send_elsewhere(sent, results)
            elif sent in self._sent:
                self._finish(sent, results)
        self._woken.set()

    async def _message(self, sent: _Sent) -> bytes:
        """Return a job as bytes.

        Raises:
            NojitError: its source closures cannot be had.
        """
        group, compiler = sent.group, self._build.compiler
        if group.captured is None:
            # no task of the connection, since it serves after a reconnection, too
            group.captured = asyncio.ensure_future(
                asyncio.to_thread(compiler.captured, group.place, group.arch, group.names)
            )
        variants = tuple((call.job.key, call.job.variant) for call in sent.calls)
        # shielded: others wait for it, too
        closures = await asyncio.shield(group.captured)
        tools = await self._tools_for(group.arch)
        return encode_job(Job(self._build.setup, group.arch, tools, group.place.where, closures, variants))

    def _finish(self, sent: _Sent, results: dict[str, Outcome]) -> None:
        self._drop(sent)
        left: list[_Call] = []
        for call in sent.calls:
            outcome = results.get(call.job.key)
            if outcome is None:
                left.append(call)
            elif isinstance(outcome, Other):
                self._compile_here(call, outcome.why)
            elif isinstance(outcome, CompileError):
                self._fail(call, self._located(sent.group, outcome))
            else:
                self._succeed(sent.group, call, outcome)
        if left:
            self._again(sent, left, "an answer without its result")

    def _succeed(self, group: _Group, call: _Call, compiled: CompiledVariant) -> None:
        self._waiting.took(group, compiled.compile_ms / 1000)
        try:
            self._build.compiler.check_compiled(call.job.variant, compiled)
        except CompileError as error:
            self._compile_here(call, error.finding())
            return
        self._open.discard(call)
        if not call.future.done():
            call.future.set_result(compiled)

    def _fail(self, call: _Call, error: Exception) -> None:
        self._open.discard(call)
        if not call.future.done():
            call.future.set_exception(error)

    def _located(self, group: _Group, error: CompileError) -> CompileError:
        """Return a worker's error with the files of this machine in the place of the worker's names."""
        task = group.captured
        for name, file in task.result().files if task is not None and task.done() else ():
            error.where, error.log = error.where.replace(name, file), error.log.replace(name, file)
        return error

    def _drop(self, sent: _Sent) -> None:
        """Forget a job that is done or failed, and cancel its other copies."""
        self._sent.pop(sent, None)
        current = asyncio.current_task()
        for task in [*sent.copies]:
            if task is not current:
                task.cancel()

    def _divide(self, sent: _Sent, got: str) -> None:
        """Send each variant of a failed job again, on its own, so that only the one to blame fails."""
        if sent in self._sent:
            self._drop(sent)
            self._again(sent, [call for call in sent.calls if not call.future.done()], got)

    def _again(self, sent: _Sent, calls: list[_Call], got: str) -> None:
        if len(sent.calls) > 1:
            for call in calls:
                self._waiting.put_again(sent.group, [call])
            return
        for call in calls:
            what = "expected the compiler to finish; nojit build --keep-going builds the other variants"
            where = f"{call.job.place.where}: {call.job.variant.label()}"
            self._fail(call, CompileError(what, got=got, where=where))

    def _send_elsewhere(self, sent: _Sent, refused: Refused) -> None:
        """Send a job again that a worker refused, which had come after the last look."""
        arch = sent.group.arch
        why = mismatch(self._build.setup.nojit, [(arch, self._tools[arch])], refused.has)
        self._tell_once(f"a worker on {refused.has.host} is not used: {why}")
        if sent in self._sent:
            self._drop(sent)
            calls = [call for call in sent.calls if not call.future.done()]
            for call in calls:
                call.refusals += 1
            # a worker that says that it can and then refuses would get the job forever
            if any(call.refusals > _REFUSALS_MAX for call in calls):
                for call in calls:
                    self._compile_here(call, f"workers refused it {_REFUSALS_MAX} times: {why or 'without a reason'}")
                return
            self._waiting.put_again(sent.group, calls)
            # the next look meets all workers, also one that was changed since, and jobs are kept from it
            self._workers.asked.clear()
            self._looked_at = float("-inf")

    def _send_late(self) -> None:
        """Send a second copy of jobs that take far too long; give up those that take even longer."""
        now, limit, timeout_s = time.monotonic(), self._limits, self._build.setup.timeout_s
        if now < self._checked_at + limit.look_s:
            return
        self._checked_at = now
        # while others wait, a copy would cost them a worker
        least = timeout_s if len(self._waiting) else limit.late_s
        for sent in [*self._sent]:
            age = now - sent.sent_at
            if age <= limit.late_s:
                # those that follow were sent later
                break
            expected = self._waiting.expected_s(sent.group, len(sent.calls))
            if age > 2 * (len(sent.calls) + 1) * timeout_s + limit.late_s:
                self._divide(sent, f"no result within {age:.0f} s")
            elif not sent.is_copied and age > max(least, limit.late_s, _LATE_FACTOR * expected):
                sent.is_copied = True
                self._spawn(self._copy_elsewhere(sent))

    async def _send_silent(self, connection: Connection) -> None:
        """Send the jobs of silent workers to others, too: Dask takes them away only after minutes."""
        places = await self._places(connection)
        for sent in [*self._sent]:
            # a copy without a place waits for its turn
            if all(places.get(name, "") in self._workers.silent for name in sent.names):
                self._copy_to(sent, self._workers.able)

    async def _copy_elsewhere(self, sent: _Sent) -> None:
        """Send a copy of a job to workers that do not have the job."""
        assert self._connection is not None  # noqa: S101 - a turn begins with one
        places = await self._places(self._connection)
        self._copy_to(sent, self._workers.able - {places.get(name, "") for name in sent.names})

    def _copy_to(self, sent: _Sent, addresses: Collection[str]) -> None:
        # without an address, a worker that comes later may take it
        sent.is_copied = sent in self._sent and bool(addresses)
        if sent.is_copied:
            sent.only = sorted(addresses)
            self._copy(sent)

    async def _places(self, connection: Connection) -> Mapping[str, str]:
        with contextlib.suppress(LostError, TimeoutError):
            return await asyncio.wait_for(connection.places(), self._limits.answer_s)
        return {}

    # -- this machine -------------------------------------------------------------------------------------------------

    def _compile_here(self, call: _Call, why: str) -> None:
        if call.future.done():
            return
        variant, place = call.job.variant, call.job.place
        self._tell_once(f"{variant.kernel} is compiled on this machine: {why}")
        if self._local is None:
            self._local = self._build.open_local()
        running = self._local.submit(self._build.compiler.compile_variant, variant, place)
        running.add_done_callback(lambda done: self._events.call_soon_threadsafe(self._compiled_here, call, done))

    def _compiled_here(self, call: _Call, done: Future[CompiledVariant]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._open.discard(call)
            if not call.future.done():
                call.future.set_result(done.result())
        else:
            self._fail(call, error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._build.tell(text)
