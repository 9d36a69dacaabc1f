"""Packing of a layout for matmul kernels: block rows into strips, strips into tiles, long strips into segments.

A product reads each block of the dense operand once per strip, so high strips save traffic. But each entry of a strip (a
block column that any of its rows has) costs the multiplications of all its rows. `choose_height` and `choose_tile` weigh the
two with the roofline model of `_time`. Everything is a pure function of the layout and the operands' width.
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
"""Rows and columns of a tile of a sparse result, for 16-bit operands and for fp32."""
BALANCE: Final = {True: 80, False: 8}
"""Flops per byte of L2 bandwidth, roughly: on an H200 700 TFLOP/s (fp32: 60) by 8 TB/s."""
SKIPPING: Final = 32
"""The least block size for which the 16-bit kernels (those for sm_90) skip absent blocks."""
OWNED: Final = 64
"""The number of rows that these kernels skip at a time."""
BLOCK_N: Final = 256
"""Columns of the dense operand assumed in the model of a strip."""
LONG: Final = 2
"""A strip is split only if it has more than this many times the mean number of entries."""
LONG_ROWS: Final = 1024
"""A strip is split only if its entries also read more than this many rows of the dense operand."""
SHARE: Final = 3
"""A strip is split only if it is also more than this many times a program's share of the product."""
PROGRAMS: Final = 132
"""The number of programs assumed for `SHARE`. Splitting a strip below these limits would take longer."""
BEGINNING: Final = 192
"""The fixed cost of a task, in rows of the dense operand."""


class StripSizes(NamedTuple):
    """The sizes of one side's strips, from `Sizes`."""

    height: int
    slots: int
    longest: int
    entries: int
    long: int
    ahead: int


class Sizes(NamedTuple):
    """Sizes that accompany the tables; a tuple, so that operators can take it."""

    block: int
    rows: int
    """Block rows."""
    cols: int
    """Block columns."""
    nnz: int
    height: int
    """Rows of a strip, in elements."""
    slots: int
    """Slots for partial results of split strips."""
    longest: int
    """Entries in the longest strip."""
    entries: int
    """Entries in all strips."""
    long: int
    """The number of strips longer than `LONG` times the mean: the first ones of `whole`."""
    ahead: int
    """The number of other strips that together take about as long as one of the long strips."""
    turned_height: int
    """This and the next five fields are the same six sizes, from `height` to `ahead`, for the transpose."""
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
        """Return the sizes of the layout's strips, or of its transpose's."""
        first = Sizes._fields.index("turned_height" if turned else "height")
        return StripSizes(*self[first : first + len(StripSizes._fields)])

    def rows_of(self, turned: bool) -> int:
        """Return the rows of the layout, or of its transpose, in elements."""
        return (self.cols if turned else self.rows) * self.block


@dataclass(frozen=True, slots=True)
class Cuts:
    """The partial results of split strips."""

    height: int
    """Rows of a strip."""
    slots: int
    shape: tuple[int, ...]
    """Shape of the partial results: batch, slots, rows of a strip, padded columns."""
    atomic: bool
    """Whether tasks add to one slot per strip, in any order, instead of storing to one slot per task."""
    long: int
    """The number of long tasks, which come first; 0 if long strips are split."""
    ahead: int
    """The number of other tasks that together take about as long as a long one."""

    def allocate(self, like: Tensor, caller: Caller = DIRECT) -> Tensor:
        """Allocate the partial results on the device of `like`, zeroed for atomic adds; never empty, so that they have an address."""
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
    """`tasks`, `entries`, `blocks`, `merges`, `whole` of the layout's strips; the same for the transpose; then `tiles`,
    `columns`, `blocks` of its tiles.

    tasks: [T, 5] strip, first entry, end, slot of the partial result and its merge (-1: a whole strip).
    entries: [E + 1, 2] block column, and the halves of the strip that have a block there (1: upper, 2: lower).
    blocks: [E + 1, height / block] the block of each row of the strip at that entry, -1 if absent.
    merges: [X, 3] strip, first slot, end.
    whole: the tasks if no strip is split, long ones first.
    tiles: [T, 3] strip, and the end of the columns, in elements, that its upper and its lower half need.
    columns: [T, width / block] block columns of each tile, -1 past the end.
    blocks: [T, height / block, width / block] the blocks of each tile, -1 if absent.
    """
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class _Strips:
    """The entries of every strip: [E] each, ordered by strip and column."""

    strip: Tensor
    """Strip number, counted across all heads."""
    column: Tensor
    blocks: Tensor
    """[E, block rows of a strip]."""
    lengths: Tensor
    """Entries per strip."""
    strips: int
    """Strips per head."""
    cols: int
    """Block columns."""


