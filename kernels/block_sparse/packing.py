"""Tables for block-sparse products: block rows are grouped into strips, strips cut into tiles, long strips split.

A *strip* is one or several consecutive block rows, which one program processes together. An *entry* of a strip is a
block column where any of its block rows has a block.

For each entry a product reads the rows of the dense operand once, so high strips save traffic. But each entry also
costs multiplications for all rows of the strip, blocks or not. `choose_height` and `choose_tile` weigh both with the
roofline model in `_time`. All functions depend only on the layout and on the size of the operands' elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.tensor_maps import has_maps
from nojit.kernels.products.agreed_sizes import CONSUMER_ROWS
from torch import Tensor

__all__ = ["Cuts", "Packing", "Sizes", "choose_height", "choose_tile", "is_long", "pack"]

HEIGHTS: Final = {True: (64, 128), False: (32, 64, 128)}
"""Possible rows of a strip, the block rows that a program processes together: for 16-bit operands (True) and fp32 (False).

wgmma, for 16-bit operands, takes at least 64 rows.
"""
TILES: Final = {True: ((64, 128), (128, 128), (128, 256)), False: ((32, 128), (64, 128), (128, 128))}
"""Possible (rows, columns) of a sparse result's tile, for 16-bit operands (True) and for fp32 (False)."""
BALANCE: Final = {True: 80, False: 8}
"""Flops per byte of L2 bandwidth, roughly: on an H200 700 TFLOP/s, or 60 for fp32 (False), by 8 TB/s."""
SKIPPING: Final = 32
"""The least block size for which the 16-bit kernels, those for sm_90, skip absent blocks."""
BLOCK_N: Final = 256
"""Columns of the dense operand that the model of the strip height assumes."""
LONG: Final = 2
"""A strip (group of block rows) is split only if it has more than this many times the mean number of block columns.

`LONG_ROWS` and `SHARE` are further conditions.
"""
LONG_ROWS: Final = 1024
"""A strip (group of block rows) is split only if it reads more than this many rows of the dense operand."""
SHARE: Final = 3
"""A strip (group of block rows) is split only if it is more than this many times an average program's part of the work."""
PROGRAMS: Final = 132
"""Number of programs that the condition `SHARE` assumes: the SMs of an H200."""
BEGINNING: Final = 192
"""Fixed cost of a task, all or part of a strip (group of block rows), in units of the time per row of the dense operand."""


class StripSizes(NamedTuple):
    """Sizes of the strips (groups of block rows) of a layout, or of its transpose: six fields of `Sizes`."""

    height: int
    slots: int
    longest: int
    entries: int
    long: int
    ahead: int


class Sizes(NamedTuple):
    """Sizes that accompany the tables of `Packing`; a tuple, so that torch operators can take it."""

    block: int
    rows: int
    """Number of block rows per head."""
    cols: int
    """Number of block columns."""
    nnz: int
    height: int
    """Rows of a strip, the block rows that a program processes together, in elements."""
    slots: int
    """Number of slots for partial sums: one for each part of a strip (group of block rows) that is split."""
    longest: int
    """Number of entries, block columns with a block, in the longest strip (group of block rows)."""
    entries: int
    """Number of entries, block columns with a block, in all strips (groups of block rows)."""
    long: int
    """Number of strips (groups of block rows) with more than `LONG` times the mean number of block columns.

    They are the first rows of the table `whole`.
    """
    ahead: int
    """Number of other strips (groups of block rows) that together take about as long as one of the `long` strips."""
    transposed_height: int
    """Rows of a strip (group of block rows) of the transpose; the next five fields are `slots` to `ahead` for it."""
    transposed_slots: int
    transposed_longest: int
    transposed_entries: int
    transposed_long: int
    transposed_ahead: int
    tile: int
    """Rows of a tile of a sparse result, in elements."""
    width: int
    """Columns of a tile of a sparse result, in elements."""

    def strips_of(self, is_transposed: bool) -> StripSizes:
        """Return the sizes of the strips (groups of block rows) of the layout or, if `is_transposed`, of its transpose."""
        first = Sizes._fields.index("transposed_height" if is_transposed else "height")
        return StripSizes(*self[first : first + len(StripSizes._fields)])

    def rows_of(self, is_transposed: bool) -> int:
        """Return the number of rows of the layout, or of its transpose if `is_transposed`, in elements."""
        return (self.cols if is_transposed else self.rows) * self.block


