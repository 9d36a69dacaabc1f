"""Number of splits for the keys of each row (split-KV), so that calls with few rows keep a device busy.

It depends on the capacity of keys, not on their current number: so the host need not synchronize with the device, and a
call in a CUDA graph stays valid as sequences grow.
"""

from __future__ import annotations

from typing import Final

__all__ = ["KEYS", "MOST", "splits_of", "tile_height"]

KEYS: Final = 128
"""Keys per step of the model: those of the largest tile."""
AT_ONCE: Final = 1
"""Programs that keep an SM busy: with two, each would wait for the other's keys."""
START: Final = 1
"""Fixed cost of a program, to fill its pipeline and write its result, in units of a step."""
MERGE: Final = 2
"""Cost of the merge kernel, in units of a step of a program."""
WAVES: Final = 6
"""The most waves of programs to consider."""
MOST: Final = 1024
_HEIGHTS: Final = (16, 32, 64)


def tile_height(rows: int) -> int:
    """Return the rows of queries in a program's tile if `rows` of them read the same keys."""
    return next((height for height in _HEIGHTS if rows <= height), _HEIGHTS[-1])


def splits_of(programs: int, keys: int, processors: int) -> int:
    """Choose the number of splits with the least modelled time.

    Args:
        programs: the number of programs without splits.
        keys: the most keys that a row can see.
        processors: the number of SMs.
    """
    steps = -(-keys // KEYS)
    slots = AT_ONCE * processors
    # numbers of splits that fill the last wave
    full = {min(wave * slots // max(programs, 1), steps, MOST) for wave in range(1, WAVES + 1)}
    return min(sorted({1, *full} - {0}), key=lambda splits: _cost(splits, programs, steps, slots))


def _cost(splits: int, programs: int, steps: int, slots: int) -> int:
    """Return the modelled time for a number of splits, in units of a step; `slots` programs run at a time."""
    waves = -(-programs * splits // slots)
    return waves * (-(-steps // splits) + START) + (MERGE if splits > 1 else 0)
