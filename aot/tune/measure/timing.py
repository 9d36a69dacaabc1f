"""Statistics of a config's samples: the median and its noise. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Timing", "summarize"]

# half the 95% interval of a median of n samples spans this times sqrt(n) ranks
_RANKS: Final = 0.98


@dataclass(frozen=True, slots=True)
class Timing:
    """Statistics of one config's samples."""

    samples: int
    median_us: float
    noise: float
    """Half the width of the median's 95% interval, as a share of the median; 1 for a single sample."""
    best_us: float


def summarize(samples: Sequence[float]) -> Timing:
    """Return the statistics of samples in microseconds; the interval is by ranks, which assumes no distribution."""
    ranked = sorted(samples)
    count = len(ranked)
    median = statistics.median(ranked)
    if count == 1:
        return Timing(1, median, 1.0, median)
    reach = _RANKS * math.sqrt(count)
    low = max(0, math.floor((count - 1) / 2 - reach))
    high = min(count - 1, math.ceil((count - 1) / 2 + reach))
    return Timing(count, median, (ranked[high] - ranked[low]) / (2 * median), ranked[0])
