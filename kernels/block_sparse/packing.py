"""How matmul kernels see a layout: block rows packed into strips, strips into tiles, long strips cut into segments.

A product reads each block of the dense operand once per strip, so high strips save traffic; but an entry of a strip, a
block column that any of its rows has, costs the multiplications of all of them. `choose_height` and `choose_tile` weigh
the two by the roofline of `_time`. All of it is a pure function of the layout and of the width of the operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

__all__ = ["Cuts", "Packing", "Sizes", "choose_height", "choose_tile", "pack"]

HEIGHTS: Final = {True: (64, 128), False: (32, 64, 128)}
"""Rows of a strip, for 16-bit operands (tensor cores take 64 rows at least) and for fp32."""
TILES: Final = {True: ((64, 128), (128, 128), (128, 256)), False: ((32, 128), (64, 128), (128, 128))}
"""Rows and columns of a tile of a sparse result, likewise."""
BALANCE: Final = {True: 80, False: 8}
"""Flops that a chip does while its L2 cache gives a byte, roughly: on an H200 700 TFLOP/s (fp32: 60) by 8 TB/s."""
SKIPPED: Final = 64
"""Rows that a kernel for 16-bit operands multiplies alone (that for sm_90): of larger blocks none is multiplied in vain."""
BLOCK_N: Final = 256
"""Columns of the dense operand that the model of a strip reckons with."""
LONG: Final = 2
"""A strip is cut if it has more than this many times the mean number of entries,"""
LONG_ROWS: Final = 1024
"""and more than this many rows of the dense operand."""


class Sizes(NamedTuple):
    """The numbers that belong to the tables; a tuple, so that operators can take it."""

    block: int
    rows: int
    """Block rows."""
    cols: int
    """Block columns."""
    nnz: int
    height: int
    """Rows of a strip, in elements."""
    slots: int
    """How many partial results the strips that are cut have."""
    turned_height: int
    """The same of the transpose."""
    turned_slots: int
    tile: int
    """Rows of a tile, in elements."""
    width: int
    """Columns of a tile, in elements."""

    def rows_of(self, turned: bool) -> int:
        """Return the rows of the layout, or of its transpose, in elements."""
        return (self.cols if turned else self.rows) * self.block


@dataclass(frozen=True, slots=True)
class Cuts:
    """The partial results of strips that are cut."""

    height: int
    """Rows of a strip."""
    slots: int
    shape: tuple[int, ...]
    """What they take: batch, slots, rows of a strip, padded columns."""
    atomic: bool
    """Whether tasks add to a strip's slot, in any order, instead of storing to one of their own."""

    def allocate(self, like: Tensor) -> Tensor:
        """Allocate them on the device of `like`, 0 where they are added to; something at least, that has an address."""
        make = torch.zeros if self.atomic else torch.empty
        return make(self.shape if self.slots else (4,), dtype=torch.float32, device=like.device)


class Packing(NamedTuple):
    """The tables of a layout on one device, all int32.

    An *entry* is a block column that any block row of a strip has. A *task* is a run of entries of one strip.
    """

    tables: tuple[Tensor, ...]
    """`tasks`, `columns`, `blocks`, `merges` of the layout's strips; the same of its transpose's; `strips`, `columns`,
    `blocks` of its tiles.

    tasks: [T, 5] strip, first entry, end, and the slot of the partial result and its merge (-1: a whole strip).
    columns: [E + 1] block column of each entry, and a 0.
    blocks: [E + 1, height / block] the block of each row of the strip at that entry, -1 where there is none.
    merges: [X, 3] strip, first slot, end.
    strips: [T] strip of each tile.
    columns: [T, width / block] block columns of each tile, -1 past the end.
    blocks: [T, height / block, width / block] the blocks of each tile, -1 where there is none.
    """
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class _Strips:
    """The entries of every strip: [E] each, ordered by strip and column."""

    strip: Tensor
    """Numbered through all heads."""
    column: Tensor
    blocks: Tensor
    """[E, block rows of a strip]."""
    lengths: Tensor
    """Entries of each strip."""


