"""Into how many splits the keys of each row are cut, so that few rows keep a device busy.

It follows from the room that there is for keys, never from how many there are: nobody waits for the device to say so, and a
captured call stays right as sequences grow.
"""

from __future__ import annotations

from typing import Final

__all__ = ["KEYS", "MOST", "splits_of", "tile_height"]

KEYS: Final = 128
"""Keys that are reckoned with as one step: as many as the widest tiles have."""
AT_ONCE: Final = 1
"""Programs that keep a multiprocessor busy: with two, each waits for the other's keys."""
START: Final = 1
"""What a program costs besides its steps, in steps: filling its pipeline, and writing what it found."""
MERGE: Final = 2
"""What the second kernel costs, in steps of a program."""
WAVES: Final = 6
"""The most waves of programs that are tried."""
MOST: Final = 1024
_HEIGHTS: Final = (16, 32, 64)


def tile_height(rows: int) -> int:
    """Return how many rows of queries a program takes, of so many that read the same keys."""
    return next((height for height in _HEIGHTS if rows <= height), _HEIGHTS[-1])


def splits_of(pairs: int, keys: int, processors: int) -> int:
    """Choose the number of splits that ends soonest.

    Args:
        pairs: programs that there are without splits.
        keys: the most keys that a row can see.
        processors: how many multiprocessors there are.
    """
    steps = -(-keys // KEYS)
    slots = AT_ONCE * processors
    # so many that the last of some waves is full
    full = {min(wave * slots // max(pairs, 1), steps, MOST) for wave in range(1, WAVES + 1)}
    return min(sorted({1, *full} - {0}), key=lambda splits: _cost(splits, pairs, steps, slots))


def _cost(splits: int, pairs: int, steps: int, slots: int) -> int:
    """Return how long the splits take, in steps of a program."""
    waves = -(-pairs * splits // slots)
    return waves * (-(-steps // splits) + START) + (MERGE if splits > 1 else 0)
