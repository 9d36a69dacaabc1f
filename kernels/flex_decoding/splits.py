"""Number of splits for the keys of each row (split-KV), so that few rows keep a device busy.

It depends on the capacity of keys, never on their current number: no device synchronization is needed, and a captured call
stays valid as sequences grow.
"""

from __future__ import annotations

from typing import Final

__all__ = ["KEYS", "MOST", "splits_of", "tile_height"]

KEYS: Final = 128
"""Keys per step in the model: as many as the widest tiles have."""
AT_ONCE: Final = 1
"""Programs that keep a multiprocessor busy: with two, each waits for the other's keys."""
START: Final = 1
"""The fixed cost of a program, in steps: filling its pipeline and writing its result."""
MERGE: Final = 2
"""The cost of the merge kernel, in steps of a program."""
WAVES: Final = 6
"""The most waves of programs to consider."""
MOST: Final = 1024
_HEIGHTS: Final = (16, 32, 64)


def tile_height(rows: int) -> int:
    """Return the rows of queries per program, for `rows` that read the same keys."""
    return next((height for height in _HEIGHTS if rows <= height), _HEIGHTS[-1])


def splits_of(pairs: int, keys: int, processors: int) -> int:
    """Choose the number of splits that finishes first.

    Args:
        pairs: the number of programs without splits.
        keys: the most keys that a row can see.
        processors: the number of multiprocessors.
    """
    steps = -(-keys // KEYS)
    slots = AT_ONCE * processors
    # split counts that fill the last wave
    full = {min(wave * slots // max(pairs, 1), steps, MOST) for wave in range(1, WAVES + 1)}
    return min(sorted({1, *full} - {0}), key=lambda splits: _cost(splits, pairs, steps, slots))


def _cost(splits: int, pairs: int, steps: int, slots: int) -> int:
    """Return the time of the splits, in steps of a program."""
    waves = -(-pairs * splits // slots)
    return waves * (-(-steps // splits) + START) + (MERGE if splits > 1 else 0)