def pack(active: Tensor, block: int, narrow: bool, device: torch.device) -> Packing:
    """Return the tables of a layout.

    Args:
        active: [H, rows, cols] bool, on the CPU.
        block: the block size.
        narrow: whether operands have 16 bits.
        device: the device of the tables.
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
    """Choose the rows of a strip: the height whose entries take the least time; of equals, the largest."""

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
    """Choose the rows and columns of a tile with the least time; if `over_maps`, tiles of the height that TMA kernels take.

    Those kernels win even if half a tile is wasted: scattered blocks of 32 and 64 on an H200, 1.1 to 1.8 times.
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
    """Return the modelled time of multiply-adds and element loads from the cache, in units of bytes loaded.

    It is the longer of the two plus a fraction of the other, which no schedule hides entirely.
    """
    work = 2 * products / BALANCE[narrow]
    moved = loads * (2 if narrow else 4)
    return max(work, moved) + 0.1 * min(work, moved)


def _union(active: Tensor, group: int) -> Tensor:
    """Mark the block columns that are active in any of a strip's `group` block rows: bool [H, strips, cols]."""
    return _grouped(active, group, False).any(2)


def _occupied(active: Tensor, group: int) -> int:
    """Count the entries of strips of `group` block rows."""
    return int(_union(active, group).sum())


def _grouped(value: Tensor, group: int, fill: int) -> Tensor:
    """Group block rows into strips, padding the last one: [H, strips, group, cols]."""
    heads, rows, cols = value.shape
    strips = -(-rows // group)
    missing = value.new_full((heads, strips * group - rows, cols), fill)
    return torch.cat([value, missing], 1).view(heads, strips, group, cols)


def _strips(index: Tensor, group: int) -> _Strips:
    """List the entries of the strips of an index [H, rows, cols] of blocks, -1 where absent.

    Entries are sorted by column modulo the mean number of entries. Neighbours in a window then read the same rows of a
    dense operand at the same time, and the cache loads them once.
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
    """Split long strips into tasks of nearly equal length.

    Returns tasks, entries, blocks, merges and whole; and the fields of `StripSizes` except the height.
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
    # kernels prefetch one entry past the end
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
    """Return which rows or strips have more than `LONG` times the mean of non-empty ones."""
    return lengths * (lengths > 0).sum() > LONG * lengths.sum()


def _ahead(lengths: Tensor, long_ones: Tensor, block: int) -> int:
    """Return the number of other strips that together take about as long as a long one; 1 without long ones."""
    if not bool(long_ones.any()):
        return 1
    long, others = (float((lengths[which] * block + BEGINNING).float().mean()) for which in (long_ones, ~long_ones))
    return max(round(long / others), 1)


def _runs(lengths: Tensor, parts: Tensor) -> Tensor:
    """List the runs of entries of strips split into `parts`: strip, first entry, end, slot, merge."""
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
    """Return the most entries of a task."""
    present = lengths[lengths > 0]
    mean = -(-int(present.sum()) // len(present)) if len(present) else 1
    return max(LONG * mean, LONG_ROWS // block)


def _tiles(strips: _Strips, width: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split the entries of each strip into tiles of `width` block columns: tiles, columns, blocks.

    Columns that both halves of a strip have come first, then those of the upper half, so that few tiles are nearly unused
    by a half. Tiles of a long strip are placed beside strips with blocks in the same columns, so that both hit the cache.
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
    # 1 to `width` for present blocks
    ends = (blocks >= 0) * torch.arange(1, width + 1, device=lengths.device)
    needs = _halves(ends).amax(-1) * block if width else ends.new_zeros(len(strip), 2)
    long_ones = is_long(lengths)[strip]
    order = torch.arange(len(strip), device=lengths.device)
    if bool(long_ones.any()):
        # absent columns sort first; take the median of the present ones
        middle = columns.sort(1).values.gather(1, width - 1 - (columns >= 0).sum(1, keepdim=True) // 2)[:, 0]
        beside = strip // strips.strips * strips.strips + middle * strips.strips // strips.cols
        order = torch.where(long_ones, beside, strip).argsort(stable=True)
    return torch.cat([strip[:, None], needs], 1)[order], columns[order], blocks[order]


def _halves(value: Tensor) -> Tensor:
    """Return the maximum over each half of a strip's rows (dimension 1); a single row is used twice: [E, 2, ...]."""
    rows = value.shape[1]
    return torch.stack([value[:, : -(-rows // 2)].amax(1), value[:, rows // 2 :].amax(1)], 1)
