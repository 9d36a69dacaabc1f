"""Public operator `flex_decoding`, and its registration with torch's dispatcher."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.attention.checks import Window, check_scale, window_sides
from nojit.kernels.attention.options import check_options
from nojit.kernels.attention.outputs import allocate_output, allocate_sums, with_sums
from nojit.kernels.block_mask.masks import BlockMask, tables_of
from nojit.kernels.calls.arguments import check_flags, check_int, check_number, check_tensors, refuse_value
from nojit.kernels.calls.memos import DIRECT, Caller, RecipeWriter, new_memo
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import autocasts, differentiates, is_plain, lowered, shown
from nojit.kernels.flex_decoding.checks import check_mask, check_operands
from nojit.kernels.flex_decoding.launch import ONE, Decoding, launch_decoding, splits_for
from nojit.kernels.flex_decoding.mask_operands import MaskOperands, MaskWords, band_of_words, known_mask, mask_of_tables
from nojit.kernels.flex_decoding.splits import MOST
from nojit.kernels.score_mod.modification import (
    NO_MOD,
    Modification,
    captured,
    check_captured,
    check_mod,
    described,
    modification_of,
    rebuilt,
    words_of,
)
from nojit.kernels.score_mod.mods import ScoreMod
from torch import Tensor

__all__ = ["flex_decoding"]

_MEMO: Final = new_memo(operands=8, limit=4096)
"""Cache of replays, by the operands and either a mask's tables or a modification's captured tensors."""
Operands = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""Queries, keys, values, number of keys of each batch (`kv_lens`), page table; the last two may be None."""
Facts = tuple[float | None, bool, bool, int | None]
"""The arguments `scale`, `enable_gqa`, `return_lse` and `splits`."""
_NOTHING: Final = (None, None, None)
_ALL, _CAUSAL = (band_of_words(causal, None, None).words for causal in (False, True))


