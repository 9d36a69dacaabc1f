"""Launches of a validated decoding call: allocation of the results, number of splits, attention kernel, merge kernel."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import torch
from nojit.kernels.attention.widths import FLEX_WIDTH_MIN, tile_width, tile_widths
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import kv_strides, named
from nojit.kernels.calls.tensor_maps import is_unaligned, nothing, processors
from nojit.kernels.calls.torch_state import for_caching
from nojit.kernels.flex_decoding.checks import Sizes
from nojit.kernels.flex_decoding.mask_operands import MaskOperands
from nojit.kernels.flex_decoding.splits import KEYS, TILES, Costs, costs_of_one, splits_of, tile_height
from nojit.kernels.score_mod.modification import Modification, mod_arguments
from torch import Tensor

__all__ = ["ONE", "Decoding", "launch_attention", "launch_decoding", "launch_merge", "part_width", "splits_for"]

UNIT: Final = 16
"""Rows of partial results are padded to a multiple of this many elements; widths and strides of aligned operands are multiples, too."""
ONE: Final = "flex_decoding_one"
"""The kernel for one query of each sequence."""
_ONE_ROWS: Final = 16
"""The most heads that share keys in the kernel for one query: the rows of its tile."""
_GRID_MOST: Final = 65535
"""The most batches, and heads of keys, of the kernel for one query: they are dimensions of its grid."""


@dataclass(frozen=True)
class Decoding:
    """Operands, mask, score modification and sizes of a call."""

    q: Tensor
    k: Tensor
    v: Tensor
    kv_lens: Tensor | None
    page_table: Tensor | None
    mask: MaskOperands
    mod: Modification
    sizes: Sizes
    scale: float
    may_be_one: bool = True
    """Whether `flex_decoding_one` may serve the call if the operands fit."""

    @property
    def pack(self) -> int:
        """Query heads whose queries share a tile: all that read one key head, or 1 if heads have different blocks."""
        alone = self.mask.words.mode == "bitmap" and self.mask.spans is not None and self.mask.spans.shape[1] > 1
        return 1 if alone else self.sizes.group

    @cached_property
    def is_one(self) -> bool:
        """True if `flex_decoding_one` serves the call: one aligned 16-bit query of each sequence, a band, scores as they are."""
        sizes = self.sizes
        plain = self.mask.words.mode == "band" and self.mod.function is None and sizes.q_len == 1
        small = sizes.group <= _ONE_ROWS and max(sizes.batch, sizes.kv_heads) <= _GRID_MOST
        if not (self.may_be_one and plain and small and self.q.element_size() == 2) or is_unaligned(
            self.q, self.k, self.v
        ):
            return False
        strides = (*_strides(self.q)[:2], *_strides(self.k), *_strides(self.v))
        return all(number % UNIT == 0 for number in (sizes.head_dim, sizes.v_dim, *strides))

    @property
    def programs(self) -> int:
        """Number of programs for each split."""
        sizes = self.sizes
        rows, blocks = sizes.q_len * self.pack, 1
        if self.mask.words.mode == "bitmap":
            rows = min(sizes.q_len, self.mask.words.block) * self.pack
            blocks = -(-sizes.q_len // self.mask.words.block)
        return sizes.batch * sizes.heads // self.pack * blocks * -(-rows // tile_height(rows))

    @property
    def seen(self) -> int:
        """Number of keys that a tile of queries sees, as far as the host knows without synchronizing with the device."""
        sizes, (mode, left, right, _, block) = self.sizes, self.mask.words
        if mode == "bitmap" and self.mask.spans is not None and self.mask.blocks is not None:
            # the host knows only the average number of blocks
            rows: int = math.prod(self.mask.spans.shape[:3])
            entries: int = self.mask.blocks.shape[0]
            return min(-(-entries // rows) * block, sizes.kv_len)
        if mode == "band" and left is not None and right is not None:
            return max(min(right - left + sizes.q_len, sizes.kv_len), 0)
        return sizes.kv_len


def part_width(v_dim: int) -> int:
    """Return the stride between partial rows of `v_dim` elements: with the log-sum, and padded for alignment."""
    return -(-(v_dim + 1) // UNIT) * UNIT


def splits_for(decoding: Decoding, *, alone: bool = False) -> int:
    """Choose the number of splits of a call.

    Args:
        decoding: the call.
        alone: choose as for one of the call's sequences, independently of the key blocks of the others.
    """
    programs, seen = decoding.programs, decoding.seen
    if alone:
        programs //= max(decoding.sizes.batch, 1)
        seen = decoding.sizes.kv_len if decoding.mask.words.mode == "bitmap" else seen
    return splits_of(programs, max(seen, KEYS), processors(decoding.q), _costs(decoding))


def _costs(decoding: Decoding) -> Costs:
    """Return the costs of a program of the call's kernel."""
    if not decoding.is_one:
        return TILES
    sizes = decoding.sizes
    width, _ = tile_widths(sizes.head_dim, sizes.v_dim, FLEX_WIDTH_MIN)
    row_bytes = (sizes.head_dim + sizes.v_dim) * decoding.q.element_size()
    return costs_of_one(width, row_bytes, sizes.group * part_width(sizes.v_dim) * torch.float32.itemsize)


