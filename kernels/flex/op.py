"""Public operator `flex_attention`: validation of its arguments, and replay of cached calls."""

# ruff: noqa: PLR0917 - a call has many arguments, and its checks pass them on

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.attention.checks import check_scale
from nojit.kernels.attention.options import OPTIONS, check_torchs_options
from nojit.kernels.attention.outputs import allocate_output, allocate_sums
from nojit.kernels.block_mask.masks import BlockMask, hides_nothing, memo_of, tables_of
from nojit.kernels.block_mask.tables import MaskTables
from nojit.kernels.calls.arguments import check_flags, check_tensors, refuse_value
from nojit.kernels.calls.memos import Memo, RecipeWriter, new_memo
from nojit.kernels.calls.torch_state import autocasts, differentiates, is_plain, lowered, may_differentiate, shown
from nojit.kernels.flex import op_autograd
from nojit.kernels.flex.checks import check_operands
from nojit.kernels.flex.launch import launch_forward
from nojit.kernels.score_mod.modification import (
    NO_MOD,
    Modification,
    captured,
    check_captured,
    check_mod,
    described,
    modification_of,
    words_of,
)
from nojit.kernels.score_mod.mods import CustomMod, ScoreMod
from torch import Tensor

if TYPE_CHECKING:
    from nojit.kernels.flex.return_aux import AuxOutput, AuxRequest

__all__ = ["flex_attention"]