def flex_decoding(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Mapping[str, int] | None = None,
    *,
    kv_lens: Tensor | None = None,
    page_table: Tensor | None = None,
    is_causal: bool = False,
    window: Window = None,
    splits: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute ``softmax(score_mod(q @ k^T * scale)) @ v`` for a few queries, with the keys split among programs.

    Args:
        query: [B, H, M, D], fp16, bf16 or fp32, M up to 127, D up to 256 (fp32: 128); any strides, the last 1. Autocast
            casts the operands and a dense bias; the output then has autocast's dtype.
        key: [B or 1, Hkv, N, D]; with a page table [pages, Hkv, page size, D], where the page size is a power of two.
        value: [B or 1, Hkv, N, Dv]; with a page table [pages, Hkv, page size, Dv].
        score_mod: a modification of `nojit.kernels.score_mod.mods`.
        block_mask: the mask, as for ``flex_attention``, made for M queries and N keys; not with `is_causal` or `window`.
        scale: factor of the scores; ``1 / sqrt(D)`` if None.
        enable_gqa: allow H to be a multiple of Hkv; query head h then reads key head ``h // (H // Hkv)``.
        return_lse: also return the log-sum-exp of each row of scores.
        kernel_options: a built config to run instead of the one that the bundle prefers: any of BLOCK_M, BLOCK_N, num_warps
            and num_stages.
        kv_lens: the number of keys of each batch, at most N, int32 [B] on the device; kernels read it, without
            synchronization. For score modifications the last query is then at the last key: query m is at ``kv_lens[b]
            - M + m``.
        page_table: the pages of each batch, int32 [B, N / page size]. Fully masked pages are not read.
        is_causal: mask all keys to the right of a query's position; the last query is at the last key.
        window: ``(left, right)``: the query at position p sees the keys from ``p - left`` to ``p + right``; None means
            no bound, and one int sets both.
        splits: the number of programs that share the keys of a row; by default as many as keep the device busy. Results
            for different numbers differ by rounding.

    Returns:
        The output [B, H, M, Dv] in the dtype of `query` and, if requested, the log-sum-exp (natural logarithm), fp32
        [B, H, M]. A query that sees no key gives output 0 and log-sum-exp -inf.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape, stride or string, or a scale that is not finite.
        NotImplementedError: a gradient is required; ``flex_attention`` has gradients.
    """
    if kernel_options is None and not torch.compiler.is_dynamo_compiling():
        if isinstance(scale, int):
            scale = check_number("scale", scale)  # type: ignore[unreachable]  # untyped callers
        operands = (query, key, value, kv_lens, page_table)
        facts = (scale, enable_gqa, return_lse, splits)
        known = _recall(operands, score_mod, block_mask, is_causal, window, facts)
        if known is not None:
            return known
    mod = NO_MOD if score_mod is None else modification_of(check_mod(score_mod))
    options = check_options(kernel_options)
    left, right = (None, None) if window is None else window_sides(window)
    check_flags(is_causal=is_causal, enable_gqa=enable_gqa, return_lse=return_lse)
    if scale is not None:
        scale = check_scale("scale", scale)
    if splits is not None:
        _check_splits(splits)
    if autocasts():
        query, key, value = lowered(query), lowered(key), lowered(value)
        mod = mod._replace(bias=lowered(mod.bias))
    mask = _mask_of(block_mask, query, key, page_table, bool(is_causal), left, right)
    operands = (query, key, value, kv_lens, page_table)
    given = [each for each in (*operands, *mask[1:], *captured(mod)) if each is not None]
    if is_plain(*given):
        lengths = () if block_mask is None else block_mask.seq_lengths
        facts = (scale, bool(enable_gqa), bool(return_lse), splits)
        return _attend(operands, mask, mod, facts, options, lengths)
    sizes = check_operands(*operands, bool(enable_gqa))
    check_mask(mask, sizes)
    check_captured(mod, query, sizes.kv_len)
    if differentiates(*given):
        raise NotImplementedError("flex_decoding has no gradients: use flex_attention, or torch.no_grad()")
    if options:
        refuse_value("kernel_options", "none in a call that torch traces or transforms", dict(options))
    name, numbers, values = described(mod)
    tensors = (*shown(mask[1:], query), *captured(mod))
    facts = (scale, bool(enable_gqa), bool(return_lse), splits)
    out, lse = _flex_decoding_op(*operands, *tensors, *facts, *mask.words, name, numbers, values)
    return (out, lse) if return_lse else out


def _recall(
    operands: Operands,
    score_mod: ScoreMod | None,
    block_mask: BlockMask | None,
    is_causal: bool,
    window: Window,
    facts: Facts,
) -> Tensor | tuple[Tensor, Tensor] | None:
    """Replay a cached call; return None if the call is not cached.

    `operands`: queries, keys, values, lengths of the sequences, page table; `facts`: the arguments `scale`,
    `enable_gqa`, `return_lse` and `splits`.
    """
    source = library.CURRENT.source
    known: Tensor | tuple[Tensor, Tensor] | None
    if score_mod is None and block_mask is None and window is None and type(is_causal) is bool:
        known = _MEMO(*operands, *_NOTHING, source, *facts, *(_CAUSAL if is_causal else _ALL))
        return known
    try:
        mask = known_mask(block_mask, is_causal, window)
        mod = modification_of(score_mod)
    except (AttributeError, TypeError, ValueError):
        # not a modification, mask or window: validation reports it later
        return None
    if mask is None:
        return None
    key = _key_of(operands, mask, mod, facts, () if block_mask is None else block_mask.seq_lengths)
    known = None if key is None else _MEMO(*key[0], source, *key[1])
    return known


def _key_of(
    operands: Operands, mask: MaskOperands, mod: Modification, facts: Facts, lengths: Sequence[int]
) -> tuple[tuple[Any, ...], tuple[object, ...]] | None:
    """Return the tensors and the other values of a call's cache key; None if the call cannot be cached.

    The key includes `lengths`, those for which a block mask was made. The first call validates them; replays need not.

    `operands`: queries, keys, values, lengths of the sequences, page table; `mod`: the score modification as kernels
    take it; `facts`: the arguments `scale`, `enable_gqa`, `return_lse` and `splits`.
    """
    tensors = captured(mod)
    if mask.spans is not None:
        if any(each is not None for each in tensors):
            return None
        tensors = mask[1:]
    return (*operands, *tensors), (*facts, *mask.words, *words_of(mod), *lengths)


def _check_splits(splits: int) -> None:
    check_int("splits", splits)
    if not 1 <= splits <= MOST:
        refuse_value("splits", f"1 to {MOST}", splits)


def _mask_of(
    block_mask: BlockMask | None,
    query: Tensor,
    key: Tensor,
    page_table: Tensor | None,
    is_causal: bool,
    left: int | None,
    right: int | None,
) -> MaskOperands:
    """Return a call's mask in the form that kernels read, from a block mask, or from the causal flag and the window.

    `page_table`: index of each sequence's pages, or None if keys are not paged.
    """
    if block_mask is None:
        return band_of_words(is_causal, left, right)
    if is_causal or left is not None or right is not None:
        refuse_value("block_mask", "None with is_causal or window", "a mask")
    check_tensors(query=query, key=key)
    length = key.shape[2]
    if page_table is not None:
        check_tensors(page_table=page_table)
        length *= page_table.shape[-1]
    return mask_of_tables(tables_of(block_mask, query.shape[2], length, query.device))


def _attend(
    operands: Operands,
    mask: MaskOperands,
    mod: Modification,
    facts: Facts,
    options: Mapping[str, int],
    lengths: Sequence[int] = (),
) -> Tensor | tuple[Tensor, Tensor]:
    """Run a call without torch's dispatcher: replay a cached call, or validate and run a new one and cache it.

    `operands`: queries, keys, values, lengths of the sequences, page table; `mod`: the score modification as kernels
    take it; `facts`: the arguments `scale`, `enable_gqa`, `return_lse` and `splits`.
    """
    key = None if options else _key_of(operands, mask, mod, facts, lengths)
    if key is None:
        return _run(operands, mask, mod, *facts, options, DIRECT)
    given, words = key
    known: Tensor | tuple[Tensor, Tensor] | None = _MEMO(*given, library.CURRENT.source, *words)
    if known is not None:
        return known
    writer = RecipeWriter(*given)
    own = writer.operands
    if mask.spans is not None:
        mask = MaskOperands(mask.words, *own[5:])
    else:
        first, second = mod.first._replace(table=own[5]), mod.second._replace(table=own[6])
        mod = Modification(mod.function, first, second, own[7])
    result = _run(own[:5], mask, mod, *facts, options, writer)
    results = result if isinstance(result, tuple) else (result,)
    _MEMO.remember(writer.recipe(*results), *given, writer.source, *words)
    return result


def _run(
    operands: tuple[Any, ...],
    mask: MaskOperands,
    mod: Modification,
    scale: float | None,
    enable_gqa: bool,
    return_lse: bool,
    splits: int | None,
    options: Mapping[str, int],
    caller: Caller,
) -> Tensor | tuple[Tensor, Tensor]:
    """Validate a call, allocate the results and launch the kernels.

    `mod`: the score modification as kernels take it; `splits`: number of programs that share a sequence, or None to
    choose it; `caller`: allocates and launches, or also records both for replays.
    """
    query, key, value, kv_lens, page_table = operands
    sizes = check_operands(query, key, value, kv_lens, page_table, enable_gqa)
    check_mask(mask, sizes)
    check_captured(mod, query, sizes.kv_len)
    out = allocate_output(query, value, caller)
    lse = allocate_sums(query, caller) if return_lse else None
    if out.numel():
        factor = 1.0 / math.sqrt(sizes.head_dim) if scale is None else scale
        # its one config serves no options, and whether strides are aligned may depend on the batch
        may_be_one = sizes.q_len == 1 and not options and not library.is_batch_invariant() and library.has(ONE)
        decoding = Decoding(query, key, value, kv_lens, page_table, mask, mod, sizes, factor, may_be_one)
        chosen = splits_for(decoding, alone=library.is_batch_invariant()) if splits is None else splits
        launch_decoding(decoding, out, lse, chosen, options, caller)
    return out if lse is None else (out, lse)


def _flex_decoding(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kv_lens: Tensor | None,
    page_table: Tensor | None,
    spans: Tensor | None,
    blocks: Tensor | None,
    bits: Tensor | None,
    first: Tensor | None,
    second: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    enable_gqa: bool,
    return_lse: bool,
    splits: int | None,
    mode: str,
    left: int | None,
    right: int | None,
    from_end: bool,
    block: int,
    function: str | None,
    numbers: list[int],
    values: list[float],
) -> tuple[Tensor, Tensor]:
    mask = MaskOperands(MaskWords(mode, left, right, from_end, block), spans, blocks, bits)
    mod = NO_MOD if function is None else rebuilt(function, numbers, values, (first, second, bias))
    facts = (scale, enable_gqa, return_lse, splits)
    return with_sums(_attend((query, key, value, kv_lens, page_table), mask, mod, facts, {}))


def _fake(query: Tensor, key: Tensor, value: Tensor, *words: Any) -> tuple[Tensor, Tensor]:
    del key
    out, return_lse = allocate_output(query, value), words[10]
    return (out, allocate_sums(query)) if return_lse else with_sums(out)


_flex_decoding_op = define(
    "flex_decoding(Tensor query, Tensor key, Tensor value, Tensor? kv_lens, Tensor? page_table, Tensor? spans, "
    "Tensor? blocks, Tensor? bits, Tensor? first, Tensor? second, Tensor? bias, float? scale, bool enable_gqa, "
    "bool return_lse, SymInt? splits, str mode, SymInt? left, SymInt? right, bool from_end, int block, str? function, "
    "SymInt[] numbers, float[] values) -> (Tensor, Tensor)",
    _flex_decoding,
    _fake,
)
