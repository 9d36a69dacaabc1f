"""Climbing drops what is slow early, keeps what may be the best, and stops in time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.tune.measure.events import Candidate, Done, Event, Fault, Hello, Measured, Opened, Task, Trying
from nojit.aot.tune.measure.problem import measure_problem
from nojit.aot.tune.store.records import Status


class Trial:
    """Configs of known times."""

    def __init__(self, times: Sequence[float], noise: float, wrong: frozenset[int] = frozenset()) -> None:
        self._times = times
        self._noise = noise
        self._wrong = wrong
        self._rng = random.Random(1)
        self.samples: Counter[int] = Counter()
        self.opened = Opened(
            (), (), {}, 1, 1, {}, tuple(Candidate({"N": place}, ("",), "") for place in range(len(times)))
        )

    def check(self, candidate: int) -> tuple[Status, str]:
        return ("wrong", "off") if candidate in self._wrong else ("ok", "")

    def time(self, order: Sequence[int]) -> list[float]:
        self.samples.update(order)
        return [self._times[one] * (1 + abs(self._rng.gauss(0, self._noise))) for one in order]

    def close(self) -> None:
        pass


class MeasuredGpu:
    flush_us = 40.0

    def hello(self) -> Hello:
        raise NotImplementedError

    def open(self, problem: int) -> Trial:
        raise NotImplementedError

    def clock_mhz(self) -> int | None:
        return None


def run(trial: Trial, **changes: object) -> list[Event]:
    facts = {"exhaustive": False, "careful": False, "allowance_s": 1e9, "limit_s": 1e9, "skip": frozenset()}
    events: list[Event] = []
    measure_problem(MeasuredGpu(), trial, Task(problem=0, seed=0, **{**facts, **changes}), events.append)
    return events


def rungs(events: list[Event]) -> list[Measured]:
    return [event for event in events if isinstance(event, Measured)]


def test_fewer_and_fewer_are_timed_for_longer_and_longer() -> None:
    trial = Trial([100 * 1.05**place for place in range(64)], 0.002)
    events = run(trial)
    counts = [len(event.timings) for event in rungs(events)]
    assert [event.rung for event in rungs(events)] == [0, 1, 2]
    assert counts[0] == 64
    assert counts[0] > counts[1] > counts[2] >= 1
    assert min(rungs(events)[2].timings, key=lambda one: rungs(events)[2].timings[one].median_us) == 0
    assert trial.samples[0] > 30
    assert events[-1] == Done(complete=True)


def test_the_hopeless_get_two_samples() -> None:
    trial = Trial([100.0] * 4 + [1000.0] * 60, 0.01)
    events = run(trial)
    assert {trial.samples[one] for one in range(4, 64)} == {2}
    assert {rungs(events)[0].timings[one].samples for one in range(4, 64)} == {1}
    assert set(rungs(events)[1].timings) <= set(range(4))


def test_one_slow_sample_is_an_accident() -> None:
    class Slow(Trial):
        """Hangs for a moment at the first sample of the fastest."""

        def time(self, order: Sequence[int]) -> list[float]:
            first = self.samples[0] == 0
            return [us * 20 if first and one == 0 else us for one, us in zip(order, super().time(order), strict=True)]

    events = run(Slow([100.0, 130.0, 140.0], 0.001))
    assert rungs(events)[0].timings[0].samples > 1
    assert min(rungs(events)[-1].timings, key=lambda one: rungs(events)[-1].timings[one].median_us) == 0


def test_a_crowd_of_equals_is_cut() -> None:
    events = run(Trial([5.0] * 200, 0.1))
    assert len(rungs(events)[2].timings) == 16


def test_only_what_is_asked_for_is_checked_and_timed() -> None:
    trial = Trial([100.0] * 8, 0.002)
    asked = {trial.opened.candidates[place].identity for place in (2, 5)}
    events = run(trial, exhaustive=True, only=frozenset(asked))
    assert [set(event.timings) for event in rungs(events)] == [{2, 5}]
    assert [event.candidate for event in events if isinstance(event, Trying) and event.candidate is not None] == [2, 5]


def test_what_is_wrong_or_skipped_is_not_timed() -> None:
    trial = Trial([10.0] * 5, 0.0, frozenset({1}))
    events = run(trial, skip=frozenset({trial.opened.candidates[3].identity}))
    assert [event for event in events if isinstance(event, Fault)] == [Fault(1, "wrong", "off")]
    assert set(trial.samples) == {0, 2, 4}
    assert Trying(3) not in events


def test_out_of_time_before_it_starts() -> None:
    trial = Trial([10.0] * 5, 0.0)
    assert run(trial, limit_s=-1.0) == [Done(complete=False)]


def test_a_hurried_problem_is_finished_with_a_few() -> None:
    events = run(Trial([5.0] * 50, 0.1), allowance_s=-1.0)
    assert [len(event.timings) for event in rungs(events)] == [50, 4, 4]
    assert events[-1] == Done(complete=True)


def test_an_exhaustive_climb_has_one_rung() -> None:
    trial = Trial([10.0 * place for place in range(1, 9)], 0.01)
    (measured,) = rungs(run(trial, exhaustive=True))
    assert measured.rung == 3
    assert all(timing.samples >= 9 for timing in measured.timings.values())


def test_a_careful_climb_names_whom_it_times() -> None:
    events = run(Trial([10.0] * 3, 0.0), careful=True)
    assert Trying(None) not in events
    assert Counter(event.candidate for event in events if isinstance(event, Trying))[0] > 10


def test_nothing_left_is_an_end() -> None:
    assert run(Trial([1.0], 0.0, frozenset({0})))[-1] == Done(complete=True)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(2.0, 500.0), min_size=2, max_size=80), st.floats(0.0, 0.05))
def test_the_choice_is_near_the_best(times: list[float], noise: float) -> None:
    last = rungs(run(Trial(times, noise)))[-1]
    chosen = min(last.timings, key=lambda one: last.timings[one].median_us)
    assert times[chosen] <= min(times) * (1.001 + 3 * noise)
