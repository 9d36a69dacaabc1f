"""Parts of the query heads that share a key head: how many programs add up the gradients of its keys and values.

Where few key heads have few tiles of keys, too few programs keep the device busy, or the last of them run alone. With
parts, each program sums over fewer query heads, and the sums are added up afterwards.

The parts take memory besides that of operands and results: at most `MOST_BYTES`, and at most that of queries and of the
output's gradient, so that long sequences of keys do not exhaust it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from nojit.kernels.calls.tensor_maps import Described

__all__ = ["GradientParts", "SharedKeys", "allocate_parts", "fastest_parts"]

KEYS: Final = 128
"""The keys of a program."""
TILE_US: Final = 2.6
"""Time of a tile of queries in a program, on an H200."""
START_US: Final = 5.0
"""Time of a program besides its tiles: its start, its first copies and its last stores."""
MERGE_US: Final = 10.0
"""Time of the merge of all parts besides its memory traffic."""
MOST_BYTES: Final = 1 << 28
"""The most bytes of all parts."""
ELEMENT_BYTES: Final = 2
BYTES_PER_US: Final = 3e6
"""Rate at which parts are written and read."""
SEEN: Final = 0.5
"""Share of the tiles that a program processes on average under a causal mask."""
UNEVEN: Final = 0.15
"""Under a causal mask: time that programs wait at the end, as a share of the longest walk."""


class SharedKeys(NamedTuple):
    """Sizes of a call, for the estimate."""

    kv_heads: int
    """The key heads of the whole batch."""
    group: int
    """The query heads of each key head."""
    q_len: int
    tiles: int
    """The tiles of queries."""
    kv_len: int
    width: int
    """The padded head dimension."""
    causal: bool

    def bytes_of(self, parts: int) -> int:
        """Return the bytes of dk and dv in so many parts, at the padded head dimension."""
        return 2 * ELEMENT_BYTES * self.kv_heads * parts * self.kv_len * self.width

    def fits(self, parts: int) -> bool:
        """Return whether parts take at most `MOST_BYTES`, and no more than queries and the output's gradient do."""
        return self.bytes_of(parts) <= MOST_BYTES and parts * self.kv_len <= self.group * self.q_len


class GradientParts(NamedTuple):
    """Gradients of keys and values that each part of the query heads contributes."""

    parts: int
    dk: Described
    """[B, key heads * parts, N, D]; the gradient itself if there is one part."""
    dv: Described
    """[B, key heads * parts, N, Dv]."""


@lru_cache(maxsize=1024)
def fastest_parts(sizes: SharedKeys, programs: int) -> int:
    """Return the number of parts, a divisor of the group, that an estimate finds fastest: 1, or one that `SharedKeys.fits`.

    `programs`: the number of programs that run at the same time.
    """
    candidates = (
        parts for parts in range(1, sizes.group + 1) if sizes.group % parts == 0 and (parts == 1 or sizes.fits(parts))
    )
    return min(candidates, key=lambda parts: _microseconds(sizes, parts, programs))


def _microseconds(sizes: SharedKeys, parts: int, programs: int) -> float:
    started = sizes.kv_heads * -(-sizes.kv_len // KEYS) * parts
    walk = TILE_US * sizes.tiles * sizes.group / parts
    if sizes.causal:
        busy = max(START_US + walk, started * (START_US + SEEN * walk) / programs + UNEVEN * walk)
    else:
        busy = -(-started // programs) * (START_US + walk)
    # written and read
    moved = 2 * sizes.bytes_of(parts)
    return busy + (MERGE_US + moved / BYTES_PER_US if parts > 1 else 0.0)


def allocate_parts(dk: Described, dv: Described, parts: int) -> GradientParts:
    """Return gradients that `parts` parts write: those of the caller if there is one, otherwise a workspace."""
    if parts == 1:
        return GradientParts(1, dk, dv)
    return GradientParts(parts, _repeated(dk, parts), _repeated(dv, parts))


def _repeated(gradient: Described, parts: int) -> Described:
    batch, heads, length, width = gradient.shape
    value = gradient.base.new_empty((batch, heads * parts, length, width))
    return Described(value, value.stride())