@dataclass(frozen=True, slots=True)
class Cuts:
    """How a product of sparse by dense splits long strips (groups of block rows), and the shape of partial sums."""

    height: int
    """Rows of a strip, the block rows that a program processes together, in elements."""
    slots: int
    shape: tuple[int, ...]
    """Shape of the partial results: [batch, slots, rows of a strip, padded columns]."""
    atomic: bool
    """True if all parts of a strip add to one slot of partial sums, in any order; False if each part has a slot."""
    long: int
    """Number of long tasks (strips that a program processes alone), which come first; 0 if long strips are split."""
    ahead: int
    """Number of other tasks that together take about as long as one of the `long` tasks."""

    def allocate(self, like: Tensor, caller: Caller = DIRECT) -> Tensor:
        """Allocate the partial results (fp32) on the device of `like`, zeroed for atomic adds.

        Without slots, it returns four elements that nothing reads, since kernels need an address.

        `caller`: allocates and launches, or also records both for replays.
        """
        if not self.slots:
            nothing = like.new_empty(4, dtype=torch.float32)
            caller.constant(nothing)
            return nothing
        make = Tensor.new_zeros if self.atomic else Tensor.new_empty
        return caller.make(make, like, self.shape, dtype=torch.float32)


class Packing(NamedTuple):
    """The tables of a layout for matrix products on one device, all int32, and their sizes.

    A *strip* is one or several consecutive block rows. An *entry* of a strip is a block column where any of its block
    rows has a block. A *task* is some or all consecutive entries of one strip. A *tile* is a strip and some of its
    columns.
    """

    tables: tuple[Tensor, ...]
    """`tasks`, `entries`, `blocks`, `merges`, `whole` of the strips; the same for the transpose; then the tiles'.

    tasks: [T, 5] strip, first entry, end of the entries, slot of the partial result, row in `merges` (the last two are
    -1 if the task is a whole strip).
    entries: [E + 1, 2] block column, and the halves of the strip that have a block there (1: upper, 2: lower, 3: both).
    blocks: [E + 1, height / block] the number of the block in each block row of the strip at that entry, -1 if absent.
    merges: [X, 3] split strips: strip, first slot, end of the slots.
    whole: [strips, 5] the tasks if no strip is split, long ones first.
    tiles: [T, 3] strip, and how many columns, in elements, its upper and its lower half need.
    columns: [T, width / block] block columns of each tile, -1 past the end.
    blocks: [T, height / block, width / block] the numbers of the blocks of each tile, -1 if absent.
    """
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class _Strips:
    """Block columns with a block (entries) of all strips (groups of block rows), as tensors of length E.

    They are ordered by strip and column.
    """

    strip: Tensor
    """Strip (group of block rows) of each entry, numbered across all heads."""
    column: Tensor
    blocks: Tensor
    """[E, block rows of a strip]: the number of each block, -1 if absent."""
    lengths: Tensor
    """Number of entries, block columns with a block, of each strip."""
    strips: int
    """Number of strips per head."""
    cols: int
    """Number of block columns."""