_UNMASKED: Final = new_memo(operands=6, limit=1024)
"""Cache of replays for calls without a block mask; those of calls with a mask are cached in the mask's tables."""
MAX_DECODED: Final = 16
"""Calls with at most this many queries, which do not fill a tile of queries, run as flex decoding."""
MAX_SHARED: Final = 128
"""Calls with fewer queries than this, one tile per head, run as flex decoding if batches times heads are few."""
FEW_PROGRAMS: Final = 128
"""Batches times heads, and so programs, below which a GPU is not filled."""
MIN_DECODED_KEYS: Final = 1024
"""Calls with fewer keys than this do not run as flex decoding: splitting the keys would not pay."""


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Mapping[str, Any] | None = None,
    *,
    return_aux: AuxRequest | None = None,
    deterministic: bool = True,
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, AuxOutput]:
    """Compute ``softmax(score_mod(query @ key^T * scale)) @ value`` under a block mask.

    The signature is that of torch's function of this name. Nothing is compiled at run time.

    Args:
        query: [B, H, M, D], fp16, bf16 or fp32, D up to 256 (fp32: 128); any strides, the last 1. Autocast casts the
            operands and a dense bias; the output then has autocast's dtype.
        key: [B, Hkv, N, D], or [1, Hkv, N, D] for all batches; with `enable_gqa` H is a multiple of Hkv, and query head
            h reads key head ``h // (H // Hkv)``.
        value: [B, Hkv, N, Dv], or [1, Hkv, N, Dv] for all batches, Dv up to 256 (fp32: 128).
        score_mod: a modification of `nojit.kernels.score_mod.mods`; None leaves scores unchanged.
        block_mask: from this package's ``create_block_mask`` or torch's; None masks nothing. A mask that torch made is
            evaluated at its first use here.
        scale: factor of the products, before the modification; ``1 / sqrt(D)`` if None.
        enable_gqa: allow fewer heads in key and value than in query.
        return_lse: also return the log-sum-exp of each row of modified scores.
        kernel_options: a built config for the forward pass: any of BLOCK_M, BLOCK_N, num_warps and num_stages, with or
            without the prefix ``fwd_``. By default the fastest known config runs. Of torch's other options,
            FORCE_USE_FLEX_ATTENTION and the BACKEND "TRITON" keep calls with few queries from flex decoding;
            performance hints for torch's kernels have no effect; all others are refused.
        return_aux: also return the results that an ``AuxRequest`` names: log-sums, in an ``AuxOutput``. Excludes
            `return_lse`.
        deterministic: return bit-identical gradients every time. Tensors that a modification of the library captures
            have gradients only with False, since they are added up in any order.

    Returns:
        The output [B, H, M, Dv] in the dtype of `query`, and, if requested, the log-sum-exp (natural logarithm), fp32
        [B, H, M], or torch's ``AuxOutput`` with it. A query that sees no key gives output 0 and log-sum-exp -inf. If Dv
        equals D, the output has the memory order of query. Both are differentiable once, in query, key and value, and
        in captured tensors of `score_mod` if not `deterministic`.

    Raises:
        ArgumentError: a wrong type, dtype or device; a score modification that is a plain function.
        ValueError: a wrong shape, stride, length or string, or a scale that is not finite.
        NotImplementedError: a captured tensor requires a gradient that does not exist; `return_aux` requests the
            largest scores.
    """
    if return_aux is not None:
        # older versions of torch lack AuxRequest
        from nojit.kernels.flex.return_aux import check_request, with_aux

        wants_lse = check_request(return_aux, return_lse)
        given = query, key, value, score_mod, block_mask, scale, enable_gqa, wants_lse, kernel_options
        return with_aux(flex_attention(*given, deterministic=deterministic))
    if deterministic is not True and deterministic is not False:
        # validate also calls that are replayed or decoded
        check_flags(deterministic=deterministic)  # type: ignore[unreachable] # a caller may not heed types
    if not torch.compiler.is_dynamo_compiling():
        known = _recall(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options)
        if known is not None:
            return known
    options, may_decode = check_torchs_options(kernel_options)
    if may_decode and _is_decoding(query, key, value, score_mod):
        # imported here, because that package imports masks and modifications from this one
        from nojit.kernels.flex_decoding import flex_decoding

        return flex_decoding(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse)
    factor = None if scale is None else check_scale("scale", scale)
    check_flags(enable_gqa=enable_gqa, return_lse=return_lse)
    check_tensors(query=query, key=key, value=value)
    if autocasts():
        query, key, value = lowered(query), lowered(key), lowered(value)
    check_operands(query, key, value, enable_gqa)
    mod = NO_MOD if score_mod is None else _checked(score_mod, query, key.shape[2], bool(deterministic))
    tables = tables_of(block_mask, query.shape[2], key.shape[2], query.device)
    _check_mask_sizes(tables, query)
    if factor is None:
        factor = 1.0 / math.sqrt(query.shape[3])
    if is_plain(query, key, value, *captured(mod)):
        memo = _memo_of(block_mask)
        words = _words(mod, scale, enable_gqa, return_lse, kernel_options)
        return _remember(memo, query, key, value, mod, tables, factor, options, return_lse, words)
    choice = [options.get(name, 0) for name in OPTIONS]
    out, lse = op_autograd.forward_op(
        query, key, value, *shown(tables.tensors, query), *captured(mod), tables.mode, tables.sizes, *described(mod), factor,
        bool(deterministic), choice,
    )  # fmt: skip
    return (out, lse) if return_lse else out


def _is_decoding(query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None) -> bool:
    """Return whether flex decoding should run the call: it has few queries and many keys, which decoding splits.

    Flex decoding has no gradients, so a call that requires one, also of captured tensors, returns False. Under batch
    invariance the number of batches and heads does not matter.
    """
    try:
        batch, heads, q_len, _ = query.shape
        kv_len = key.shape[2]
        operands = (query, key, value, *captured(modification_of(score_mod)))
        trained = may_differentiate(*operands)
    except (AttributeError, IndexError, ValueError):
        # wrong ranks, or not a modification: validation reports it later
        return False
    if trained or kv_len < MIN_DECODED_KEYS:
        return False
    shared = 0 < q_len < MAX_SHARED and batch * heads < FEW_PROGRAMS and not library.is_batch_invariant()
    return bool(0 < q_len <= MAX_DECODED or shared)


def _words(
    mod: Modification,
    scale: float | None,
    enable_gqa: bool,
    return_lse: bool,
    kernel_options: Mapping[str, Any] | None,
) -> tuple[object, ...]:
    """Return the part of a call's cache key that is not tensors.

    `mod`: the score modification as kernels take it; `kernel_options`: a config that replaces the selected one.
    """
    options: tuple[object, ...] = (None,)
    if kernel_options is not None:
        options = (len(kernel_options), *(part for option in sorted(kernel_options.items()) for part in option))
    return (scale, enable_gqa, return_lse, *options, *words_of(mod))


