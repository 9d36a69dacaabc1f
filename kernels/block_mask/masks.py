"""Block masks: torch's class `BlockMask`, the function that makes one, and its tables for kernels.

``create_block_mask`` has the arguments and result of torch's function, so the ``flex_attention`` of torch and that of
nojit both accept the mask. The kernels' tables (`nojit.kernels.block_mask.tables`) are attached to it as an attribute. For a
`BlockMask` made by torch, `tables_of` makes the tables at its first use here.

A mask is a function ``mask_mod(b, h, q_idx, kv_idx) -> bool``. Any such function works: it is evaluated block by block
and stored as data. `Causal`, `Window`, `Prefix`, `Documents`, and their combinations with ``and_masks``, provide
intervals of visible positions and need no evaluation.
"""

# ruff: noqa: PLR0917 - torch's own order

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Final

import torch
from nojit.kernels.block_mask.evaluation import Evaluated, MaskMod, evaluate, evaluate_states, explained
from nojit.kernels.block_mask.intervals import FULL, PARTIAL, Spans, block_states, is_compact
from nojit.kernels.block_mask.patterns import Causal, Documents, Prefix, Window, and_masks, knows_intervals, or_masks
from nojit.kernels.block_mask.tables import MaskTables, bitmap_tables, interval_tables, no_mask
from nojit.kernels.calls.arguments import check_flags, check_int, refuse_type, refuse_value
from nojit.kernels.calls.memos import Memo, new_memo
from nojit.kernels.calls.torch_state import is_real
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_mask, noop_mask

__all__ = [
    "BlockMask",
    "Causal",
    "Documents",
    "MaskTables",
    "Prefix",
    "Window",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "hides_nothing",
    "known_tables",
    "memo_of",
    "noop_mask",
    "or_masks",
    "tables_of",
]

DEFAULT_BLOCK: Final = 128
NARROW_BLOCK: Final = 64
_ENDLESS: Final = 1 << 30
"""The block size of the mask that torch makes for ``block_mask=None``."""
_NAME: Final = "_nojit_tables"
MOST_REMEMBERED: Final = 256
"""The most calls that are cached for replays, for each mask."""


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,  # noqa: N803 - torch's names
    H: int | None,  # noqa: N803
    Q_LEN: int,  # noqa: N803
    KV_LEN: int,  # noqa: N803
    device: torch.device | str | None = None,
    BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK,  # noqa: N803
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """Return a block mask, as torch's function of this name does, without a dense mask of all queries and keys.

    Args:
        mask_mod: returns whether a query sees a key; any function that torch's `vmap` takes, over numbers on `device`.
        B: the number of batches with different masks; None if all have the same.
        H: the number of query heads with different masks; None if all have the same.
        Q_LEN: the number of queries, M.
        KV_LEN: the number of keys, N.
        device: the device of the mask; the current accelerator by default.
        BLOCK_SIZE: queries and keys of a block; kernels skip fully masked blocks. Kernels support 64 and 128. For
            another size the tables use the larger of these that divides it, else 64.
        _compile: accepted and ignored: the mask is never dense.
        separate_full_blocks: list full blocks apart from partial ones. If False, torch's lists have all blocks as
            partial; the kernels' tables do not change.
        compute_dq_write_order: must be False; only a backend of torch's uses that order.
        dq_kv_order: accepted and ignored.

    Returns:
        torch's `BlockMask`, with kernels' tables attached. Later uses on `device` copy nothing.

    Raises:
        ArgumentError: a wrong type.
        ValueError: a size below 1; or a mask function that provides intervals, but not for all queries and keys.
        NotImplementedError: `compute_dq_write_order` is True.
    """
    flags = {"_compile": _compile, "separate_full_blocks": separate_full_blocks, "dq_kv_order": dq_kv_order}
    check_flags(**flags, compute_dq_write_order=compute_dq_write_order)
    if compute_dq_write_order:
        what = "compute_dq_write_order: expected False, as gradients are deterministic without such an order"
        raise NotImplementedError(f"{what}, got True (torch's create_block_mask has it)")
    where = _device_of(device)
    if not callable(mask_mod):
        refuse_type("mask_mod", "a function of (b, h, q_idx, kv_idx)", type(mask_mod).__name__)
    blocks = BLOCK_SIZE if isinstance(BLOCK_SIZE, tuple) else (BLOCK_SIZE, BLOCK_SIZE)
    if len(blocks) != 2:
        refuse_type("BLOCK_SIZE", "an int, or a tuple of two", repr(BLOCK_SIZE))
    q_block, kv_block = blocks
    batches, heads = 1 if B is None else B, 1 if H is None else H
    sizes = (
        ("B", batches),
        ("H", heads),
        ("Q_LEN", Q_LEN),
        ("KV_LEN", KV_LEN),
        *(("BLOCK_SIZE", size) for size in blocks),
    )
    for name, size in sizes:
        check_int(name, size)
        if size < 1:
            refuse_value(name, "at least 1", size)
    with torch.inference_mode(False):
        tables, states = _make(mask_mod, batches, heads, (Q_LEN, KV_LEN), where, (q_block, kv_block))
        result = _block_mask(states, mask_mod, (Q_LEN, KV_LEN), (q_block, kv_block), bool(separate_full_blocks))
    _attach(result, tables)
    return result


