"""Measurement of one problem: check every candidate, then time them by successive halving."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nojit.aot.tune.measure.events import Done, Event, Fault, Measured, Task, Trying
from nojit.aot.tune.measure.halving import EXHAUSTIVE, FINAL, RUNGS, Rung, contenders, interleave, keep, sample_count
from nojit.aot.tune.measure.measured_gpu import MeasuredGpu, Trial
from nojit.aot.tune.measure.timing import Timing, summarize

__all__ = ["measure_problem"]

# candidates that remain once the time allowance is spent
_HURRIED_MOST = 4
# a candidate that two samples show to be this many times slower than the best gets no third sample in the first rung
_SLOW_FACTOR = 3.0
# limit of candidates in the last rung: slower ones cannot be the best by more than the noise
_LAST_MOST = 16
# the last rung samples possible winners until their noise is at most this share, or they have _SAMPLES_MOST samples
_NOISE_GOAL = 0.01
_SAMPLES_MOST = 2_000


@dataclass(frozen=True, slots=True)
class _State:
    gpu: MeasuredGpu
    trial: Trial
    task: Task
    send: Callable[[Event], None]
    rng: random.Random
    started: float

    def spent_s(self) -> float:
        return time.monotonic() - self.started


def measure_problem(gpu: MeasuredGpu, trial: Trial, task: Task, send: Callable[[Event], None]) -> None:
    """Check and time the candidates of one problem; send each result as an event as soon as it is known.

    Args:
        gpu: the device, or one that a test makes up.
        trial: the problem.
        task: limits of the measurement, and candidates to skip.
        send: receives the events; the last one is `Done`.

    Raises:
        ContextLost: a launch destroyed the CUDA context; the last `Trying` event names the candidate, if known.
    """
    rng = random.Random(f"{task.seed}/{task.problem}")  # noqa: S311 - an order that can be repeated, no secret
    state = _State(gpu, trial, task, send, rng, time.monotonic())
    left = _checked(state)
    if left is None:
        send(Done(complete=False))
        return
    if task.exhaustive:
        _measure(state, EXHAUSTIVE, left)
        send(Done(complete=True))
        return
    send(Done(complete=_halve(state, left)))


def _checked(state: _State) -> list[int] | None:
    """Check every candidate; return the correct ones, or None if time ran out.

    `state`: GPU, prepared problem, task and start time.
    """
    good = []
    for candidate, config in enumerate(state.trial.opened.candidates):
        only = state.task.only
        if config.identity in state.task.skip or (only is not None and config.identity not in only):
            continue
        if state.spent_s() > state.task.limit_s:
            return None
        state.send(Trying(candidate))
        status, detail = state.trial.check(candidate)
        if status == "ok":
            good.append(candidate)
        else:
            state.send(Fault(candidate, status, detail))
    return good


def _halve(state: _State, left: list[int]) -> bool:
    """Time the candidates rung by rung; return whether the last rung was reached.

    `state`: GPU, prepared problem, task and start time.
    """
    for rung in RUNGS:
        if not left:
            return True
        if state.spent_s() > state.task.limit_s:
            return False
        timings = _measure(state, rung, left)
        # a too slow candidate has a single sample, which is too noisy to compare
        left = keep({one: timing for one, timing in timings.items() if timing.samples > 1} or timings, rung.slack)
        hurried = state.spent_s() > state.task.allowance_s
        left = left[: _HURRIED_MOST if hurried else _LAST_MOST if rung is RUNGS[-2] else None]
    return True


def _measure(state: _State, rung: Rung, left: Sequence[int]) -> dict[int, Timing]:
    """Time the candidates of one rung, send the result, and return it.

    `state`: GPU, prepared problem, task and start time.
    """
    if not left:
        return {}
    samples = _time(state, dict.fromkeys(left, 1))
    known = {candidate: values[0] for candidate, values in samples.items()}
    too_slow_us = _SLOW_FACTOR * min(known.values()) if rung is RUNGS[0] else math.inf
    # one slow sample may be an outlier, two are not
    for candidate, more in _time(state, {one: 1 for one, us in known.items() if us > too_slow_us}).items():
        known[candidate] = min(known[candidate], *more)
        samples[candidate] = [known[candidate]]
    counts = {candidate: sample_count(rung, us + state.gpu.flush_us) for candidate, us in known.items()}
    counts = {candidate: count if known[candidate] <= too_slow_us else 1 for candidate, count in counts.items()}
    # the first sample warms up: it counts only if it is the only one
    samples |= _time(state, {candidate: count for candidate, count in counts.items() if count > 1})
    if rung in {FINAL, EXHAUSTIVE}:
        _refine(state, samples)
    timings = {candidate: summarize(values) for candidate, values in samples.items()}
    state.send(Measured(rung.number, timings, state.gpu.clock_mhz()))
    return timings


def _refine(state: _State, samples: dict[int, list[float]]) -> None:
    """Double the samples of possible winners until their noise is low enough to tell them apart.

    `state`: GPU, prepared problem, task and start time.
    """
    while state.spent_s() <= state.task.allowance_s:
        timings = {candidate: summarize(values) for candidate, values in samples.items()}
        noisy = [
            one for one in contenders(timings) if timings[one].noise > _NOISE_GOAL and len(samples[one]) < _SAMPLES_MOST
        ]
        if not noisy:
            return
        for candidate, more in _time(state, {one: len(samples[one]) for one in noisy}).items():
            samples[candidate] += more


def _time(state: _State, counts: dict[int, int]) -> dict[int, list[float]]:
    """Return `counts[candidate]` samples of each candidate in microseconds, taken in interleaved order.

    `state`: GPU, prepared problem, task and start time.
    """
    samples: dict[int, list[float]] = {candidate: [] for candidate in counts}
    turns = interleave(counts, state.rng)
    if not state.task.careful:
        state.send(Trying(None))
        for candidate, us in zip(turns, state.trial.time(turns), strict=True):
            samples[candidate].append(us)
        return samples
    for candidate in turns:
        state.send(Trying(candidate))
        samples[candidate] += state.trial.time([candidate])
    return samples