def _recall(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None,
    block_mask: BlockMask | None,
    scale: float | None,
    enable_gqa: bool,
    return_lse: bool,
    kernel_options: Mapping[str, Any] | None,
) -> Tensor | tuple[Tensor, Tensor] | None:
    """Replay a cached call; return None if the call is not cached.

    `kernel_options`: a config that replaces the selected one.
    """
    memo = _UNMASKED
    if block_mask is not None:
        own = memo_of(block_mask) if isinstance(block_mask, BlockMask) else None
        if own is None:
            return None
        memo = own
    source = library.CURRENT.source
    known: Tensor | tuple[Tensor, Tensor] | None
    if score_mod is None and kernel_options is None:
        known = memo(query, key, value, None, None, None, source, scale, enable_gqa, return_lse, None)
        return known
    try:
        mod = modification_of(score_mod)
        words = _words(mod, scale, enable_gqa, return_lse, kernel_options)
    except (AttributeError, TypeError):
        # not a modification, or not a mapping: validation reports it later
        return None
    known = memo(query, key, value, *captured(mod), source, *words)
    return known


def _memo_of(block_mask: BlockMask | None) -> Memo | None:
    """Return the cache of replays for calls with this mask; None if the mask's tables cannot be stored beyond the call."""
    if block_mask is None or hides_nothing(block_mask):
        return _UNMASKED
    return memo_of(block_mask)


def _remember(
    memo: Memo | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mod: Modification,
    tables: MaskTables,
    scale: float,
    options: Mapping[str, int],
    return_lse: bool,
    words: tuple[object, ...],
) -> Tensor | tuple[Tensor, Tensor]:
    """Run a new call without torch's dispatcher, and cache its launch arguments for replays.

    `mod`: the score modification as kernels take it; `tables`: the mask; `words`: the call's arguments that are not
    tensors, for the cache key.
    """
    writer = RecipeWriter(query, key, value, *captured(mod))
    writer.constant(*tables.tensors)
    q, k, v, *tensors = writer.operands
    own = Modification(
        mod.function, mod.first._replace(table=tensors[0]), mod.second._replace(table=tensors[1]), tensors[2]
    )
    out, lse = allocate_output(q, v, writer), allocate_sums(q, writer)
    if out.numel():
        launch_forward(q, k, v, out, lse, scale, tables, own, options, writer)
    results = (out, lse) if return_lse else (out,)
    if memo is not None:
        memo.remember(writer.recipe(*results), query, key, value, *captured(mod), writer.source, *words)
    return (out, lse) if return_lse else out


def _checked(score_mod: ScoreMod, query: Tensor, kv_len: int, deterministic: bool) -> Modification:
    """Validate a modification against the operands; return it in the form that kernels take."""
    mod = modification_of(check_mod(score_mod))
    if autocasts():
        mod = mod._replace(bias=lowered(mod.bias))
    check_captured(mod, query, kv_len)
    _check_gradients_of(mod, score_mod, deterministic)
    return mod


def _check_gradients_of(mod: Modification, score_mod: ScoreMod, deterministic: bool) -> None:
    """Require that no captured tensor requires a gradient that does not exist.

    `mod`: the score modification as kernels take it.
    """
    if not differentiates(*captured(mod)):
        return
    what = "score_mod: expected tensors that require no gradient"
    if isinstance(score_mod, CustomMod):
        raise NotImplementedError(f"{what}, as captured tensors have gradients only in modifications of the library")
    if deterministic:
        raise NotImplementedError(f"{what}, or deterministic=False: their gradients are added up in any order")


def _check_mask_sizes(tables: MaskTables, query: Tensor) -> None:
    for dim, name, count in ((0, "batches", tables.batches), (1, "heads", tables.heads)):
        if count not in {1, query.shape[dim]}:
            refuse_value("block_mask", f"{query.shape[dim]} {name} as query has, or 1", count)