def _strides(operand: Tensor) -> tuple[int, int, int]:
    """Return the strides of all dimensions but the last; 0 for one of size 1, which may have any."""
    by_batch, by_head, by_row, _ = (
        0 if size == 1 else stride for size, stride in zip(operand.shape, operand.stride(), strict=True)
    )
    return by_batch, by_head, by_row


@cache
def _unread(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return an int32 and an fp32 tensor that stand for absent tensors, which no kernel reads."""
    with for_caching():
        return nothing(torch.int32, device), nothing(torch.float32, device)


def launch_decoding(
    decoding: Decoding,
    out: Tensor,
    lse: Tensor | None,
    splits: int,
    options: Mapping[str, int],
    caller: Caller = DIRECT,
) -> None:
    """Launch the attention kernel and, if there are several splits, the merge kernel.

    `caller`: allocates and launches, or also records both for replays.
    """
    parts = None
    if splits > 1:
        shape = (*decoding.q.shape[:3], splits, part_width(decoding.sizes.v_dim))
        parts = new_contiguous(caller, decoding.q, shape, torch.float32)
    launch_attention(decoding, out, lse, parts, splits, options, caller)
    if parts is not None:
        launch_merge(parts, out, lse, decoding.sizes, caller)


def launch_attention(
    decoding: Decoding,
    out: Tensor,
    lse: Tensor | None,
    parts: Tensor | None,
    splits: int,
    options: Mapping[str, int],
    caller: Caller = DIRECT,
) -> None:
    """Launch the kernel that writes the output and the log-sums, or with several splits their `parts`.

    `caller`: allocates and launches, or also records both for replays.
    """
    if decoding.is_one:
        _launch_one(decoding, out, lse, parts, splits, caller)
        return
    ints, floats = _unread(decoding.q.device)
    caller.constant(ints, floats)
    sizes, mask = decoding.sizes, decoding.mask
    pointers, numbers = mod_arguments(decoding.mod, floats, decoding.q)
    tables, flags = _mask_arguments(mask, sizes, ints)
    caller.launch(
        "flex_decoding_blocks" if mask.words.mode == "bitmap" else "flex_decoding",
        **_tensors(decoding, out, lse, parts),
        **tables,
        **pointers,
        **flags,
        **_numbers(decoding, lse, splits),
        heads=sizes.heads,
        pack=decoding.pack,
        q_len=sizes.q_len,
        **named("stride_q", "bhm", decoding.q.stride()[:3]),
        **named("stride_k", "bhn", kv_strides(decoding.k, sizes.batch)),
        **named("stride_v", "bhn", kv_strides(decoding.v, sizes.batch)),
        **named("stride_o", "bhm", out.stride()[:3]),
        **named("stride_s", "bh", _mask_strides(mask)),
        **numbers,
        SCORE_MOD=decoding.mod.function,
        **_case(decoding),
        **options,
    )


def _launch_one(
    decoding: Decoding,
    out: Tensor,
    lse: Tensor | None,
    parts: Tensor | None,
    splits: int,
    caller: Caller,
) -> None:
    """Launch the kernel for one query.

    `caller`: allocates and launches, or also records both for replays.
    """
    ints, floats = _unread(decoding.q.device)
    caller.constant(ints, floats)
    sizes = decoding.sizes
    caller.launch(
        ONE,
        **_tensors(decoding, out, lse, parts),
        **_bounds(decoding.mask, sizes),
        **_numbers(decoding, lse, splits),
        kv_heads=sizes.kv_heads,
        **named("stride_q", "bh", _strides(decoding.q)[:2]),
        **named("stride_k", "bhn", _strides(decoding.k)),
        **named("stride_v", "bhn", _strides(decoding.v)),
        **named("stride_o", "bh", _strides(out)[:2]),
        **_case(decoding),
    )


def _tensors(decoding: Decoding, out: Tensor, lse: Tensor | None, parts: Tensor | None) -> dict[str, Tensor]:
    """Return the operands and results by the names of params; another tensor stands for an absent one."""
    ints, floats = _unread(decoding.q.device)
    return {
        "q_ptr": decoding.q,
        "k_ptr": decoding.k,
        "v_ptr": decoding.v,
        "out_ptr": out,
        "lse_ptr": floats if lse is None else lse,
        "part_ptr": floats if parts is None else parts,
        "lens_ptr": ints if decoding.kv_lens is None else decoding.kv_lens,
        "table_ptr": ints if decoding.page_table is None else decoding.page_table,
    }


def _numbers(decoding: Decoding, lse: Tensor | None, splits: int) -> dict[str, int | float]:
    """Return the numbers that the kernels share, by the names of params."""
    sizes = decoding.sizes
    return {
        "scale": decoding.scale,
        "has_lens": int(decoding.kv_lens is not None),
        "has_lse": int(lse is not None),
        "batch": sizes.batch,
        "group": sizes.group,
        "kv_len": sizes.kv_len,
        "splits": splits,
        "width": part_width(sizes.v_dim),
        "page_bits": sizes.page_bits,
        "head_dim": sizes.head_dim,
        "v_dim": sizes.v_dim,
        "stride_tb": 0 if decoding.page_table is None else decoding.page_table.stride(0),
    }


def _case(decoding: Decoding) -> dict[str, int]:
    """Return the constexprs that the kernels share, by name."""
    block_d, block_dv = tile_widths(decoding.sizes.head_dim, decoding.sizes.v_dim, FLEX_WIDTH_MIN)
    return {"PAGED": decoding.page_table is not None, "BLOCK_D": block_d, "BLOCK_DV": block_dv}


def launch_merge(parts: Tensor, out: Tensor, lse: Tensor | None, sizes: Sizes, caller: Caller = DIRECT) -> None:
    """Launch the kernel that merges the parts of each row.

    `caller`: allocates and launches, or also records both for replays.
    """
    _, floats = _unread(out.device)
    caller.constant(floats)
    caller.launch(
        "flex_decoding_merge",
        part_ptr=parts,
        out_ptr=out,
        lse_ptr=floats if lse is None else lse,
        has_lse=int(lse is not None),
        batch=sizes.batch,
        heads=sizes.heads,
        q_len=sizes.q_len,
        splits=parts.shape[3],
        width=parts.shape[4],
        v_dim=sizes.v_dim,
        **named("stride_o", "bhm", out.stride()[:3]),
        BLOCK_DV=tile_width(sizes.v_dim, FLEX_WIDTH_MIN),
    )


def _mask_arguments(mask: MaskOperands, sizes: Sizes, unread: Tensor) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Return the tables of a mask, and its numbers, by the names of params."""
    if mask.spans is not None and mask.blocks is not None and mask.bits is not None:
        tables = {"spans_ptr": mask.spans, "blocks_ptr": mask.blocks, "bits_ptr": mask.bits}
        return tables, {"block": mask.words.block}
    spans = {"spans_ptr": unread if mask.spans is None else mask.spans}
    return spans, {**_bounds(mask, sizes), "has_spans": int(mask.spans is not None)}


def _bounds(mask: MaskOperands, sizes: Sizes) -> dict[str, int]:
    """Return the bounds of a band by the names of params."""
    # replace an absent bound by one past all positions; sums with it stay within 32 bits
    most = sizes.kv_len + sizes.q_len
    left = -most if mask.words.left is None else max(-most, min(mask.words.left, most))
    right = most if mask.words.right is None else max(-most, min(mask.words.right, most))
    return {"left": left, "right": right, "from_end": int(mask.words.from_end)}


def _mask_strides(mask: MaskOperands) -> tuple[int, int]:
    """Return the strides of a mask's spans by batch and by head; 0 if all share them."""
    if mask.spans is None:
        return 0, 0
    strides = (0 if size == 1 else stride for size, stride in zip(mask.spans.shape, mask.spans.stride(), strict=True))
    by_batch, by_head, *_ = strides
    return by_batch, by_head