def pack(active: Tensor, block: int, narrow: bool, device: torch.device) -> Packing:
    """Make the tables of a layout.

    Args:
        active: [H, rows, cols] bool, on the CPU.
        block: the block size.
        narrow: whether operands have 16 bits.
        device: where the tables go.
    """
    index = torch.full(active.shape, -1, dtype=torch.int32, device=active.device)
    nnz = int(active.sum())
    index[active] = torch.arange(nnz, dtype=torch.int32, device=active.device)
    height, turned_height = choose_height(active, block, narrow), choose_height(active.mT, block, narrow)
    tile, width = choose_tile(active, block, narrow)
    *straight, slots = _tasks(_strips(index, height // block), block)
    *turned, turned_slots = _tasks(_strips(index.mT, turned_height // block), block)
    tables = (*straight, *turned, *_tiles(_strips(index, tile // block), width // block))
    _, rows, cols = active.shape
    sizes = Sizes(block, rows, cols, nnz, height, slots, turned_height, turned_slots, tile, width)
    return Packing(tuple(table.to(torch.int32).contiguous().to(device) for table in tables), sizes)


def choose_height(active: Tensor, block: int, narrow: bool) -> int:
    """Choose how many rows a strip has: the height whose entries take least time, of equals the largest."""

    def time(height: int) -> float:
        here, entries = _occupied(active, height // block)
        moved = here * block * block + entries * block * BLOCK_N
        rows = here * block if narrow and block >= SKIPPED else entries * height
        return _time(rows * block * BLOCK_N, moved, narrow)

    return min((height for height in reversed(HEIGHTS[narrow]) if height >= block), key=time)


def choose_tile(active: Tensor, block: int, narrow: bool) -> tuple[int, int]:
    """Choose the rows and columns of a tile likewise."""

    def time(shape: tuple[int, int]) -> float:
        height, width = shape
        lengths = _union(active, height // block).sum(-1)
        tiles = int((-(-lengths // (width // block))).sum())
        return _time(tiles * height * width, tiles * height + int(lengths.sum()) * block, narrow)

    return min((shape for shape in reversed(TILES[narrow]) if shape[0] >= block), key=time)


def _time(products: int, loads: int, narrow: bool) -> float:
    """Model the time of some multiply-adds and loads of elements from the cache, in bytes of the latter.

    Whichever takes longer counts, and a little of the other one, which no schedule hides entirely.
    """
    work = 2 * products / BALANCE[narrow]
    moved = loads * (2 if narrow else 4)
    return max(work, moved) + 0.1 * min(work, moved)


def _union(active: Tensor, group: int) -> Tensor:
    """Say which block columns each strip of `group` block rows has: [H, strips, cols]."""
    return _grouped(active, group, False).any(2)


def _occupied(active: Tensor, group: int) -> tuple[int, int]:
    """Count the blocks of a layout, and the entries of its strips."""
    return int(active.sum()), int(_union(active, group).sum())


def _grouped(value: Tensor, group: int, fill: int) -> Tensor:
    """Group block rows into strips, the last one filled up: [H, strips, group, cols]."""
    heads, rows, cols = value.shape
    strips = -(-rows // group)
    missing = value.new_full((heads, strips * group - rows, cols), fill)
    return torch.cat([value, missing], 1).view(heads, strips, group, cols)


def _strips(index: Tensor, group: int) -> _Strips:
    """List the entries of the strips of an index [H, rows, cols] of blocks, -1 where there is none."""
    grouped = _grouped(index, group, -1)
    here = (grouped >= 0).any(2)
    head, strip, column = here.nonzero().unbind(1)
    blocks = grouped[head, strip, :, column]
    return _Strips(head * here.shape[1] + strip, column, blocks, here.sum(-1).flatten())


def _tasks(strips: _Strips, block: int) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Cut long strips into tasks of nearly equal length: tasks, columns, blocks, merges and the number of slots."""
    lengths = strips.lengths
    limit = _limit(lengths, block)
    parts = (-(-lengths // limit)).clamp_min(1)
    strip = torch.arange(len(lengths), device=lengths.device).repeat_interleave(parts)
    part = torch.arange(len(strip), device=strip.device) - (parts.cumsum(0) - parts)[strip]
    begin = (lengths.cumsum(0) - lengths)[strip]
    first = begin + part * lengths[strip] // parts[strip]
    end = begin + (part + 1) * lengths[strip] // parts[strip]
    cut = parts[strip] > 1
    slot = torch.where(cut, cut.cumsum(0) - 1, -1)
    none = strips.blocks.new_full((1, strips.blocks.shape[1]), -1)
    many = (parts > 1).nonzero()[:, 0]
    last = parts[many].cumsum(0)
    merges = torch.stack([many, last - parts[many], last], 1)
    merge = torch.where(cut, (parts > 1).cumsum(0)[strip] - 1, -1)
    tasks = torch.stack([strip, first, end, slot, merge], 1)
    # kernels read one entry ahead
    columns, blocks = torch.cat([strips.column, strips.column.new_zeros(1)]), torch.cat([strips.blocks, none])
    return tasks, columns, blocks, merges, int(cut.sum())


def _limit(lengths: Tensor, block: int) -> int:
    """Return how many entries a task has at most."""
    present = lengths[lengths > 0]
    mean = -(-int(present.sum()) // len(present)) if len(present) else 1
    return max(LONG * mean, LONG_ROWS // block)


def _tiles(strips: _Strips, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut the entries of each strip into tiles of `width`: strips, columns, blocks."""
    lengths = strips.lengths
    tiles = -(-lengths // width)
    strip = torch.arange(len(lengths), device=lengths.device).repeat_interleave(tiles)
    place = torch.arange(len(strips.strip), device=lengths.device) - (lengths.cumsum(0) - lengths)[strips.strip]
    tile = (tiles.cumsum(0) - tiles)[strips.strip] + place // width
    columns = torch.full((len(strip), width), -1, device=lengths.device)
    blocks = torch.full((len(strip), strips.blocks.shape[1], width), -1, device=lengths.device)
    columns[tile, place % width] = strips.column
    blocks[tile, :, place % width] = strips.blocks.long()
    return strip, columns, blocks