def _device_of(device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def table_block(q_block: int, kv_block: int) -> int:
    """Return the block size of the tables, 64 or 128, for a mask's blocks of `q_block` queries by `kv_block` keys."""
    return DEFAULT_BLOCK if q_block % DEFAULT_BLOCK == 0 == kv_block % DEFAULT_BLOCK else NARROW_BLOCK


def _make(
    mask_mod: MaskMod, batches: int, heads: int, lengths: tuple[int, int], device: torch.device, sizes: tuple[int, int]
) -> tuple[MaskTables, Tensor]:
    """Evaluate a mask function; return the tables of the mask, and the states of its blocks of `sizes` (queries, keys).

    `lengths`: numbers of queries and keys.
    """
    known = _known_spans(mask_mod, batches, lengths, device)
    if known is not None:
        states = torch.stack([block_states(Spans(*each), *sizes) for each in zip(*known, strict=True)])
        if is_compact(states):
            spans = Spans(*(each[:, None].expand(-1, heads, -1, -1) for each in known))
            return interval_tables(_narrowed(spans)), states[:, None].expand(-1, heads, -1, -1)
    block = table_block(*sizes)
    found = evaluate(mask_mod, batches, heads, *lengths, device, block)
    states = found.states
    if sizes != (block, block):
        states = evaluate_states(mask_mod, batches, heads, *lengths, device, sizes)
    return _tables(found, block), states


def _known_spans(mask_mod: MaskMod, batches: int, lengths: tuple[int, int], device: torch.device) -> Spans | None:
    """Return the intervals that a mask function provides, rows [Bm, M, 2] and columns [Bm, N, 2]; None without.

    `lengths`: numbers of queries and keys.
    """
    if not knows_intervals(mask_mod):
        return None
    found = []
    for batch in range(batches):
        with explained((batch, 0)):
            found.append(mask_mod.spans(batch, *lengths, device))
    known = [each for each in found if each is not None]
    for each in known:
        _check_spans(each, lengths)
    return Spans(*map(torch.stack, zip(*known, strict=True))) if len(known) == len(found) else None


def _check_spans(spans: Spans, lengths: tuple[int, int]) -> None:
    """Require one interval for each query and for each key.

    `spans`: intervals of keys of each query, and of queries of each key; `lengths`: numbers of queries and keys.
    """
    for name, table, count in zip(Spans._fields, spans, lengths, strict=True):
        if table.shape != (count, 2):
            refuse_value(f"mask_mod.spans: {name}", f"intervals [{count}, 2]", tuple(table.shape))


def _narrowed(spans: Spans) -> Spans:
    """Return the intervals of one batch if all batches have equal ones, and those of one head if all heads do.

    `spans`: intervals of keys of each query, and of queries of each key.
    """
    for dim in (0, 1):
        if all(torch.equal(each, each.narrow(dim, 0, 1).expand_as(each)) for each in spans):
            spans = Spans(*(each.narrow(dim, 0, 1) for each in spans))
    return spans


def _tables(found: Evaluated, block: int) -> MaskTables:
    """Return the tables of an evaluated mask: in the mode interval, unless programs would then visit absent tiles.

    `found`: the evaluated mask.
    """
    if found.spans is not None and is_compact(found.states):
        return interval_tables(_narrowed(found.spans))
    return bitmap_tables(found.states, found.numbers, found.bits, block)


def _block_mask(
    states: Tensor, mask_mod: MaskMod, lengths: tuple[int, int], sizes: tuple[int, int], separate: bool
) -> BlockMask:
    """Return torch's `BlockMask` for block states; unless `separate`, full blocks are listed as partial ones.

    `lengths`: numbers of queries and keys.
    """
    kv, q = (_ordered(side == PARTIAL if separate else side > 0) for side in (states, states.transpose(2, 3)))
    full_kv, full_q = (
        _ordered(side == FULL) if separate else (None, None) for side in (states, states.transpose(2, 3))
    )
    return BlockMask(
        seq_lengths=lengths,
        kv_num_blocks=kv[0],
        kv_indices=kv[1],
        full_kv_num_blocks=full_kv[0],
        full_kv_indices=full_kv[1],
        q_num_blocks=q[0],
        q_indices=q[1],
        full_q_num_blocks=full_q[0],
        full_q_indices=full_q[1],
        BLOCK_SIZE=sizes,
        mask_mod=mask_mod,
    )


def _ordered(there: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each row the number of present columns, and all columns, present ones first in order: torch's format."""
    order = there.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return there.sum(-1).to(torch.int32), order.to(torch.int32).contiguous()


@dataclass(frozen=True, slots=True, eq=False)
class _Attached:
    """The attribute with tables that is attached to a mask; copies and pickles of the mask have None instead."""

    mask_mod: MaskMod
    lists: tuple[Tensor | None, ...]
    tables: MaskTables
    memo: Memo

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def fits(self, mask: BlockMask) -> bool:
        """Return whether the mask still has the function and lists from which the tables were made.

        A caller may replace them.
        """
        return self.mask_mod is mask.mask_mod and all(map(operator.is_, self.lists, _lists(mask)))


def _lists(mask: BlockMask) -> tuple[Tensor | None, ...]:
    return mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices


def _attach(mask: BlockMask, tables: MaskTables) -> None:
    memo = new_memo(operands=6, limit=MOST_REMEMBERED)
    setattr(mask, _NAME, _Attached(mask.mask_mod, _lists(mask), tables, memo))


def _attached(mask: BlockMask) -> _Attached | None:
    own: _Attached | None = getattr(mask, _NAME, None)
    return own if own is not None and own.fits(mask) else None


def hides_nothing(mask: BlockMask) -> bool:
    """Return whether `mask` is the one that torch makes for ``block_mask=None``."""
    return bool(mask.BLOCK_SIZE == (_ENDLESS, _ENDLESS))


def tables_of(mask: BlockMask | None, q_len: int, kv_len: int, device: torch.device) -> MaskTables:
    """Return the tables of a block mask; for a mask that torch made, the first use computes them.

    Args:
        mask: the mask, or None for one that masks nothing.
        q_len: the number of queries of the call.
        kv_len: the number of keys of the call.
        device: the device of the call's operands.

    Raises:
        ArgumentError: `mask` is not a block mask, or is on another device.
        ValueError: it was made for other lengths.
        NotImplementedError: torch made it, and its first use is traced.
        RuntimeError: it was sliced and has lost its function (torch's own error).
    """
    if mask is None:
        return no_mask(q_len, kv_len, device)
    if not isinstance(mask, BlockMask):
        refuse_type("block_mask", "a BlockMask", type(mask).__name__)
    if hides_nothing(mask):
        return no_mask(q_len, kv_len, device)
    if tuple(mask.seq_lengths) != (q_len, kv_len):
        refuse_value("block_mask", f"a mask for {q_len} queries and {kv_len} keys", f"one for {mask.seq_lengths}")
    if mask.kv_indices.device != device:
        refuse_type("block_mask", f"a mask on {device} as query is", mask.kv_indices.device)
    tables = known_tables(mask)
    if tables is None:
        if torch.compiler.is_dynamo_compiling():
            what = "block_mask: expected a mask that has its tables before a graph is traced"
            raise NotImplementedError(f"{what}, got one that torch made: use it once without torch.compile")
        with torch.inference_mode(False):
            tables = _tables_of_lists(mask)
        if all(map(is_real, tables.tensors)):
            _attach(mask, tables)
    return tables


def known_tables(mask: BlockMask) -> MaskTables | None:
    """Return the tables attached to a mask, if it still has the function and lists that they were made from; else None."""
    own = _attached(mask)
    return None if own is None else own.tables


def memo_of(mask: BlockMask) -> Memo | None:
    """Return the cache of ``flex_attention`` replays with this mask; None if the mask has no valid tables."""
    own = _attached(mask)
    return None if own is None else own.memo


def _tables_of_lists(mask: BlockMask) -> MaskTables:
    """Return the tables of a mask that torch made: full blocks are visible, partial ones are evaluated with its function."""
    if mask.kv_indices.dim() != 4:
        refuse_value("block_mask", "lists of [B, H, queries / block, keys / block]", tuple(mask.kv_indices.shape))
    states = _dense(mask.kv_num_blocks, mask.kv_indices)
    if mask.full_kv_num_blocks is not None and mask.full_kv_indices is not None:
        states = torch.where(_dense(mask.full_kv_num_blocks, mask.full_kv_indices) > 0, FULL, states)
    q_block, kv_block = mask.BLOCK_SIZE
    mask_mod = mask.mask_mod

    def seen(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        state = states[b, h, q_idx // q_block, kv_idx // kv_block]
        return (state == FULL) | ((state == PARTIAL) & mask_mod(b, h, q_idx, kv_idx))

    block = table_block(q_block, kv_block)
    batches, heads = states.shape[:2]
    q_len, kv_len = mask.seq_lengths
    return _tables(evaluate(seen, batches, heads, q_len, kv_len, states.device, block), block)


def _dense(counts: Tensor, indices: Tensor) -> Tensor:
    """Return int8 [..., rows, columns]: 1 for blocks among the first `counts` of their row in `indices`, else 0."""
    listed = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    return torch.zeros_like(indices, dtype=torch.int8).scatter_add_(-1, indices.long(), listed.to(torch.int8))
