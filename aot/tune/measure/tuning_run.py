"""A tuning run: schedule the problems within the time budget, restart the measuring process after a crash, store the results."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from nojit.aot.inspect.places import report_path
from nojit.aot.tune.measure.child import Child
from nojit.aot.tune.measure.events import (
    Done,
    Event,
    Fault,
    Hello,
    Listed,
    Lost,
    Measured,
    Opened,
    Refused,
    Task,
    Trying,
)
from nojit.aot.tune.measure.halving import EXHAUSTIVE, FINAL
from nojit.aot.tune.measure.log import Log
from nojit.aot.tune.measure.request import ProblemRun, TuneRequest, TuneRun, View, round_robin
from nojit.aot.tune.store.database import Database, now
from nojit.aot.tune.store.records import Run
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import NojitError

__all__ = ["read_pruned", "tune"]

# give up a problem after this many deaths of the measuring process
_DEATHS_MOST = 16
# problems with a shorter best time count as quick
_QUICK_US = 100.0
# skip a config for all other problems after it killed the process for this many
_DEADLY = 2
# a problem may take this multiple of an equal share of the remaining time
_SHARES_MOST = 2.0


@dataclass(slots=True)
class _State:
    """Progress of one problem in this process, while the worker measures it."""

    task: Task
    known: set[str]
    """Identities of candidates that were wrong or failed in earlier runs."""
    asked: float = field(default_factory=time.monotonic)
    """When the task was sent, in seconds of the monotonic clock."""
    opened: Opened | None = None
    trying: int | None = None
    """Index of the candidate that is being launched; None if several are."""
    deaths: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    """Status of wrong and failed candidates by identity."""
    seen: set[str] = field(default_factory=set)
    """Identities of timed candidates."""
    best_us: float | None = None
    complete: bool = False
    reason: str = ""


def tune(request: TuneRequest, database: Database, view: View) -> TuneRun:
    """Measure the problems of a request and store the results; return a summary.

    Raises:
        NojitError: the bundle, the problems or the device are unsuitable.
    """
    started = time.monotonic()
    with BundleFile(request.setup.bundle) as file:
        digest = file.digest
    with Child(request.setup) as child:
        hello, up = child.hello, time.monotonic() - started
        asked = [place for place in round_robin(hello.problems) if request.wants(hello.problems[place])]
        for one in (hello.problems[place] for place in asked):
            # measurements of other sizes must not count for this problem
            database.check_sizes(one.kernel, one.use, one.name, one.dtype, sizes=one.sizes)
        run = _run_of(request, digest, hello.torch)
        log = Log(database, hello.device, run, read_pruned(request.setup.bundle, digest))
        wanted = EXHAUSTIVE.number if request.exhaustive else FINAL.number
        log.weigh(hello.problems[place] for place in asked)
        todo = [place for place in asked if not log.knows(hello.problems[place], wanted)]
        known = len(asked) - len(todo)
        view.begin(hello.device, len(todo), known)
        done = _Runner(request, child, log, view, started).all(todo)
        log.end()
    return _summed(hello, done, (known, len(todo)), up, time.monotonic() - started)


def _summed(
    hello: Hello, done: Sequence[ProblemRun], counts: tuple[int, int], started_s: float, seconds: float
) -> TuneRun:
    known, todo = counts
    quick = [item for item in done if item.best_us is not None and item.best_us < _QUICK_US]
    pairs = sum(item.configs for item in done)
    return TuneRun(
        device=hello.device,
        started_s=started_s,
        seconds=seconds,
        pairs=pairs,
        pairs_per_s=pairs / seconds,
        quick_pairs_per_s=sum(i.configs for i in quick) / sum(i.seconds for i in quick) if quick else None,
        problems=tuple(done),
        known=known,
        left=todo - len(done),
        missing=hello.missing,
    )


def _run_of(request: TuneRequest, digest: str, torch: str) -> Run:
    name = request.setup.bundle.name
    return Run(0, now(), name, digest, version("nojit"), torch, request.budget_s, request.seed)


class _Runner:
    """Runner of the problems, one after another."""

    def __init__(self, request: TuneRequest, child: Child, log: Log, view: View, started: float) -> None:
        self._request = request
        self._child = child
        self._log = log
        self._view = view
        self._started = started
        self._deaths: Counter[tuple[str, str]] = Counter()

    def all(self, todo: Sequence[int]) -> list[ProblemRun]:
        """Measure the problems in order until time runs out; return the results.

        `todo`: indices of the problems.
        """
        done: list[ProblemRun] = []
        began = time.monotonic()
        for place, problem in enumerate(todo):
            left_s = self._left_s()
            if left_s <= 0:
                break
            share = _SHARES_MOST * left_s / (len(todo) - place)
            done.append(self._one(problem, min(share, left_s), left_s))
            guess = (time.monotonic() - began) / len(done) * (len(todo) - len(done))
            self._view.ended(done[-1], min(guess, self._left_s()))
        return done

    def _left_s(self) -> float:
        if self._request.budget_s is None:
            return float("inf")
        return self._request.budget_s - (time.monotonic() - self._started)

    def _one(self, problem: int, allowance_s: float, limit_s: float) -> ProblemRun:
        listed = self._child.hello.problems[problem]
        self._view.problem(listed)
        known = self._log.faults(listed)
        task = Task(
            problem=problem,
            skip=frozenset(known | self._deadly(listed.kernel)),
            exhaustive=self._request.exhaustive,
            careful=False,
            allowance_s=allowance_s,
            limit_s=limit_s,
            seed=self._request.seed,
            only=self._request.configs_of(listed),
        )
        state = _State(task, known)
        started = state.asked
        while self._attempt(listed, state):
            pass
        return _ended(listed, state, time.monotonic() - started)

    def _attempt(self, listed: Listed, state: _State) -> bool:
        """Let the worker measure once; return whether it died and the problem needs another attempt.

        `listed`: the problem; `state`: the problem's progress.
        """
        self._child.send(state.task)
        state.opened = state.trying = None
        while True:
            event = self._child.receive()
            self._view.event(listed, event)
            if isinstance(event, Lost):
                return self._died(listed, state, event.reason)
            if isinstance(event, Refused):
                state.reason = event.reason
                return False
            if isinstance(event, Done):
                state.complete = event.complete
                return False
            self._note(listed, state, event)

    def _note(self, listed: Listed, state: _State, event: Event) -> None:
        """Store an event of the worker.

        `listed`: the problem; `state`: the problem's progress.
        """
        if isinstance(event, Opened):
            state.opened = event
            self._log.open(listed, event)
            self._skip_deadly(listed, state)
        elif isinstance(event, Trying):
            state.trying = event.candidate
        elif isinstance(event, Fault):
            self._fault(state, event)
        elif isinstance(event, Measured) and state.opened:
            self._log.measured(event)
            state.seen |= {state.opened.candidates[one].identity for one in event.timings}
            state.best_us = min(timing.median_us for timing in event.timings.values())

    def _skip_deadly(self, listed: Listed, state: _State) -> None:
        """Record the candidates that killed the process too often as failed; the task skips them.

        `listed`: the problem; `state`: the problem's progress.
        """
        for place, candidate in enumerate(state.opened.candidates if state.opened else ()):
            if candidate.identity in self._deadly(listed.kernel) - state.known - state.faults.keys():
                self._fault(state, Fault(place, "failed", f"skipped: it killed the process for {_DEADLY} problems"))

    def _deadly(self, kernel: str) -> set[str]:
        return {identity for (name, identity), count in self._deaths.items() if name == kernel and count >= _DEADLY}

    def _fault(self, state: _State, fault: Fault) -> None:
        if state.opened is None:
            raise NojitError("expected the problem to be ready before one of its configs fails")
        self._log.fault(fault)
        state.faults[state.opened.candidates[fault.candidate].identity] = fault.status

    def _died(self, listed: Listed, state: _State, reason: str) -> bool:
        """Record the candidate that killed the process as failed, if it is known; return whether to try again.

        `listed`: the problem; `state`: the problem's progress.
        """
        state.deaths += 1
        if state.opened is None or state.deaths > _DEATHS_MOST:
            state.reason = reason
            return False
        if state.trying is None:
            if state.task.careful:
                state.reason = reason
                return False
            state.task = _again(state, careful=True)
            return True
        fault = Fault(state.trying, "failed", reason)
        self._fault(state, fault)
        self._view.event(listed, fault)
        self._deaths[listed.kernel, state.opened.candidates[state.trying].identity] += 1
        state.task = _again(state, careful=state.task.careful)
        return True


def _ended(listed: Listed, state: _State, seconds: float) -> ProblemRun:
    statuses = list(state.faults.values())
    return ProblemRun(
        kernel=listed.kernel,
        name=listed.name,
        use=listed.use,
        dtype=listed.dtype,
        configs=len(state.seen | state.faults.keys()),
        wrong=statuses.count("wrong"),
        failed=statuses.count("failed"),
        complete=state.complete,
        best_us=state.best_us,
        seconds=seconds,
        reason=state.reason,
    )


def _again(state: _State, *, careful: bool) -> Task:
    """Return the task for another attempt, with the remaining time and without wrong and failed candidates.

    `state`: the problem's progress; `careful`: whether the worker launches candidates one by one.
    """
    asked, state.asked = state.asked, time.monotonic()
    spent_s = state.asked - asked
    return dataclasses.replace(
        state.task,
        skip=state.task.skip | state.faults.keys(),
        careful=careful,
        allowance_s=state.task.allowance_s - spent_s,
        limit_s=state.task.limit_s - spent_s,
    )


def read_pruned(bundle: Path, digest: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Read label and reason of each config that the build left out, by kernel, from the build report next to the bundle.

    Returns an empty dict if the report is missing or from another build.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        report = json.loads(report_path(bundle).read_text(encoding="utf-8"))
        if report["digest"] == digest:
            for one in report["pruned"]:
                found.setdefault(str(one["kernel"]), []).append((str(one["label"]), str(one["reason"])))
    return {kernel: tuple(pairs) for kernel, pairs in found.items()}
