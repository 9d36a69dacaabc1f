"""The jobs of a remote executor: variants that wait, jobs that workers have, and their results.

A job goes only to workers with the toolchain of the build. A job that a worker refused is sent again, one that killed its workers is divided,
and one that takes far too long gets a second copy. Variants that cannot travel are compiled on this machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Final

from nojit.aot.compile import job_runner
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.remote.batches import VARIANTS_MAX, Batches
from nojit.aot.remote.connection import Connection, KilledError, LostError, WorkerError
from nojit.aot.remote.messages import Job, MessageError, Other, Received, Refused, decode_results, encode_job
from nojit.aot.remote.roster import Roster
from nojit.aot.remote.session import Session
from nojit.aot.remote.workshop import mismatch
from nojit.aot.variants.variant import CompiledVariant, functions_of
from nojit.runtime.errors import CompileError, NojitError

__all__ = ["Call", "Jobs"]

# jobs of each thread: one runs, one is at hand
_JOBS_AHEAD: Final = 2
# at the end, when fewer jobs of a whole length wait for each thread: one that is at hand at one worker cannot go to another
_ENDING: Final = 0.3
_JOBS_AHEAD_ENDING: Final = 1.2
# jobs to send while there is no worker, so that a cluster that grows on demand starts some
_UNMANNED: Final = 8
# jobs of one turn: the first ones leave while the last ones are made
_SENT_AT_ONCE: Final = 50
_LATE_FACTOR: Final = 3
# refusals of one variant by workers that came after the last look
_REFUSALS_MAX: Final = 30


@dataclass(eq=False, slots=True)
class Group:
    """The facts that the variants of a job have in common. One for each combination of the first three."""

    place: SourcePlace
    arch: str
    names: tuple[str, ...]
    """Functions among constexprs."""
    captured: asyncio.Task[Captured] | None = None
    """The source closures; None until the first job is sent."""


@dataclass(eq=False, slots=True)
class Call:
    """One variant to compile, and the future of its result."""

    job: job_runner.Job
    future: Future[job_runner.Sealed] = field(default_factory=Future)
    refusals: int = 0
    """How many workers refused it."""


@dataclass(eq=False, slots=True)
class Sent:
    """A job that workers have: its calls, and the tasks that wait for its copies."""

    group: Group
    calls: list[Call]
    only: list[str] | None
    sent_at: float = field(default_factory=time.monotonic)
    names: list[str] = field(default_factory=list)
    is_copied: bool = False
    copies: set[asyncio.Task[None]] = field(default_factory=set)


class Jobs:
    """The jobs of a build. All methods but `ahead` are for the executor's thread.

    Args:
        session: state of the executor's thread.
        roster: the workers.
        name: prefix of the names of jobs, which no other build has.
    """

    def __init__(self, session: Session, roster: Roster, name: str) -> None:
        self._session = session
        self._roster = roster
        roster.looked = self._follow_workers
        self._name = name
        self.open: set[Call] = set()
        """The calls without a result."""
        self.count = 0
        """Number of jobs sent, copies included."""
        self._waiting: Batches[Group, Call] = Batches(session.limits.job_s)
        # in their order
        self._sent: dict[Sent, None] = {}
        self._groups: dict[tuple[SourcePlace, str, tuple[str, ...]], Group] = {}
        self._local: Executor | None = None
        self._checked_at = float("-inf")

    @property
    def ahead(self) -> int:
        """See `nojit.aot.remote.executor.RemoteExecutor.ahead`."""
        slots = max(self._roster.workers.slots, _UNMANNED)
        fitting = self._session.limits.job_s / max(self._waiting.mean_s, 1e-3)
        # beside the jobs that workers have, one for each thread; more would keep the processor from sending those
        return len(self.open) - len(self._waiting) + slots * max(1, min(VARIANTS_MAX, int(fitting)))

    def begin(self) -> None:
        """Queue again what the workers of a lost connection had."""
        for sent in self._sent:
            self._put_again(sent)
        self._sent.clear()

    async def close(self) -> None:
        """End the compilations of this machine, and captures that run."""
        for group in self._groups.values():
            if group.captured is not None:
                group.captured.cancel()
        if self._local is not None:
            await asyncio.to_thread(self._local.shutdown, cancel_futures=True)

    async def _follow_workers(self, connection: Connection) -> None:
        """Send the jobs of workers that have gone or keep silent to others."""
        workers = self._roster.workers
        for sent in [*self._sent]:
            if (
                sent.only is not None
                and workers.usable.isdisjoint(sent.only)
                and workers.threads.keys().isdisjoint(sent.only)
            ):
                # the scheduler would keep it for workers that never come back
                self._drop(sent)
                self._put_again(sent)
        if workers.silent:
            await self._send_silent(connection)

    def _put_again(self, sent: Sent) -> None:
        self._waiting.put_again(sent.group, [call for call in sent.calls if not call.future.done()])

    def take(self, call: Call) -> None:
        """Queue a variant, or compile it here if it cannot travel."""
        self.open.add(call)
        variant, place = call.job.variant, call.job.place
        if variant.line_info:
            self._compile_here(call, "its line info holds paths of this machine")
        elif any(value for name, value in variant.options if name == "extern_libs"):
            self._compile_here(call, "its extern_libs are files of this machine")
        else:
            names = tuple(sorted({function.name for _, function in functions_of(variant)}))
            facts = (place, variant.arch, names)
            group = self._groups.get(facts)
            if group is None:
                group = self._groups[facts] = Group(*facts)
            self._waiting.put(group, call)

    def send(self, coming: int) -> bool:
        """Send jobs as long as workers take some, but not too many at once; return whether more can be sent.

        `coming`: number of variants that will be taken later.
        """
        workers = self._roster.workers
        slots = workers.slots
        if not slots:
            # refused ones would not compile what others wait for
            slots = 0 if workers.threads or not workers.looked else _UNMANNED // _JOBS_AHEAD
        for _ in range(_SENT_AT_ONCE):
            if not len(self._waiting) or len(self._sent) >= self._most_sent(slots, coming):
                return False
            group, calls = self._waiting.take(slots, coming)
            sent = Sent(group, calls, self._roster.only())
            self._sent[sent] = None
            self._copy(sent)
        return True

    def _most_sent(self, slots: int, coming: int) -> float:
        """Return how many jobs the workers should have."""
        left_s = (len(self._waiting) + coming) * self._waiting.mean_s
        ending = left_s < _ENDING * slots * self._session.limits.job_s
        return _JOBS_AHEAD_ENDING * slots if ending else _JOBS_AHEAD * slots

    def _copy(self, sent: Sent) -> None:
        self.count += 1
        name = f"{self._name}-{self.count}"
        sent.names.append(name)
        assert self._session.connection is not None  # noqa: S101 - a turn begins with one
        task = self._session.spawn(self._follow(self._session.connection, sent, name, sent.only))
        sent.copies.add(task)
        task.add_done_callback(sent.copies.discard)

    async def _follow(self, connection: Connection, sent: Sent, name: str, only: list[str] | None) -> None:
        """Send one copy of a job and deal with its end."""
        try:
            message = await self._message(sent)
            answer = await connection.run(name, message, only)
            results = decode_results(answer, sent.group.arch)
        except LostError as error:
            # the scheduler cancels a job if it was restarted
            self._session.lose(str(error) or "it dropped a job")
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
                await self._send_elsewhere(sent, results)
            elif sent in self._sent:
                self._finish(sent, results)
        self._session.woken.set()

    async def _message(self, sent: Sent) -> bytes:
        """Return a job as bytes.

        Raises:
            NojitError: its source closures cannot be had.
        """
        group, compiler = sent.group, self._session.build.compiler
        if group.captured is None:
            # no task of the connection, since it serves after a reconnection, too
            group.captured = asyncio.ensure_future(
                asyncio.to_thread(compiler.captured, group.place, group.arch, group.names)
            )
        variants = tuple((call.job.key, call.job.variant) for call in sent.calls)
        # shielded: others wait for it, too
        closures = group.captured.result() if group.captured.done() else await asyncio.shield(group.captured)
        tools = await self._session.tools(group.arch)
        return encode_job(Job(self._session.build.setup, group.arch, tools, group.place.where, closures, variants))

    def _finish(self, sent: Sent, results: dict[str, Received]) -> None:
        self._drop(sent)
        left: list[Call] = []
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

    def _succeed(self, group: Group, call: Call, made: job_runner.Sealed) -> None:
        self._waiting.took(group, made.compiled.compile_ms / 1000)
        try:
            self._session.build.compiler.check_compiled(call.job.variant, made.compiled)
        except CompileError as error:
            self._compile_here(call, error.finding())
            return
        self.open.discard(call)
        if not call.future.done():
            call.future.set_result(made)

    def _fail(self, call: Call, error: Exception) -> None:
        self.open.discard(call)
        if not call.future.done():
            call.future.set_exception(error)

    def _located(self, group: Group, error: CompileError) -> CompileError:
        """Return a worker's error with the files of this machine in the place of the worker's names."""
        task = group.captured
        for name, file in task.result().files if task is not None and task.done() else ():
            error.where, error.log = error.where.replace(name, file), error.log.replace(name, file)
        return error

    def _drop(self, sent: Sent) -> None:
        """Forget a job that is done or failed, and cancel its other copies."""
        self._sent.pop(sent, None)
        current = asyncio.current_task()
        for task in [*sent.copies]:
            if task is not current:
                task.cancel()

    def _divide(self, sent: Sent, got: str) -> None:
        """Send each variant of a failed job again, on its own, so that only the one to blame fails."""
        if sent in self._sent:
            self._drop(sent)
            self._again(sent, [call for call in sent.calls if not call.future.done()], got)

    def _again(self, sent: Sent, calls: list[Call], got: str) -> None:
        if len(sent.calls) > 1:
            for call in calls:
                self._waiting.put_again(sent.group, [call])
            return
        for call in calls:
            what = "expected the compiler to finish; nojit build --keep-going builds the other variants"
            where = f"{call.job.place.where}: {call.job.variant.label()}"
            self._fail(call, CompileError(what, got=got, where=where))

    async def _send_elsewhere(self, sent: Sent, refused: Refused) -> None:
        """Send a job again that a worker refused, which had come after the last look."""
        arch = sent.group.arch
        why = mismatch(self._session.build.setup.nojit, [(arch, await self._session.tools(arch))], refused.has)
        self._session.tell_once(f"a worker on {refused.has.host} is not used: {why}")
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
            self._roster.meet_again()

    def send_late(self) -> None:
        """Send a second copy of jobs that take far too long; give up those that take even longer."""
        now, limit, timeout_s = time.monotonic(), self._session.limits, self._session.build.setup.timeout_s
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
                self._session.spawn(self._copy_elsewhere(sent))

    async def _send_silent(self, connection: Connection) -> None:
        """Send the jobs of silent workers to others, too: Dask takes them away only after minutes."""
        places = await self._session.places(connection)
        for sent in [*self._sent]:
            # a copy without a place waits for its turn
            if all(places.get(name, "") in self._roster.workers.silent for name in sent.names):
                self._copy_to(sent, self._roster.workers.able)

    async def _copy_elsewhere(self, sent: Sent) -> None:
        """Send a copy of a job to workers that do not have the job."""
        assert self._session.connection is not None  # noqa: S101 - a turn begins with one
        places = await self._session.places(self._session.connection)
        self._copy_to(sent, self._roster.workers.able - {places.get(name, "") for name in sent.names})

    def _copy_to(self, sent: Sent, addresses: Collection[str]) -> None:
        # without an address, a worker that comes later may take it
        sent.is_copied = sent in self._sent and bool(addresses)
        if sent.is_copied:
            sent.only = sorted(addresses)
            self._copy(sent)

    # -- this machine -------------------------------------------------------------------------------------------------

    def _compile_here(self, call: Call, why: str) -> None:
        if call.future.done():
            return
        variant, place = call.job.variant, call.job.place
        self._session.tell_once(f"{variant.kernel} is compiled on this machine: {why}")
        if self._local is None:
            self._local = self._session.build.open_local()
        running = self._local.submit(self._session.build.compiler.compile_variant, variant, place)
        events = asyncio.get_running_loop()
        running.add_done_callback(lambda done: events.call_soon_threadsafe(self._compiled_here, call, done))

    def _compiled_here(self, call: Call, done: Future[CompiledVariant]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self.open.discard(call)
            if not call.future.done():
                call.future.set_result(job_runner.Sealed.of(call.job.key, done.result(), call.job.variant.arch))
        else:
            self._fail(call, error if isinstance(error, Exception) else RuntimeError(repr(error)))