def pack(active: Tensor, block: int, narrow: bool, device: torch.device) -> Packing:
    """Build the tables of a layout for matrix products.

    Args:
        active: [H, rows, cols] bool, on the CPU.
        block: rows and columns of a block.
        narrow: True for 16-bit operands.
        device: the device to copy the tables to.
    """
    index = torch.full(active.shape, -1, dtype=torch.int32, device=active.device)
    nnz = int(active.sum())
    index[active] = torch.arange(nnz, dtype=torch.int32, device=active.device)
    height, transposed_height = choose_height(active, block, narrow), choose_height(active.mT, block, narrow)
    tile, width = choose_tile(active, block, narrow, narrow and block >= SKIPPING and has_maps(device))
    straight, numbers = _tasks(_strips(index, height // block), block)
    transposed, transposed_numbers = _tasks(_strips(index.mT, transposed_height // block), block)
    tables = (*straight, *transposed, *_tiles(_strips(index, tile // block), width // block, block))
    _, rows, cols = active.shape
    sizes = Sizes(block, rows, cols, nnz, height, *numbers, transposed_height, *transposed_numbers, tile, width)
    return Packing(tuple(table.to(torch.int32).contiguous().to(device) for table in tables), sizes)


def choose_height(active: Tensor, block: int, narrow: bool) -> int:
    """Choose the rows of a strip, the block rows that a program processes together, for a product of sparse by dense.

    The height has the least modelled time; among equals, it is the largest. `narrow` is True for 16-bit operands.

    `active`: bool [H, block rows, block columns], True for active blocks.
    """

    def time(height: int) -> float:
        here, entries = int(active.sum()), _occupied(active, height // block)
        moved = here * block * block + entries * block * BLOCK_N
        rows = (
            _occupied(active, max(CONSUMER_ROWS // block, 1)) * max(CONSUMER_ROWS, block)
            if narrow and block >= SKIPPING
            else entries * height
        )
        return _time(rows * block * BLOCK_N, moved, narrow)

    return min((height for height in reversed(HEIGHTS[narrow]) if height >= block), key=time)


def choose_tile(active: Tensor, block: int, narrow: bool, over_maps: bool = False) -> tuple[int, int]:
    """Choose the (rows, columns) of a tile for a product of dense matrices into blocks, by the least modelled time.

    Args:
        active: bool [H, block rows, block columns], True for active blocks.
        block: size of a block.
        narrow: True for 16-bit operands.
        over_maps: True for the sm_90 kernel, which takes 128 rows only. It is faster than the other kernel even if half a
            tile is wasted: with scattered blocks of 32 and 64 on an H200, 1.1 to 1.8 times.
    """

    def time(shape: tuple[int, int]) -> float:
        height, width = shape
        lengths = _union(active, height // block).sum(-1)
        tiles, halves = (int((-(-lengths // (columns // block))).sum()) for columns in (width, max(width // 2, block)))
        done = halves * (width // 2) if narrow and block >= SKIPPING else tiles * width
        return _time(done * height, tiles * height + int(lengths.sum()) * block, narrow)

    least = CONSUMER_ROWS * 2 if over_maps else block
    return min((shape for shape in reversed(TILES[narrow]) if shape[0] >= least), key=time)


def _time(products: int, loads: int, narrow: bool) -> float:
    """Return the modelled time of `products` multiply-adds and `loads` elements loaded from L2; `narrow` for 16 bits.

    The unit is the time to load one byte. The result is the longer of the two times plus a tenth of the other, which no
    schedule hides entirely.
    """
    work = 2 * products / BALANCE[narrow]
    moved = loads * (2 if narrow else 4)
    return max(work, moved) + 0.1 * min(work, moved)


def _union(active: Tensor, group: int) -> Tensor:
    """Return which block columns are active in any of a strip's `group` block rows: bool [H, strips, cols]."""
    return _grouped(active, group, False).any(2)


def _occupied(active: Tensor, group: int) -> int:
    """Count the block columns with a block in all strips of `group` block rows each.

    `active`: bool [H, block rows, block columns], True for active blocks.
    """
    return int(_union(active, group).sum())


def _grouped(value: Tensor, group: int, fill: int) -> Tensor:
    """Group block rows [H, rows, cols] into strips [H, strips, group, cols]; `fill` pads the last strip."""
    heads, rows, cols = value.shape
    strips = -(-rows // group)
    missing = value.new_full((heads, strips * group - rows, cols), fill)
    return torch.cat([value, missing], 1).view(heads, strips, group, cols)


def _strips(index: Tensor, group: int) -> _Strips:
    """List the entries of all strips of `group` block rows; `index` [H, rows, cols] has the blocks' numbers, -1 if absent.

    Entries are sorted by column modulo the mean number of entries. In window patterns, strips that are neighbours then
    read the same rows of a dense operand at the same time, and L2 loads them once.
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
    """Split long strips (groups of block rows) into tasks of nearly equal length.

    `strips`: groups of block rows.

    Returns:
        The tables tasks, entries, blocks, merges and whole of `Packing.tables`; and the fields of `StripSizes` except
        the height.
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
    # add an entry, since kernels prefetch one past the end
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
    """Return which rows or strips have more than `LONG` times the mean length of non-empty ones; lengths are in blocks."""
    return lengths * (lengths > 0).sum() > LONG * lengths.sum()


def _ahead(lengths: Tensor, long_ones: Tensor, block: int) -> int:
    """Return the number of other strips that together take about as long as a long one; 1 if none is long.

    `lengths`: number of entries (active block columns) of each strip.
    """
    if not bool(long_ones.any()):
        return 1
    long, others = (float((lengths[which] * block + BEGINNING).float().mean()) for which in (long_ones, ~long_ones))
    return max(round(long / others), 1)


def _runs(lengths: Tensor, parts: Tensor) -> Tensor:
    """List the tasks of strips (groups of block rows) that are split into `parts` each.

    Returns [T, 5]: strip, first entry, end of the entries, slot of the partial sum, row of the table merges.

    `lengths`: number of entries (active block columns) of each strip.
    """
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
    """Return how many block columns a strip (group of block rows) may have before it is split.

    `lengths`: number of entries (active block columns) of each strip.
    """
    present = lengths[lengths > 0]
    mean = -(-int(present.sum()) // len(present)) if len(present) else 1
    return max(LONG * mean, LONG_ROWS // block)


def _tiles(strips: _Strips, width: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split the block columns of each strip (group of block rows) into tiles of `width` block columns.

    In a strip, columns that both halves of the rows need come first, then those that only the upper half needs, so that
    few tiles are nearly unused by a half. Tiles of a long strip are placed beside strips with blocks in the same
    columns, so that both find the dense operand in L2. Returns the tables tiles, columns and blocks of
    `Packing.tables`.

    `strips`: groups of block rows.
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
    # 1 to `width` for present blocks, 0 for absent ones
    ends = (blocks >= 0) * torch.arange(1, width + 1, device=lengths.device)
    needs = _halves(ends).amax(-1) * block if width else ends.new_zeros(len(strip), 2)
    long_ones = is_long(lengths)[strip]
    order = torch.arange(len(strip), device=lengths.device)
    if bool(long_ones.any()):
        # absent columns (-1) sort first; take the median of the present ones
        middle = columns.sort(1).values.gather(1, width - 1 - (columns >= 0).sum(1, keepdim=True) // 2)[:, 0]
        beside = strip // strips.strips * strips.strips + middle * strips.strips // strips.cols
        order = torch.where(long_ones, beside, strip).argsort(stable=True)
    return torch.cat([strip[:, None], needs], 1)[order], columns[order], blocks[order]


def _halves(value: Tensor) -> Tensor:
    """Return the maximum over the upper and the lower half of a strip's block rows (dimension 1): [E, 2, ...].

    The middle one of an odd number of block rows belongs to both halves.
    """
    rows = value.shape[1]
    return torch.stack([value[:, : -(-rows // 2)].amax(1), value[:, rows // 2 :].amax(1)], 1)
