"""How a large product runs on sm_90: whether programs share its last wave (stream-K), and whether its right operand is copied.

`nojit.kernels.gemm.kernel_waves` describes how programs share a wave. If rows of both operands, or of the right one, start at
odd multiples of 16 bytes, each step takes longer, as measured; presumably because TMA copies by sectors of 32 bytes. A copy of
the right operand whose rows start on lines of 128 bytes avoids that.

Times are ns, fitted to 850 random products on an H200: half of the estimates are off by less than 5%.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.gemm.matrices import Mapped

__all__ = ["GROUP", "TILE", "Way", "aligned", "sums_shape", "way_of"]


class Tile(NamedTuple):
    """A tile, and the times of a product of such tiles."""

    rows: int
    cols: int
    start: int
    """Time of a product without tiles."""
    wave: int
    """Time of a wave without steps."""
    step: int
    """Time of a step of 64 of K."""
    left: int
    """Time that straddling rows of the left operand alone add to a step."""
    right: int
    """Time that those of the right operand alone add."""
    both: int
    """Time that those of both operands add."""

    def tiles(self, batch: int, rows: int, cols: int) -> int:
        """Return the number of tiles of a product."""
        return batch * -(-rows // self.rows) * -(-cols // self.cols)

    def time(self, waves: int, steps: float, straddles: tuple[bool, bool]) -> float:
        """Return the time of `waves` waves with `steps` steps altogether; `straddles` are of the left and right operand."""
        left, right = straddles
        more = self.both if left and right else self.right if right else self.left if left else 0
        return self.start + waves * self.wave + steps * (self.step + more)


class Way(NamedTuple):
    """How a product runs."""

    is_shared: bool
    """Whether programs share the last wave."""
    is_copied: bool
    """Whether the right operand is copied."""


TILES: Final = (
    Tile(128, 256, 4280, 2807, 633, 35, 97, 200),
    Tile(128, 128, 3146, 1839, 356, 77, 77, 185),
    Tile(64, 256, 2769, 2048, 448, 35, 186, 230),
    Tile(64, 128, 2446, 1413, 232, 55, 95, 128),
    Tile(128, 64, 3307, 826, 278, 96, 36, 180),
    Tile(64, 64, 2114, 1075, 145, 58, 70, 92),
)
"""The tiles of `bmm_sm90`."""
TILE: Final = Tile(128, 256, 14200, 1230, 699, 15, 119, 220)
"""The tile of products that share the last wave; `start` has the time of the second kernel."""
GROUP: Final = 8
STEP: Final = 64
LEAST_STEPS: Final = 6
"""A program computes at least so many steps of the last wave."""
SLOT_NS: Final = 40
"""Time to store and add up the sums of a tile."""
MOST_STEPS: Final = 1 << 31
"""The steps of all tiles of the last wave must be fewer."""
MOST_ROWS: Final = 1 << 30
"""An operand with more rows is not copied."""
COPY_NS: Final = 3000
"""Time of another launch."""
BYTES_PER_NS: Final = 2000
"""Rate at which an operand is copied."""
GAIN: Final = 0.93
"""A way is taken if it takes at most so much of the usual time: estimates are uncertain."""
ELEMENT_BYTES: Final = 2
SECTOR: Final = 16
"""Elements of a sector of memory."""
LINE: Final = 64
"""Elements of a line of memory."""
VECTOR: Final = 8


def way_of(
    maps: tuple[Mapped, Mapped], sizes: tuple[int, int, int, int], processors: int, *, may_share: bool = True
) -> Way:
    """Choose the way of a product.

    Args:
        maps: TMA descriptions of the left and the right operand.
        sizes: (B, M, N, K).
        processors: number of SMs.
        may_share: whether programs may share the last wave: there is no epilogue.
    """
    left, right = (bool(of.strides[2] % SECTOR) for of in maps)
    _, matrices, height, width = maps[1].shape
    copy = COPY_NS + matrices * height * width * ELEMENT_BYTES / BYTES_PER_NS
    may_copy = right and not width % VECTOR and matrices * height <= MOST_ROWS
    times: dict[Way, float] = {}
    for is_shared in (False, True) if may_share and _can_share(sizes, processors) else (False,):
        estimate = _shared if is_shared else _usual
        times[Way(is_shared, is_copied=False)] = estimate(sizes, processors, (left, right))
        if may_copy:
            times[Way(is_shared, is_copied=True)] = estimate(sizes, processors, (left, False)) + copy
    best, usual = min(times, key=times.__getitem__), Way(is_shared=False, is_copied=False)
    return best if times[best] < GAIN * times[usual] else usual


def _usual(sizes: tuple[int, int, int, int], processors: int, straddles: tuple[bool, bool]) -> float:
    """Return the time of a product in whole waves, with the tile that is best for aligned operands, as the tables choose it."""
    *sides, depth = sizes
    steps = -(-depth // STEP)
    waves = {tile: -(-tile.tiles(*sides) // processors) for tile in TILES}
    best = min(TILES, key=lambda tile: tile.time(waves[tile], waves[tile] * steps, (False, False)))
    return best.time(waves[best], waves[best] * steps, straddles)


def _shared(sizes: tuple[int, int, int, int], processors: int, straddles: tuple[bool, bool]) -> float:
    """Return the time of a product whose programs share the last wave."""
    *sides, depth = sizes
    steps = -(-depth // STEP)
    waves, rest = divmod(TILE.tiles(*sides), processors)
    part = max(rest * steps / processors, LEAST_STEPS)
    return TILE.time(waves, waves * steps + part, straddles) + SLOT_NS * (processors + rest)


def _can_share(sizes: tuple[int, int, int, int], processors: int) -> bool:
    """Return whether programs can share a last wave after at least one whole wave, as they share the operands in L2."""
    *sides, depth = sizes
    waves, rest = divmod(TILE.tiles(*sides), processors)
    return waves > 0 and rest > 0 and -(-depth // STEP) * processors < MOST_STEPS


def aligned(of: Mapped) -> Mapped:
    """Return the description of a copy of a matrix, or of a batch, whose rows start on lines."""
    _, _, rows, cols = of.shape
    pitch = -(-cols // LINE) * LINE
    return of._replace(strides=(of.strides[0], rows * pitch, pitch, 1))


def sums_shape(batch: int, rows: int, cols: int, processors: int) -> tuple[int, int, int]:
    """Return the shape of the workspace, fp32: a tile for each program, and one for each tile of the last wave."""
    return processors + TILE.tiles(batch, rows, cols) % processors, TILE.rows, TILE.cols
