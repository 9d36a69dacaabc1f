"""Masks in the form that kernels read: `MaskTables`.

It holds one mask in one of three *modes*:

``"band"``      query m sees the keys from m + `left` to m + `right`: no mask, causal of any alignment, sliding windows.
                It has no tables.
``"interval"``  each query sees one interval of keys, and each key is seen by one interval of queries: documents,
                prefixes. `spans` of a `Side` has the first position and the exclusive end, int32 [Bm, Hm, length, 2];
                an empty one is (count, 0). `blocks` has hulls (`nojit.kernels.block_mask.hulls`), the bounds of all that
                neighbours see: by query for each 64 queries, int32 [Bm, Hm, cdiv(M, 64), 4]; by key for each 128 keys,
                int32 [Bm, Hm, cdiv(N, 128), 4], if they are orderly.
``"bitmap"``    any other mask, in blocks of `block` x `block`. `spans` is int32 [Bm, Hm, block rows, 3]: where the list
                of a block row starts in `blocks`, its number of full blocks, which come first, and its number of
                blocks. `blocks` is int32 [entries, 2]: the block column, and the index of its bitmap (-1 if it is
                full). `bits` is int32 [bitmaps, block, block / 32]: bit ``n % 32`` of the word ``n // 32`` of row m
                tells whether query m of the block sees its key n. Positions past the end of queries or keys are masked,
                so a full block has none.

A table has two sides: `by_query` lists the keys of queries, for the forward pass and the gradient of queries. `by_key`
lists the queries of keys, for the gradients of keys and values; it swaps rows and columns but shares the bitmaps, whose
rows are queries. Bm and Hm are the numbers of batches and heads, or 1 if all have the same mask. Equal bitmaps are
stored once.

In the sm_90 backward kernel a program owns a tile of keys, and such tiles take turns to add to a tile of queries. For
bitmaps of 128 x 128 the kernel reads `visits`, int32 [entries, 3], which repeats the lists of `by_key`, each in the
order of its queries: the block row, the index of its bitmap (-1 if it is full), and the number of key blocks before
this one in that row. Bitmaps of visits have keys as rows; in `bits` they follow all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from nojit.kernels.block_mask.hulls import KEYS, QUERIES, are_orderly, hulls_of
from nojit.kernels.block_mask.intervals import FULL, PARTIAL, Spans, band_of
from nojit.kernels.calls.tensor_maps import nothing
from nojit.kernels.calls.torch_state import for_caching, has_modes
from torch import Tensor

__all__ = [
    "MODES",
    "WORD",
    "MaskTables",
    "Side",
    "band_tables",
    "bitmap_tables",
    "interval_tables",
    "no_mask",
    "packed",
    "transposed",
]

MODES: Final = ("band", "interval", "bitmap")
WORD: Final = 32
"""Keys in a 32-bit word of a bitmap."""
_UNREAD: Final[dict[torch.device, Tensor]] = {}
WIDE: Final = 128
"""The larger of the two block sizes of bitmaps, 64 and 128."""


class Side(NamedTuple):
    """The tables of a mask by query or by key: spans and blocks."""

    spans: Tensor
    blocks: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class MaskTables:
    """A mask on one device, in the form that kernels read; the module's docstring describes the modes and tables."""

    mode: str
    """``"band"``, ``"interval"`` or ``"bitmap"``."""
    left: int
    """The left bound of a band, as `right` is the right one; both are 0 in other modes."""
    right: int
    block: int
    """Rows and columns of a block of bitmaps, 64 or 128; 128, and unused, in other modes."""
    batches: int
    """Bm: the number of batches with different masks; 1 if all have the same."""
    heads: int
    """Hm: the number of heads with different masks; 1 if all have the same."""
    by_query: Side
    by_key: Side
    bits: Tensor
    visits: Tensor

    @property
    def is_wide(self) -> bool:
        """Whether kernels with tiles of 128 queries by 128 keys can read the mask."""
        return self.mode != "bitmap" or self.block == WIDE

    @property
    def is_orderly(self) -> bool:
        """Whether tiles of keys can add to the gradient of a tile of queries in turn.

        They always can, except for intervals whose tables by key were left out for that reason.
        """
        return self.is_wide and (self.mode != "interval" or self.by_key.blocks.dim() > 1)

    @property
    def of_turns(self) -> tuple[Tensor, Tensor, Tensor]:
        """The tables for adding in turn: spans by key, hulls by key and by query; bitmaps: spans by key, visits, bits."""
        if self.mode == "bitmap":
            return self.by_key.spans, self.visits, self.bits
        return *self.by_key, self.by_query.blocks

    @property
    def sizes(self) -> list[int]:
        """The integers of the mask: left, right, block, batches and heads."""
        return [self.left, self.right, self.block, self.batches, self.heads]

    @property
    def tensors(self) -> list[Tensor]:
        """The six tensors: spans and blocks by query, spans and blocks by key, bits, visits."""
        return [*self.by_query, *self.by_key, self.bits, self.visits]


