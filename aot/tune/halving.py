"""How much time each config is worth: rungs of more and more samples for fewer and fewer configs. Pure.

Successive halving (Jamieson and Talwalkar 2016, https://arxiv.org/abs/1502.07943), with one change for measurements: a
config is never dropped while its interval and the best one's overlap.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["EXHAUSTIVE", "FINAL", "RUNGS", "Rung", "Timing", "contenders", "keep", "order", "sample_count", "summarize"]

# half of the 95 % interval of a median lies this many ranks, times the root of the number of samples, from the middle
_RANKS: Final = 0.98


@dataclass(frozen=True, slots=True)
class Rung:
    """How long each config of one rung is measured."""

    number: int
    """As the database stores it; a higher one says more."""
    least: int
    """Samples."""
    most: int
    """Samples."""
    patience_us: float
    """As many samples as fit into this, within the two above."""
    slack: float
    """How far from the best a config may be to go on, as a share; the slower half goes anyway."""


RUNGS: Final = (
    Rung(0, 3, 7, 1_500.0, 0.20),
    Rung(1, 5, 21, 6_000.0, 0.10),
    Rung(2, 9, 61, 12_000.0, 0.05),
)
FINAL: Final = RUNGS[-1]
EXHAUSTIVE: Final = Rung(3, FINAL.least, FINAL.most, FINAL.patience_us, FINAL.slack)
"""Every config, measured as the last rung does: it has a number of its own, to tell a complete set from a selected one."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What the samples of one config say."""

    samples: int
    median_us: float
    noise: float
    """Half the width of the median's 95 % interval, as a share of the median; 1 if one sample is all there is."""
    best_us: float


def summarize(samples: Sequence[float]) -> Timing:
    """Sum up samples in microseconds: the median, and its interval by ranks, which assumes no distribution."""
    ranked = sorted(samples)
    count = len(ranked)
    median = statistics.median(ranked)
    if count == 1:
        return Timing(1, median, 1.0, median)
    reach = _RANKS * math.sqrt(count)
    low = max(0, math.floor((count - 1) / 2 - reach))
    high = min(count - 1, math.ceil((count - 1) / 2 + reach))
    return Timing(count, median, (ranked[high] - ranked[low]) / (2 * median), ranked[0])


def sample_count(rung: Rung, us: float) -> int:
    """Say how many samples of so many microseconds each (the flush included) a rung takes."""
    return max(rung.least, min(rung.most, int(rung.patience_us / us)))


def order(counts: Mapping[int, int], rng: random.Random) -> list[int]:
    """Interleave: rounds in which each config that still wants samples comes once, shuffled anew each time.

    So what drifts, clocks and temperatures, meets all alike, and none always follows the same one.
    """
    rounds: list[int] = []
    for turn in range(max(counts.values(), default=0)):
        waiting = [config for config, count in counts.items() if count > turn]
        rng.shuffle(waiting)
        rounds += waiting
    return rounds


def keep(timings: Mapping[int, Timing], slack: float) -> list[int]:
    """Choose who goes on, the fastest first.

    Those are the `contenders`, and of the faster half those within `slack` of the best.
    """
    ranked = _ranked(timings)
    best = timings[ranked[0]]
    may_win = set(contenders(timings))
    half = math.ceil(len(ranked) / 2)
    return [
        config
        for rank, config in enumerate(ranked)
        if config in may_win or (rank < half and timings[config].median_us <= best.median_us * (1 + slack))
    ]


def contenders(timings: Mapping[int, Timing]) -> list[int]:
    """List the configs that may be the best for all that is known, the fastest first: their interval and its overlap."""
    ranked = _ranked(timings)
    bound = timings[ranked[0]].median_us * (1 + timings[ranked[0]].noise)
    return [config for config in ranked if timings[config].median_us * (1 - timings[config].noise) <= bound]


def _ranked(timings: Mapping[int, Timing]) -> list[int]:
    return sorted(timings, key=lambda config: (timings[config].median_us, config))
