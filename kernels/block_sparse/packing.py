"""How matmul kernels see a layout: block rows packed into strips, strips into tiles, long strips cut into segments.

A product reads each block of the dense operand once per strip, so high strips save traffic; but an entry of a strip, a
block column that any of its rows has, costs the multiplications of all of them. `choose_height` and `choose_tile` weigh
the two by the roofline of `_time`. All of it is a pure function of the layout and of the width of the operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from nojit.kernels.maps import has_maps
from nojit.kernels.memos import DIRECT, Caller
from torch import Tensor

__all__ = ["Cuts", "Packing", "Sizes", "choose_height", "choose_tile", "is_long", "pack"]

HEIGHTS: Final = {True: (64, 128), False: (32, 64, 128)}
"""Rows of a strip, for 16-bit operands (tensor cores take 64 rows at least) and for fp32."""
TILES: Final = {True: ((64, 128), (128, 128), (128, 256)), False: ((32, 128), (64, 128), (128, 128))}
"""Rows and columns of a tile of a sparse result, likewise."""
BALANCE: Final = {True: 80, False: 8}
"""Flops that a chip does while its L2 cache gives a byte, roughly: on an H200 700 TFLOP/s (fp32: 60) by 8 TB/s."""
SKIPPING: Final = 32
"""The least block of kernels for 16-bit operands that skip what has no block (those for sm_90),"""
OWNED: Final = 64
"""and how many rows they skip at a time."""
BLOCK_N: Final = 256
"""Columns of the dense operand that the model of a strip reckons with."""
LONG: Final = 2
"""A strip is cut if it has more than this many times the mean number of entries,"""
LONG_ROWS: Final = 1024
"""more than this many rows of the dense operand,"""
SHARE: Final = 3
"""and in a product more than so many times what a program does if `PROGRAMS` share the work:"""
PROGRAMS: Final = 132
"""otherwise it takes less time than sums that go through memory."""
BEGINNING: Final = 192
"""The rows of the dense operand that a task takes as long as before its first and behind its last, roughly."""


class StripSizes(NamedTuple):
    """What `Sizes` says of strips."""

    height: int
    slots: int
    longest: int
    entries: int
    long: int
    ahead: int


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
    longest: int
    """Entries of the longest strip."""
    entries: int
    """Entries of all strips."""
    long: int
    """How many strips are longer than `LONG` times the mean: the first of `whole`."""
    ahead: int
    """How many others take as long as one of them, at least."""
    turned_height: int
    """The same six of the transpose."""
    turned_slots: int
    turned_longest: int
    turned_entries: int
    turned_long: int
    turned_ahead: int
    tile: int
    """Rows of a tile, in elements."""
    width: int
    """Columns of a tile, in elements."""

    def strips_of(self, turned: bool) -> StripSizes:
        """Return what is said of the layout's strips, or of its transpose's."""
        first = Sizes._fields.index("turned_height" if turned else "height")
        return StripSizes(*self[first : first + len(StripSizes._fields)])

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
    long: int
    """How many tasks are long, the first ones; 0 where they are cut."""
    ahead: int
    """As in `Sizes`."""

    def allocate(self, like: Tensor, caller: Caller = DIRECT) -> Tensor:
        """Allocate them on the device of `like`, 0 where they are added to; something at least, that has an address."""
        if not self.slots:
            nothing = like.new_empty(4, dtype=torch.float32)
            caller.constant(nothing)
            return nothing
        make = Tensor.new_zeros if self.atomic else Tensor.new_empty
        return caller.make(make, like, self.shape, dtype=torch.float32)


class Packing(NamedTuple):
    """The tables of a layout on one device, all int32.

    An *entry* is a block column that any block row of a strip has. A *task* is a run of entries of one strip.
    """

    tables: tuple[Tensor, ...]
    """`tasks`, `entries`, `blocks`, `merges`, `whole` of the layout's strips; the same of its transpose's; `tiles`,
    `columns`, `blocks` of its tiles.

    tasks: [T, 5] strip, first entry, end, and the slot of the partial result and its merge (-1: a whole strip).
    entries: [E + 1, 2] block column, and which halves of the strip have a block there (1: the upper, 2: the lower).
    blocks: [E + 1, height / block] the block of each row of the strip at that entry, -1 where there is none.
    merges: [X, 3] strip, first slot, end.
    whole: the tasks where no strip is cut, the long ones first.
    tiles: [T, 3] strip, and up to which column, in elements, its upper and its lower half have blocks.
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
    strips: int
    """Strips of a head."""
    cols: int
    """Block columns."""


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
    tile, width = choose_tile(active, block, narrow, narrow and block >= SKIPPING and has_maps(device))
    straight, numbers = _tasks(_strips(index, height // block), block)
    turned, turned_numbers = _tasks(_strips(index.mT, turned_height // block), block)
    tables = (*straight, *turned, *_tiles(_strips(index, tile // block), width // block, block))
    _, rows, cols = active.shape
    sizes = Sizes(block, rows, cols, nnz, height, *numbers, turned_height, *turned_numbers, tile, width)
    return Packing(tuple(table.to(torch.int32).contiguous().to(device) for table in tables), sizes)


def choose_height(active: Tensor, block: int, narrow: bool) -> int:
    """Choose how many rows a strip has: the height whose entries take least time, of equals the largest."""

    def time(height: int) -> float:
        here, entries = int(active.sum()), _occupied(active, height // block)
        moved = here * block * block + entries * block * BLOCK_N
        rows = (
            _occupied(active, max(OWNED // block, 1)) * max(OWNED, block)
            if narrow and block >= SKIPPING
            else entries * height
        )
        return _time(rows * block * BLOCK_N, moved, narrow)

    return min((height for height in reversed(HEIGHTS[narrow]) if height >= block), key=time)


def choose_tile(active: Tensor, block: int, narrow: bool, over_maps: bool = False) -> tuple[int, int]:
    """Choose the rows and columns of a tile likewise; high ones if that is what a kernel over tensor maps takes.

    They are faster even where half of them is in vain: scattered blocks of 32 and 64 on an H200, 1.1 to 1.8 times.
    """

    def time(shape: tuple[int, int]) -> float:
        height, width = shape
        lengths = _union(active, height // block).sum(-1)
        tiles, halves = (int((-(-lengths // (columns // block))).sum()) for columns in (width, max(width // 2, block)))
        done = halves * (width // 2) if narrow and block >= SKIPPING else tiles * width
        return _time(done * height, tiles * height + int(lengths.sum()) * block, narrow)

    least = OWNED * 2 if over_maps else block
    return min((shape for shape in reversed(TILES[narrow]) if shape[0] >= least), key=time)


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


def _occupied(active: Tensor, group: int) -> int:
    """Count the entries of strips of `group` block rows."""
    return int(_union(active, group).sum())


def _grouped(value: Tensor, group: int, fill: int) -> Tensor:
    """Group block rows into strips, the last one filled up: [H, strips, group, cols]."""
    heads, rows, cols = value.shape
    strips = -(-rows // group)
    missing = value.new_full((heads, strips * group - rows, cols), fill)
    return torch.cat([value, missing], 1).view(heads, strips, group, cols)


def _strips(index: Tensor, group: int) -> _Strips:
    """List the entries of the strips of an index [H, rows, cols] of blocks, -1 where there is none.

    A strip's entries are ordered by column modulo the mean number of entries, so that neighbours in a window read the same
    rows of a dense operand at the same time: the cache is then asked once for all of them.
    """
    grouped = _grouped(index, group, -1)
    here = (grouped >= 0).any(2)
    head, strip, column = here.nonzero().unbind(1)
    lengths = here.sum(-1).flatten()
    period = max(round(len(strip) / max(int((lengths > 0).sum()), 1)), 1)
    order = torch.argsort((head * here.shape[1] + strip) * period + column % period, stable=True)
    head, strip, column = head[order], strip[order], column[order]
    blocks = grouped[head, strip, :, column]
    return _Strips(head * here.shape[1] + strip, column, blocks, lengths, *here.shape[1:])


def _tasks(strips: _Strips, block: int) -> tuple[tuple[Tensor, ...], tuple[int, int, int, int, int]]:
    """Cut long strips into tasks of nearly equal length.

    Returns tasks, entries, blocks, merges and whole; and of `StripSizes` all but the height.
    """
    lengths = strips.lengths
    long_ones = is_long(lengths)
    whole = _runs(lengths, torch.ones_like(lengths))[(~long_ones).to(torch.int8).argsort(stable=True)]
    parts = (-(-lengths // _limit(lengths, block))).clamp_min(1)
    tasks = _runs(lengths, parts)
    none = strips.blocks.new_full((1, strips.blocks.shape[1]), -1)
    halves = (_halves(strips.blocks >= 0) * torch.tensor([1, 2], device=lengths.device)).sum(1)
    many = (parts > 1).nonzero()[:, 0]
    last = parts[many].cumsum(0)
    merges = torch.stack([many, last - parts[many], last], 1)
    # kernels read one entry ahead
    entries = torch.stack([strips.column, halves], 1)
    entries, blocks = torch.cat([entries, entries.new_zeros(1, 2)]), torch.cat([strips.blocks, none])
    longest = int(lengths.max()) if len(lengths) else 0
    slots, long = int((tasks[:, 3] >= 0).sum()), int(long_ones.sum())
    return (tasks, entries, blocks, merges, whole), (
        slots,
        longest,
        len(strips.strip),
        long,
        _ahead(lengths, long_ones, block),
    )


def is_long(lengths: Tensor) -> Tensor:
    """Say which rows or strips have more than `LONG` times the mean of those that have anything."""
    return lengths * (lengths > 0).sum() > LONG * lengths.sum()


def _ahead(lengths: Tensor, long_ones: Tensor, block: int) -> int:
    """Return how many other strips take as long as a long one, if there is one."""
    if not bool(long_ones.any()):
        return 1
    long, others = (float((lengths[which] * block + BEGINNING).float().mean()) for which in (long_ones, ~long_ones))
    return max(round(long / others), 1)


def _runs(lengths: Tensor, parts: Tensor) -> Tensor:
    """List the runs of entries of strips that are cut into so many parts: strip, first entry, end, slot, merge."""
    strip = torch.arange(len(lengths), device=lengths.device).repeat_interleave(parts)
    part = torch.arange(len(strip), device=strip.device) - (parts.cumsum(0) - parts)[strip]
    begin = (lengths.cumsum(0) - lengths)[strip]
    first = begin + part * lengths[strip] // parts[strip]
    end = begin + (part + 1) * lengths[strip] // parts[strip]
    cut = parts[strip] > 1
    slot = torch.where(cut, cut.cumsum(0) - 1, -1)
    merge = torch.where(cut, (parts > 1).cumsum(0)[strip] - 1, -1)
    return torch.stack([strip, first, end, slot, merge], 1)


def _limit(lengths: Tensor, block: int) -> int:
    """Return how many entries a task has at most."""
    present = lengths[lengths > 0]
    mean = -(-int(present.sum()) // len(present)) if len(present) else 1
    return max(LONG * mean, LONG_ROWS // block)


def _tiles(strips: _Strips, width: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut the entries of each strip into tiles of `width` block columns: tiles, columns, blocks.

    In a strip columns that both halves have come first, then those of the upper half, so that tiles are few that a half
    needs little of. Those of a long strip lie beside the strips that have blocks in the same columns, so that the cache is
    asked once for both.
    """
    lengths = strips.lengths
    tiles = -(-lengths // width)
    strip = torch.arange(len(lengths), device=lengths.device).repeat_interleave(tiles)
    upper, lower = _halves(strips.blocks >= 0).unbind(1)
    order = torch.argsort(strips.strip * 3 + torch.where(upper & lower, 0, torch.where(upper, 1, 2)), stable=True)
    place = torch.arange(len(strips.strip), device=lengths.device) - (lengths.cumsum(0) - lengths)[strips.strip]
    tile = (tiles.cumsum(0) - tiles)[strips.strip] + place // width
    columns = torch.full((len(strip), width), -1, device=lengths.device)
    blocks = torch.full((len(strip), strips.blocks.shape[1], width), -1, device=lengths.device)
    columns[tile, place % width] = strips.column[order]
    blocks[tile, :, place % width] = strips.blocks[order].long()
    # 1 to `width` where there is a block
    ends = (blocks >= 0) * torch.arange(1, width + 1, device=lengths.device)
    needs = _halves(ends).amax(-1) * block if width else ends.new_zeros(len(strip), 2)
    long_ones = is_long(lengths)[strip]
    order = torch.arange(len(strip), device=lengths.device)
    if bool(long_ones.any()):
        # a column that is not there is the least; of those that are, the one in the middle
        middle = columns.sort(1).values.gather(1, width - 1 - (columns >= 0).sum(1, keepdim=True) // 2)[:, 0]
        beside = strip // strips.strips * strips.strips + middle * strips.strips // strips.cols
        order = torch.where(long_ones, beside, strip).argsort(stable=True)
    return torch.cat([strip[:, None], needs], 1)[order], columns[order], blocks[order]


def _halves(value: Tensor) -> Tensor:
    """Take the largest of each half of the rows of a strip, its second dimension; of one row, twice: [E, 2, ...]."""
    rows = value.shape[1]
    return torch.stack([value[:, : -(-rows // 2)].amax(1), value[:, rows // 2 :].amax(1)], 1)
