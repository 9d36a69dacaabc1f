"""Rungs never drop the best by more than the noise, and take samples in a fair order."""

from __future__ import annotations

import random
import statistics

from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.tune.measure.halving import FINAL, RUNGS, interleave, keep, sample_count
from nojit.aot.tune.measure.timing import Timing, summarize

TIMES = st.lists(st.floats(1.0, 1e5), min_size=1, max_size=40)
NOISES = st.floats(0.0, 0.5)
TIMINGS = st.dictionaries(
    st.integers(0, 200),
    st.builds(lambda us, noise: Timing(5, us, noise, us), st.floats(1.0, 1e4), NOISES),
    min_size=1,
    max_size=80,
)


@given(TIMES)
def test_a_summary_is_of_its_samples(samples):
    timing = summarize(samples)
    assert timing.samples == len(samples)
    assert timing.median_us == statistics.median(samples)
    assert timing.best_us == min(samples)
    assert timing.noise >= 0


def test_more_samples_are_less_noise():
    rng = random.Random(3)
    samples = [100 * (1 + rng.gauss(0, 0.02)) for _ in range(400)]
    noises = [summarize(samples[:count]).noise for count in (5, 20, 100, 400)]
    assert noises == sorted(noises, reverse=True)
    assert noises[-1] < 0.005


def test_the_interval_holds_the_median():
    """Of 95 % intervals, about 95 % hold the truth."""
    rng = random.Random(5)
    held = 0
    for _ in range(400):
        timing = summarize([rng.lognormvariate(0, 0.1) for _ in range(25)])
        held += abs(timing.median_us - 1) <= 2 * timing.noise * timing.median_us
    assert held >= 380


@given(TIMINGS, st.floats(0.0, 0.5))
def test_who_may_be_the_best_goes_on(timings, slack):
    left = keep(timings, slack)
    best = timings[min(timings, key=lambda config: (timings[config].median_us, config))]
    for config, timing in timings.items():
        if timing.median_us * (1 - timing.noise) <= best.median_us * (1 + best.noise):
            assert config in left
    assert left == sorted(left, key=lambda config: (timings[config].median_us, config))
    assert timings[left[0]] == best


@given(st.dictionaries(st.integers(0, 200), st.floats(1.0, 1e4), min_size=1, max_size=80))
def test_without_noise_at_most_half_goes_on(times):
    left = keep({config: Timing(5, us, 0.0, us) for config, us in times.items()}, 1e9)
    best = min(times.values())
    assert len(left) <= max(-(-len(times) // 2), sum(us == best for us in times.values()))


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 20), max_size=20), st.integers())
def test_rounds_are_fair(counts, seed):
    turns = interleave(counts, random.Random(seed))
    assert {config: turns.count(config) for config in counts} == counts
    # in each round, all that still want samples come once
    seen = dict.fromkeys(counts, 0)
    for config in turns:
        waiting = [other for other in counts if counts[other] > seen[config]]
        assert all(seen[other] >= seen[config] for other in waiting)
        seen[config] += 1


@given(st.floats(0.5, 1e6))
def test_counts_are_bounded(us):
    counts = [sample_count(rung, us) for rung in RUNGS]
    assert counts == sorted(counts)
    for rung, count in zip(RUNGS, counts, strict=True):
        assert rung.least <= count <= rung.most


@given(st.integers(0, 2**32), st.integers(2, 60), st.floats(0.0, 0.05))
def test_climbing_loses_little(seed, configs, noise):
    """Whatever survives to the end is within the noise of the best that there is."""
    rng = random.Random(seed)
    truth = {config: 50 * rng.uniform(1, 3) for config in range(configs)}
    left = list(truth)
    for rung in RUNGS:
        timings = {
            one: summarize([truth[one] * (1 + rng.gauss(0, noise)) for _ in range(sample_count(rung, truth[one]))])
            for one in left
        }
        left = keep(timings, rung.slack)
    assert rung is FINAL
    assert truth[left[0]] <= min(truth.values()) * (1 + 4 * noise + 1e-9)
