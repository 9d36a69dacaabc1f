"""The worker pool: what a call can do to its own process, and that nothing else notices."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import threading
import time
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest
from nojit.aot.compile.processes import pool as pool_module
from nojit.aot.compile.processes.pool import WorkerPool
from nojit.aot.compile.processes.process_main import read_message, write_message
from nojit.runtime.errors import CompileError

from tests.aot import pool_jobs

# only what hangs takes so long, however busy the machine is; tests that wait for it choose their own
TIMEOUT_S = 600
DEADLINE_MS = 300_000

pytestmark = pytest.mark.usefixtures("workers_find_tests")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Everything temporary goes here, and must be gone in the end; so must every child that the test started."""
    # other tests of this process keep helpers
    before = children()
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert children() <= before


def children() -> set[int]:
    """List this process's children, zombies too."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # the name may hold anything, and ends with the last bracket
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == os.getpid():
                found.add(int(entry.name))
    return found


class Teller:
    """Hears of the processes of a `pool_jobs.tell`, and of their end, without a sleep."""

    def __init__(self, folder: Path) -> None:
        self.fifo = str(folder / "fifo")
        os.mkfifo(self.fifo)
        # both ends: opening does not wait, and the other side's leaving is no end of file
        self._fd = os.open(self.fifo, os.O_RDWR)
        self._processes: list[int] = []

    def hear(self) -> None:
        """Wait until a job has told its process ids, and keep hold of the processes."""
        assert select.select([self._fd], [], [], DEADLINE_MS / 1000)[0], "no job told its process ids"
        for pid in os.read(self._fd, 100).split():
            try:
                self._processes.append(os.pidfd_open(int(pid)))
            except ProcessLookupError:
                self._processes.append(-1)

    def all_ended(self) -> bool:
        """Say whether worker and grandchild have ended, giving the kernel time to bring that about."""
        assert len(self._processes) == 2
        return all(
            process < 0 or select.select([process], [], [], DEADLINE_MS / 1000)[0] for process in self._processes
        )

    def close(self) -> None:
        """End what a failed test left running."""
        os.close(self._fd)
        for process in filter(lambda fd: fd >= 0, self._processes):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            os.close(process)


@pytest.fixture
def teller(tmp_path: Path):
    made = Teller(tmp_path)
    yield made
    made.close()


class TestResults:
    def test_of_many_calls(self):
        with WorkerPool(2, TIMEOUT_S) as pool:
            futures = [pool.submit(pool_jobs.add, i, 1) for i in range(50)]
            assert [future.result() for future in futures] == list(range(1, 51))

    def test_calls_share_processes_that_are_not_this_one(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            pids = {pool.submit(pool_jobs.pid).result() for _ in range(5)}
        assert len(pids) == 1
        assert pids != {os.getpid()}

    def test_workers_start_when_first_needed(self):
        before = children()
        with WorkerPool(4, TIMEOUT_S) as pool:
            assert children() == before
            pool.submit(pool_jobs.pid).result()
            assert len(children() - before) == 1

    def test_prints_do_not_get_between_the_answers(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            for text in ("a", "b" * 100_000, "\x08\0\0\0\0\0\0\0"):
                assert pool.submit(pool_jobs.chatter, text).result() == text

    def test_of_any_size_both_ways(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            assert len(pool.submit(pool_jobs.big, 5_000_000).result()) == 5_000_000
            assert pool.submit(pool_jobs.length, bytes(5_000_000)).result() == 5_000_000

    def test_leaving_waits_for_what_was_queued(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            futures = [pool.submit(pool_jobs.add, i, 0) for i in range(5)]
        assert [future.result(timeout=0) for future in futures] == list(range(5))


class TestExceptions:
    def test_arrive_with_all_their_facts(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            error = pool.submit(pool_jobs.refuse).exception()
        assert isinstance(error, CompileError)
        assert (str(error), error.log) == ("expected to compile, got nothing - at there", "line 1\nline 2")

    def test_of_any_type_and_the_worker_goes_on(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            before = pool.submit(pool_jobs.pid).result()
            assert isinstance(pool.submit(pool_jobs.stumble).exception(), ZeroDivisionError)
            assert pool.submit(pool_jobs.pid).result() == before

    def test_that_do_not_unpickle_fail_their_call_alone(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            assert isinstance(pool.submit(pool_jobs.raise_awkward).exception(), TypeError)
            assert pool.submit(pool_jobs.add, 1, 2).result() == 3

    def test_answers_and_arguments_that_do_not_pickle_fail_their_call_alone(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            assert pool.submit(pool_jobs.unpicklable).exception() is not None
            assert pool.submit(pool_jobs.add, threading.Lock(), 2).exception() is not None
            assert pool.submit(pool_jobs.add, 1, 2).result() == 3


class TestCrashes:
    @pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
    def test_fail_their_call_alone(self, number):
        with WorkerPool(2, TIMEOUT_S) as pool:
            futures = [pool.submit(pool_jobs.add, i, 0) for i in range(3)]
            crashed = pool.submit(pool_jobs.crash, number)
            futures += [pool.submit(pool_jobs.add, i, 0) for i in range(3, 6)]
            error = crashed.exception()
            assert isinstance(error, CompileError)
            assert (
                str(error)
                == f"expected the compiler to finish; nojit build --keep-going builds the other variants, got {number.name}"
            )
            assert [future.result() for future in futures] == list(range(6))

    def test_that_only_exit_are_told_with_their_last_words(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            error = pool.submit(pool_jobs.leave, 3).exception()
            assert isinstance(error, CompileError)
            assert (
                str(error)
                == "expected the compiler to finish; nojit build --keep-going builds the other variants, got exit code 3"
            )
            assert error.log == "last words\n"
            assert "exit code 5" in str(pool.submit(pool_jobs.leave_politely).exception())
            assert pool.submit(pool_jobs.add, 1, 2).result() == 3

    def test_every_worker_may_crash_again_and_again(self):
        with WorkerPool(2, TIMEOUT_S) as pool:
            crashes = [pool.submit(pool_jobs.crash, signal.SIGSEGV) for _ in range(6)]
            assert all(isinstance(future.exception(), CompileError) for future in crashes)
            assert pool.submit(pool_jobs.add, 1, 2).result() == 3

    def test_end_what_the_worker_had_started(self, teller):
        with WorkerPool(1, TIMEOUT_S) as pool:
            crashed = pool.submit(pool_jobs.tell, teller.fifo, "crash")
            teller.hear()
            assert "SIGSEGV" in str(crashed.exception())
            assert teller.all_ended()

    def test_a_worker_that_died_idle_is_replaced(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            process = os.pidfd_open(pool.submit(pool_jobs.pid).result())
            signal.pidfd_send_signal(process, signal.SIGKILL)
            assert select.select([process], [], [], DEADLINE_MS / 1000)[0]
            os.close(process)
            assert pool.submit(pool_jobs.add, 1, 2).result() == 3


class TestTimeouts:
    def test_end_the_call_and_what_it_started_and_nothing_else(self, teller):
        started = time.monotonic()
        with WorkerPool(1, TIMEOUT_S) as pool:
            pool.submit(pool_jobs.pid).result()
        # many times what a call takes on this machine now, a worker's start included
        limit = max(1, round(20 * (time.monotonic() - started)))
        with WorkerPool(2, limit) as pool:
            hanging = pool.submit(pool_jobs.tell, teller.fifo, "hang")
            teller.hear()
            others = [pool.submit(pool_jobs.add, i, 0) for i in range(5)]
            assert [future.result() for future in others] == list(range(5))
            assert not hanging.done()
            error = hanging.exception()
            assert isinstance(error, CompileError)
            assert (
                str(error)
                == f"expected to compile within {limit} s; nojit build --timeout S allows longer, got no result"
            )
            assert teller.all_ended()
            assert pool.submit(pool_jobs.add, 1, 2).result() == 3


class TestAbandoning:
    def test_ends_the_call_and_what_it_started_and_others_go_on(self, teller):
        with WorkerPool(1, TIMEOUT_S) as pool:
            hanging = pool.submit(pool_jobs.tell, teller.fifo, "hang")
            queued = pool.submit(pool_jobs.crash, signal.SIGSTOP)
            teller.hear()
            pool.abandon([hanging, queued])
            assert isinstance(hanging.exception(), CompileError)
            assert queued.cancelled()
            assert teller.all_ended()
            assert pool.submit(pool_jobs.add, 1, 2).result() == 3

    def test_leaves_processes_of_other_calls(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            done = pool.submit(pool_jobs.pid)
            first = done.result()
            for _ in range(20):
                pool.abandon([done])
                assert pool.submit(pool_jobs.pid).result() == first


class Stop(BaseException):
    """Stands for Ctrl-C: not an Exception."""


class TestLeaving:
    def test_by_an_exception_ends_everything_at_once(self, teller):
        def stop() -> None:
            with WorkerPool(2, TIMEOUT_S) as pool:
                futures.append(pool.submit(pool_jobs.tell, teller.fifo, "hang"))
                futures.append(pool.submit(pool_jobs.add, 1, 2))
                teller.hear()
                wait(futures[1:])
                futures.extend(pool.submit(pool_jobs.crash, signal.SIGSTOP) for _ in range(3))
                raise Stop

        futures = []
        with pytest.raises(Stop):
            stop()
        assert teller.all_ended()
        assert all(future.done() for future in futures)
        assert futures[1].result() == 3
        assert isinstance(futures[0].exception(), CompileError)

    def test_cancels_what_was_queued(self):
        pool = WorkerPool(1, TIMEOUT_S)
        futures = [pool.submit(pool_jobs.crash, signal.SIGSTOP) for _ in range(3)]
        pool.shutdown(cancel_futures=True)
        assert all(future.done() for future in futures)
        for future in futures[1:]:
            with pytest.raises(CancelledError):
                future.result()

    def test_never_starts_a_worker_that_nobody_ends(self, monkeypatch):
        """A keeper that has taken a call, but has not started its worker yet, when the pool is shut down."""
        at_the_door, killed = threading.Event(), threading.Event()
        running, kill = pool_module._Keeper._running, pool_module._Keeper.kill

        def wait_at_the_door(self, *job):
            at_the_door.set()
            assert killed.wait(DEADLINE_MS / 1000)
            return running(self, *job)

        def kill_and_tell(self):
            kill(self)
            killed.set()

        monkeypatch.setattr(pool_module._Keeper, "_running", wait_at_the_door)
        monkeypatch.setattr(pool_module._Keeper, "kill", kill_and_tell)
        pool = WorkerPool(1, TIMEOUT_S)
        future = pool.submit(pool_jobs.crash, signal.SIGSTOP)
        assert at_the_door.wait(DEADLINE_MS / 1000)
        pool.shutdown(cancel_futures=True)
        with pytest.raises(CancelledError):
            future.result(timeout=0)

    def test_twice_is_fine(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            pool.submit(pool_jobs.pid).result()
            pool.shutdown(cancel_futures=True)

    def test_unused_is_fine(self):
        with WorkerPool(3, TIMEOUT_S):
            pass

    def test_what_jobs_left_in_their_temporary_folder_goes(self, temporary):
        with WorkerPool(1, TIMEOUT_S) as pool:
            folder = Path(pool.submit(pool_jobs.scratch_folder).result())
            assert folder.is_relative_to(temporary)
        assert not folder.exists()


class TestSubmitting:
    def test_after_the_end_is_refused(self):
        with WorkerPool(1, TIMEOUT_S) as pool:
            pass
        with pytest.raises(RuntimeError, match="expected an open pool, got one that was shut down"):
            pool.submit(pool_jobs.pid)

    def test_takes_positional_arguments_only(self):
        with (
            WorkerPool(1, TIMEOUT_S) as pool,
            pytest.raises(TypeError, match="expected positional arguments only, got right"),
        ):
            pool.submit(pool_jobs.add, 1, right=2)


class TestMessages:
    def test_round_trip_and_end_of_file(self):
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as reader:
            with os.fdopen(writing, "wb") as writer:
                write_message(writer, {"a": [1, b"\0"]})
                write_message(writer, None)
            assert read_message(reader) == {"a": [1, b"\0"]}
            assert read_message(reader) is None
            with pytest.raises(EOFError):
                read_message(reader)

    @pytest.mark.parametrize("missing", [1, 5, 20])
    def test_cut_short(self, missing, tmp_path):
        path = tmp_path / "message"
        with path.open("wb") as writer:
            write_message(writer, "something of a certain length")
        path.write_bytes(path.read_bytes()[:-missing])
        with path.open("rb") as reader, pytest.raises(EOFError):
            read_message(reader)
