"""Correction of measured times for a clock that slowed down during a tuning run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import median

__all__ = ["drifts_of_rungs"]


def drifts_of_rungs(times: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """Return for each rung the factor from its times to those of the last rung, as a median over configs in both.

    A hot device lowers its clock. Times from early rungs, on a cooler device, are therefore too short without this factor.
    """
    rungs = sorted(times, reverse=True)
    drifts = {rungs[0]: 1.0}
    for later, rung in pairwise(rungs):
        ratios = [us / times[rung][config] for config, us in times[later].items() if times[rung].get(config)]
        drifts[rung] = drifts[later] * (median(ratios) if ratios else 1.0)
    return drifts
