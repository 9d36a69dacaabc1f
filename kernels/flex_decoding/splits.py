"""Number of splits for the keys of each row (split-KV), so that calls with few rows keep a device busy.

It depends on the capacity of keys, not on their current number: so the host need not synchronize with the device, and a
call in a CUDA graph stays valid as sequences grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["KEYS", "MOST", "TILES", "WAVES", "Costs", "costs_of_one", "splits_of", "tile_height"]

KEYS: Final = 128
"""Keys per step of the model: those of the largest tile."""
WAVES: Final = 6
"""The most waves of programs to consider."""
MOST: Final = 1024
_HEIGHTS: Final = (16, 32, 64)


@dataclass(frozen=True, slots=True)
class Costs:
    """Durations of parts of a kernel, all in one unit."""

    at_once: int
    """Programs that run on an SM at a time."""
    keys: int
    """Keys per step."""
    start: float
    """To start a program, fill its pipeline and write its result."""
    step: float
    """A step of a program that does not share the memory's bandwidth."""
    share: float
    """Time in which the memory delivers the bytes of a step; a step of n programs that run takes at least n times as long."""
    merge: float
    """To launch the merge kernel."""
    part: float
    """To write and read the part of one program."""


TILES: Final = Costs(at_once=1, keys=KEYS, start=1, step=1, share=0, merge=2, part=0)
"""Costs in units of a step, for kernels of several queries. With two programs on an SM, each would wait for the other's keys."""
_AT_ONCE: Final = {64: 3, 128: 3, 256: 2}
"""Programs of the kernel for one query that run on an SM at a time, by BLOCK_D: as many as shared memory holds."""
_TILE: Final = 8192
"""Elements of a tile of keys of that kernel, for each BLOCK_D."""
_RATE: Final = 4300.0
"""Bytes per nanosecond that an H200 reads."""
_PART_RATE: Final = 700.0
"""Bytes of parts per nanosecond that programs write, and the merge kernel reads."""
_START, _STEP, _MERGE = 2000.0, 1000.0, 2400.0
"""Nanoseconds of `Costs.start`, `Costs.step` and `Costs.merge`. These five are fitted to 180 random calls on an H200."""


def costs_of_one(width: int, row_bytes: int, part_bytes: int) -> Costs:
    """Return the costs of the kernel for one query, in nanoseconds.

    Args:
        width: BLOCK_D.
        row_bytes: bytes of a row of keys and a row of values.
        part_bytes: bytes of the part that a program writes.
    """
    keys = _TILE // width
    return Costs(_AT_ONCE[width], keys, _START, _STEP, keys * row_bytes / _RATE, _MERGE, part_bytes / _PART_RATE)


def tile_height(rows: int) -> int:
    """Return the rows of queries in a program's tile if `rows` of them read the same keys."""
    return next((height for height in _HEIGHTS if rows <= height), _HEIGHTS[-1])


def splits_of(programs: int, keys: int, processors: int, costs: Costs = TILES) -> int:
    """Choose the number of splits with the least modelled duration.

    Args:
        programs: the number of programs without splits.
        keys: the most keys that a row can see.
        processors: the number of SMs.
        costs: durations of the kernel's parts.
    """
    steps = -(-keys // costs.keys)
    # numbers of splits that fill every SM's last place, or one of its places
    full = {min(turn * processors // max(programs, 1), steps, MOST) for turn in range(1, WAVES * costs.at_once + 1)}
    return min(sorted({1, *full} - {0}), key=lambda splits: _duration(splits, programs, steps, processors, costs))


def _duration(splits: int, programs: int, steps: int, processors: int, costs: Costs) -> float:
    """Return the modelled duration for a number of splits, in the unit of `costs`."""
    slots = costs.at_once * processors
    waves, rest = divmod(programs * splits, slots)
    own = -(-steps // splits)
    total = waves * _wave(slots, own, costs)
    if rest:
        total += _wave(rest, own, costs)
    return total + (costs.merge + programs * splits * costs.part if splits > 1 else 0.0)


def _wave(running: int, steps: int, costs: Costs) -> float:
    """Return the modelled duration of a wave of `running` programs, which share the memory's bandwidth."""
    return costs.start + steps * max(costs.step, running * costs.share)
