"""Successive halving: each rung takes more samples of fewer configs. Pure.

Source: Jamieson and Talwalkar 2016, https://arxiv.org/abs/1502.07943. One change for noisy measurements: a config whose interval
overlaps that of the best is never dropped.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nojit.aot.tune.measure.timing import Timing

__all__ = [
    "EXHAUSTIVE",
    "FINAL",
    "RUNGS",
    "Rung",
    "contenders",
    "interleave",
    "keep",
    "sample_count",
]


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of successive halving: its number of samples, and the configs that continue after it."""

    number: int
    """The number in the database; higher rungs take more samples."""
    least: int
    """Least number of samples of a config."""
    most: int
    """Largest number of samples of a config."""
    patience_us: float
    """Time for the samples of a config, within `least` and `most`, in microseconds."""
    slack: float
    """Largest loss, as a share, with which a config of the faster half continues. Configs that may be the best always continue."""


RUNGS: Final = (
    Rung(0, 3, 7, 1_500.0, 0.20),
    Rung(1, 5, 21, 6_000.0, 0.10),
    Rung(2, 9, 61, 12_000.0, 0.05),
)
FINAL: Final = RUNGS[-1]
EXHAUSTIVE: Final = Rung(3, FINAL.least, FINAL.most, FINAL.patience_us, FINAL.slack)
"""Rung of `--exhaustive`: every config gets the samples of the last rung; its own number marks these measurements."""


def sample_count(rung: Rung, us: float) -> int:
    """Return the number of samples of a config in a rung; `us` is the time of one sample with its flush."""
    return max(rung.least, min(rung.most, int(rung.patience_us / us)))


def interleave(counts: Mapping[int, int], rng: random.Random) -> list[int]:
    """Return the order in which to sample configs: shuffled rounds of all configs that need more samples.

    Drifts of clock and temperature then affect all configs alike, and no config always follows the same one.

    Args:
        counts: the number of samples of each config.
        rng: the source of randomness.
    """
    rounds: list[int] = []
    for turn in range(max(counts.values(), default=0)):
        waiting = [config for config, count in counts.items() if count > turn]
        rng.shuffle(waiting)
        rounds += waiting
    return rounds


def keep(timings: Mapping[int, Timing], slack: float) -> list[int]:
    """Return the configs that continue, fastest first.

    These are the configs that may be the best (`contenders`), and those of the faster half that are not much slower.

    Args:
        timings: statistics of each config, by number.
        slack: the most by which the latter may be slower than the best, as a share: 0.2 is 20%.
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
    """Return the configs that may be the best, fastest first: their interval overlaps that of the fastest.

    `timings`: statistics of each config, by number.
    """
    ranked = _ranked(timings)
    bound = timings[ranked[0]].median_us * (1 + timings[ranked[0]].noise)
    return [config for config in ranked if timings[config].median_us * (1 - timings[config].noise) <= bound]


def _ranked(timings: Mapping[int, Timing]) -> list[int]:
    return sorted(timings, key=lambda config: (timings[config].median_us, config))