def no_mask(q_len: int, kv_len: int, device: torch.device) -> MaskTables:
    """Return the mask that masks nothing."""
    return band_tables(-q_len, kv_len, device)


def band_tables(left: int, right: int, device: torch.device) -> MaskTables:
    """Return the mask in which query m sees the keys from m + `left` to m + `right`."""
    unread = _unread(device)
    side = Side(unread, unread)
    return MaskTables("band", left, right, WIDE, 1, 1, side, side, unread, unread)


def _unread(device: torch.device) -> Tensor:
    """Return an empty tensor that stands for tables that no kernel reads; one for each device."""
    if torch.compiler.is_compiling() or has_modes():
        return nothing(torch.int32, device)
    if device not in _UNREAD:
        with for_caching():
            _UNREAD[device] = nothing(torch.int32, device)
    return _UNREAD[device]


def interval_tables(spans: Spans) -> MaskTables:
    """Return the tables of a mask of intervals, [Bm, Hm, M, 2] and [Bm, Hm, N, 2]; in the mode band if they form one.

    `spans`: intervals of keys of each query, and of queries of each key.
    """
    rows, cols = spans
    band = band_of(rows, cols.shape[2])
    if band is not None:
        return band_tables(*band, rows.device)
    unread = _unread(rows.device)
    batches, heads = rows.shape[:2]
    query_hulls, key_hulls = hulls_of(rows, cols.shape[2], QUERIES), hulls_of(cols, rows.shape[2], KEYS)
    if not are_orderly(query_hulls, key_hulls):
        key_hulls = unread
    by_query, by_key = Side(rows.contiguous(), query_hulls), Side(cols.contiguous(), key_hulls)
    return MaskTables("interval", 0, 0, WIDE, batches, heads, by_query, by_key, unread, unread)


