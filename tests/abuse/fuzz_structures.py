"""Feed hostile bundles with right hashes to all of nojit: ``python tests/abuse/fuzz_structures.py --count 1000000 --workers 16``.

Inputs are known by their number: ``--only 1234`` takes that one alone, and keeps it. Workers take a stretch of inputs each, in processes that
are forked for it; one that dies is a finding of the input that it was at. An input must end with nojit's own errors or none, within
a CPU time and with a peak of memory in proportion to its length: ``--seconds-each`` and ``--memory-floor`` say what it may take. ``--seconds``
ends the run early.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # run as a script, only this folder is on the path; the package `tests` lies two above it
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.abuse.exercise import Exerciser, FindingError
from tests.abuse.writer import INPUTS_OF_A_BASE, HostileWriter
from tests.fakecuda import FakeCuda, build_driver, build_faketorch, load_extension
from tests.support.drafts import Draft, take_apart

STRETCH = 50 * INPUTS_OF_A_BASE
MEMORY_TIMES = 10
TELL_S = 15.0
ROWS_OF_BUILT = 6
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class Limits:
    """What an input may take."""

    seconds: float
    """Of the CPU."""
    memory_bytes: int
    """At its peak, above what the process had, or ten times the input's length if that is more; 0 does not look."""


def take_one(writer: HostileWriter, exerciser: Exerciser, number: int, limits: Limits) -> tuple[float, int]:
    """Write an input and take it; return its CPU time in seconds, and its peak of memory in bytes.

    Raises:
        FindingError: it was not handled right.
    """
    draft, how = writer.write(number)
    data = draft.seal()
    before = _start_peak() if limits.memory_bytes else 0
    start = time.process_time()
    try:
        exerciser.take(data, writer.chance(number, "calls"), draft.statement)
    except FindingError as finding:
        raise FindingError(f"input {number}, {len(data)} bytes, {'; '.join(how)}: {finding}") from finding
    seconds = time.process_time() - start
    peak = _kibibytes("VmHWM") * 1024 - before if limits.memory_bytes else 0
    said = f"input {number}, {len(data)} bytes, {'; '.join(how)}: expected at most"
    if seconds > limits.seconds:
        raise FindingError(f"{said} {limits.seconds} s, took {seconds:.2f} s")
    if peak > max(limits.memory_bytes, MEMORY_TIMES * len(data)):
        raise FindingError(f"{said} {max(limits.memory_bytes, MEMORY_TIMES * len(data))} bytes of memory, took {peak}")
    return seconds, peak


def _start_peak() -> int:
    """Start the high-water mark of memory anew, and return what there is."""
    _CLEAR.write_text("5", encoding="ascii")
    return _kibibytes("VmRSS") * 1024


def _kibibytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1])


