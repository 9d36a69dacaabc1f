"""Choose an autotuner's config from the recorded winners. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.strict_json import Json
from nojit.runtime.recording.origins import Winner
from nojit.runtime.recording.winner_spelling import config_by_name, encoded_key

__all__ = ["Choice", "choose"]


class Choice(Record):
    """A config that an autotuner takes without timing."""

    config: Any
    """One of the autotuner's own."""
    exact: bool
    """Whether it was recorded for this very key."""


def choose(winners: Iterable[Winner], key: tuple[Any, ...], configs: Iterable[Any]) -> Choice | None:
    """Return the config that was recorded for a key, or for the nearest key.

    Keys are near if all their values but ints are equal. The distance is that of the logarithms of the ints.

    Args:
        winners: the recorded winners of the function.
        key: the autotuner's key of a call.
        configs: the autotuner's configs, with ``all_kwargs()``.

    Returns:
        None if no recorded key is near, or the autotuner no longer has the recorded configs.
    """
    known = [(config_by_name(config), config) for config in configs]
    asked = tuple(map(encoded_key, key))
    best: Choice | None = None
    least = math.inf
    for winner in winners:
        distance = _distance(asked, winner.key)
        if distance < least:
            wanted = dict(winner.config)
            config = next((config for spelled, config in known if spelled == wanted), None)
            if config is not None:
                best, least = Choice(config, asked == winner.key), distance
    return best


def _distance(asked: tuple[Json, ...], known: tuple[Json, ...]) -> float:
    if len(asked) != len(known):
        return math.inf
    total = 0.0
    for mine, theirs in zip(asked, known, strict=True):
        if type(mine) is int and type(theirs) is int:
            total += abs(_logarithm(mine) - _logarithm(theirs))
        elif type(mine) is not type(theirs) or mine != theirs:
            return math.inf
    return total


def _logarithm(value: int) -> float:
    return math.copysign(math.log2(1 + abs(value)), value)