def bitmap_tables(states: Tensor, numbers: Tensor, bits: Tensor, block: int) -> MaskTables:
    """Return the tables of a mask in the mode bitmap.

    Args:
        states: int8 [Bm, Hm, block rows, block columns]: 0 absent (fully masked), 1 partial, 2 full.
        numbers: integers of the same shape: the index in `bits` of each partial block's bitmap.
        bits: int32 [bitmaps, block, block / 32].
        block: rows and columns of a block, 64 or 128.
    """
    numbers = torch.where(states == FULL, -1, numbers)
    by_query, by_key = _side(states, numbers), _side(states.transpose(2, 3), numbers.transpose(2, 3))
    batches, heads = states.shape[:2]
    if not bits.numel():
        bits = bits.new_zeros(1, block, block // WORD)
    visits = _unread(bits.device)
    if block == WIDE:
        visits = _visits(states, torch.where(states == FULL, -1, numbers + len(bits)))
        bits = torch.cat([bits, transposed(bits)])
    return MaskTables("bitmap", 0, 0, block, batches, heads, by_query, by_key, bits, visits)


def _side(states: Tensor, numbers: Tensor) -> Side:
    """Return the spans and the list of blocks of each block row, full blocks first.

    `states`: state of each block: absent, partial or full.
    """
    full, partial = states == FULL, states == PARTIAL
    fulls, alls = full.sum(-1), (states > 0).sum(-1)
    starts = alls.flatten().cumsum(0).view_as(alls) - alls
    spans = torch.stack([starts, fulls, alls], -1).to(torch.int32).contiguous()
    # full blocks rank higher; a stable sort keeps the order of columns among blocks of equal state
    order = (2 * full.to(torch.int8) + partial.to(torch.int8)).argsort(dim=-1, descending=True, stable=True)
    listed = torch.arange(states.shape[-1], device=states.device) < alls[..., None]
    blocks = torch.stack([order, numbers.gather(-1, order)], -1)[listed].to(torch.int32).contiguous()
    return Side(spans, blocks if blocks.numel() else blocks.new_zeros(1, 2))


def _visits(states: Tensor, numbers: Tensor) -> Tensor:
    """Return the blocks of each block column in the order of rows, each with the number of blocks before it in its row.

    `states`: state of each block: absent, partial or full.
    """
    listed = (states > 0).transpose(2, 3)
    rows = torch.arange(states.shape[2], device=states.device).expand_as(listed)
    visits = [each[listed] for each in (rows, numbers.transpose(2, 3), listed.cumsum(2) - 1)]
    found = torch.stack(visits, -1).to(torch.int32).contiguous()
    return found if found.numel() else found.new_zeros(1, 3)


def rebuilt_tables(mode: str, sizes: Sequence[int], tensors: Sequence[Tensor]) -> MaskTables:
    """Return mask tables from their parts: `MaskTables.mode`, `MaskTables.sizes` and `MaskTables.tensors`."""
    left, right, block, batches, heads = sizes
    query_spans, query_blocks, key_spans, key_blocks, bits, visits = tensors
    sides = Side(query_spans, query_blocks), Side(key_spans, key_blocks)
    return MaskTables(mode, left, right, block, batches, heads, *sides, bits, visits)


def packed(seen: Tensor) -> Tensor:
    """Pack bools [..., N], N a multiple of 32, into 32-bit words, int32 [..., N / 32].

    `seen`: bools, True for visible keys.
    """
    shifts = torch.arange(WORD, device=seen.device)
    words = (seen.unflatten(-1, (-1, WORD)).long() << shifts).sum(-1)
    return words.to(torch.int32)


def transposed(bits: Tensor) -> Tensor:
    """Return the transposes of bitmaps, int32 [bitmaps, block, block / 32].

    Squares of 32 by 32 bits swap places, and each is transposed by recursive halving (Warren, Hacker's Delight, 7-3).
    """
    squares = bits.unflatten(1, (-1, WORD)).permute(0, 3, 2, 1).contiguous()
    half = WORD // 2
    kept = (1 << half) - 1
    while half:
        above, below = squares.unflatten(2, (-1, 2, half)).unbind(3)
        swapped = ((above >> half) ^ below) & kept
        squares = torch.stack([above ^ (swapped << half), below ^ swapped], 3).flatten(2, 4)
        half //= 2
        kept ^= kept << half
    return squares.flatten(1, 2)


def mask_facts(tables: MaskTables) -> dict[str, int]:
    """Return a band's bounds, the block size, and the tables' strides by batch and head, by the names of params.

    `tables`: the mask.
    """
    return {
        "left": tables.left,
        "right": tables.right,
        "block": tables.block,
        "mask_batch": tables.heads if tables.batches > 1 else 0,
        "mask_head": int(tables.heads > 1),
    }


def mask_pointers(tables: MaskTables, side: Side) -> dict[str, Tensor]:
    """Return the mask tables that a kernel reads, by the names of params: spans and blocks of one side, and the bitmaps.

    `tables`: the mask.
    """
    return {"spans_ptr": side.spans, "blocks_ptr": side.blocks, "bits_ptr": tables.bits}