class Workers:
    """Forks a process for each stretch of inputs, and gathers what they say."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.steps: collections.Counter[tuple[str, str]] = collections.Counter()
        self.findings: list[str] = []
        self.taken = 0
        self.slowest: tuple[float, int] = (0.0, -1)
        self.largest: tuple[int, int] = (0, -1)
        self._options = options
        self._until = time.monotonic() + options.seconds
        self._told = 0.0
        self._folder = folder
        self._built = _drafts(options.built)
        self._driver = build_driver(folder)
        self._framework = build_faketorch(folder)
        # of each worker, the number of the input that it is at
        self._at = mmap.mmap(-1, 8 * options.workers)
        os.environ["NOJIT_LIBCUDA"] = str(self._driver)

    def run(self) -> None:
        """Take all inputs, or as many as the time allows, or until there are too many findings."""
        options = self._options
        ends = options.first + options.count
        stretches = collections.deque(
            (start, min(start + STRETCH, ends)) for start in range(options.first, ends, STRETCH)
        )
        running: dict[int, tuple[int, int, int]] = {}
        free = list(range(options.workers))
        until = self._until
        while running or (stretches and time.monotonic() < until and len(self.findings) < options.findings):
            while free and stretches and time.monotonic() < until and len(self.findings) < options.findings:
                start, end = stretches.popleft()
                worker = free.pop()
                running[self._fork(worker, start, end)] = (worker, start, end)
            child, status = os.wait()
            worker, start, end = running.pop(child)
            free.append(worker)
            reached = self._gather(worker, start, status)
            if reached + 1 < end and status:
                stretches.appendleft((reached + 1, end))
            self._tell()

    def _tell(self) -> None:
        """Print the count now and then: a run that is killed has said something."""
        if time.monotonic() - self._told >= TELL_S:
            self._told = time.monotonic()
            print(f"{self.taken:,} inputs, {len(self.findings)} findings", file=sys.stderr, flush=True)

    def _fork(self, worker: int, start: int, end: int) -> int:
        struct.pack_into("<q", self._at, 8 * worker, start)
        child = os.fork()
        if child:
            return child
        code = 1
        gc.freeze()
        try:
            # a loop that does not end is ended: by then it is a finding
            signal.setitimer(signal.ITIMER_PROF, 60 + (end - start) * self._options.seconds_each)
            self._child(worker, start, end)
            code = 0
        except BaseException:  # noqa: BLE001 - told to the parent
            (self._folder / f"{worker}.died").write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(code)

    def _child(self, worker: int, start: int, end: int) -> None:
        options = self._options
        folder = self._folder / str(worker)
        folder.mkdir(exist_ok=True)
        report = self._folder / f"{worker}.json"
        exerciser = Exerciser(
            folder, FakeCuda(self._driver), load_extension(self._framework), core_only=options.core_only
        )
        writer, limits = (
            HostileWriter(options.seed, self._built),
            Limits(options.seconds_each, options.memory_floor << 20),
        )
        told: dict[str, Any] = {"findings": [], "slowest": (0.0, -1), "largest": (0, -1), "taken": 0}
        for number in range(start, end):
            if time.monotonic() >= self._until:
                break
            struct.pack_into("<q", self._at, 8 * worker, number)
            try:
                seconds, peak = take_one(writer, exerciser, number, limits)
                told["slowest"] = max(told["slowest"], (seconds, number))
                told["largest"] = max(told["largest"], (peak, number))
            except FindingError as finding:
                told["findings"].append(str(finding))
            told["taken"] += 1
        told["steps"] = [[*step, count] for step, count in exerciser.steps.items()]
        report.write_text(json.dumps(told), encoding="utf-8")

    def _gather(self, worker: int, start: int, status: int) -> int:
        """Take what a worker told; return the number of the last input that it took."""
        (reached,) = struct.unpack_from("<q", self._at, 8 * worker)
        if status:
            died = self._folder / f"{worker}.died"
            said = died.read_text(encoding="utf-8") if died.exists() else f"wait status {status:#x}"
            died.unlink(missing_ok=True)
            self._find(f"input {reached}: its process died: {said}")
            self.taken += reached + 1 - start
            return int(reached)
        told = json.loads((self._folder / f"{worker}.json").read_text(encoding="utf-8"))
        for finding in told["findings"]:
            self._find(finding)
        self.taken += told["taken"]
        self.slowest = max(self.slowest, tuple(told["slowest"]))
        self.largest = max(self.largest, tuple(told["largest"]))
        for name, said, count in told["steps"]:
            self.steps[name, said] += count
        return int(reached)

    def _find(self, finding: str) -> None:
        self.findings.append(finding)
        print(f"FINDING {finding}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; return 0 if every input was handled right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", type=int, help="take this input alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of the clock, for all")
    parser.add_argument("--seconds-each", type=float, default=1.0, help="of the CPU, for each input")
    parser.add_argument("--memory-floor", type=int, default=32, help="MiB that any input may take; 0 does not look")
    parser.add_argument("--core-only", action="store_true", help="leave out the steps that run in Python alone")
    parser.add_argument("--findings", type=int, default=50, help="end after so many")
    parser.add_argument(
        "--built", type=Path, nargs="*", default=[], help="bundles to start from, beside those made here"
    )
    options = parser.parse_args(arguments)
    if options.only is not None:
        return _only(options)
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        workers = Workers(options, Path(folder))
        start = time.monotonic()
        workers.run()
        seconds = time.monotonic() - start
    for (name, said), count in sorted(workers.steps.items()):
        print(f"{count:11,}  {name:28} {said}")
    print(
        f"{workers.taken:,} inputs in {seconds:.0f} s, {workers.taken / seconds:,.0f} a second; {len(workers.findings)} findings; "
        f"slowest {workers.slowest[0]:.3f} s of CPU (input {workers.slowest[1]}), "
        f"largest {workers.largest[0] / (1 << 20):.1f} MiB (input {workers.largest[1]})"
    )
    return 1 if workers.findings else 0


def _only(options: argparse.Namespace) -> int:
    """Take one input in this process, and keep it in the current folder."""
    writer = HostileWriter(options.seed, _drafts(options.built))
    draft, how = writer.write(options.only)
    kept = Path(f"hostile-{options.seed}-{options.only}.nojit")
    kept.write_bytes(draft.seal())
    print(f"{kept}: {'; '.join(how)}")
    with tempfile.TemporaryDirectory() as folder:
        driver = build_driver(Path(folder))
        os.environ["NOJIT_LIBCUDA"] = str(driver)
        framework = load_extension(build_faketorch(Path(folder)))
        exerciser = Exerciser(Path(folder), FakeCuda(driver), framework, core_only=options.core_only)
        limits = Limits(options.seconds_each, options.memory_floor << 20)
        try:
            seconds, peak = take_one(writer, exerciser, options.only, limits)
        except FindingError as finding:
            print(f"FINDING {finding}", file=sys.stderr)
            return 1
    for (name, said), count in sorted(exerciser.steps.items()):
        print(f"{count:11,}  {name:28} {said}")
    print(f"{seconds:.3f} s of CPU, {peak / (1 << 20):.1f} MiB")
    return 0


def _drafts(paths: list[Path]) -> list[Draft]:
    """Make a draft of each kernel of built bundles: all of a bundle would take as long as hundreds of others."""
    built = [take_apart(path.read_bytes(), ROWS_OF_BUILT) for path in paths]
    return [Draft(draft.index, [kernel]) for draft in built for kernel in draft.kernels]


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    sys.exit(main())
