"""Backward pass of flex attention: choice and launch of the kernels, gradients of captured tensors."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from collections.abc import Sequence

import torch
from nojit.kernels import library
from nojit.kernels.attention.arguments import qkv_arguments
from nojit.kernels.attention.band_masks import NO_MASK, BandMask
from nojit.kernels.attention.outputs import Gradients, prepared
from nojit.kernels.attention.widths import FLEX_WIDTH_MIN, tile_widths
from nojit.kernels.block_mask.tables import MaskTables, mask_facts, mask_pointers
from nojit.kernels.calls.strides import named
from nojit.kernels.flash_attention import launch_bwd as flash
from nojit.kernels.flash_attention.launch_bwd import launch_delta
from nojit.kernels.flex import launch_sm90_bwd
from nojit.kernels.score_mod.modification import Captured, Modification, mod_arguments
from nojit.kernels.score_mod.mods import BIAS, RELATIVE, Slot, lightest
from nojit.runtime.values import FunctionRef
from torch import Tensor

__all__ = ["allocate_captured", "launch_backward", "launch_dkdv", "launch_dq"]


def allocate_captured(q: Tensor, tensors: Captured, wanted: Sequence[bool]) -> Gradients:
    """Allocate the requested gradients of captured tensors: fp32, contiguous, zero; the others are empty."""
    first, second, third = (
        q.new_zeros(value.shape if wants and value is not None else (0,), dtype=torch.float32)
        for value, wants in zip(tensors, wanted, strict=True)
    )
    return first, second, third


def launch_backward(
    grads: tuple[Tensor, Tensor | None],
    operands: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    gradients: Gradients,
    of_captured: Gradients,
    scale: float,
    tables: MaskTables,
    mod: Modification,
    deterministic: bool,
) -> None:
    """Write the gradients that are not empty.

    Attention without a score modification, under a mask that is a band, uses flash attention's kernels.

    Args:
        grads: dout [B, H, M, Dv], gradient by the output, any strides; and dlse [B, H, M], gradient by the log-sums, or
            None.
        operands: q, k and v.
        results: the output and the log-sums of the forward pass.
        gradients: tensors from `allocate_gradients`, to write.
        of_captured: tensors from `allocate_captured`, to write.
        scale: factor of the scores.
        tables: the mask.
        mod: the score modification.
        deterministic: return the same bits every time.
    """
    q, k, _ = operands
    # with a batch of one, shared keys look like own keys; under batch invariance no call may take this path
    own_keys = q.shape[0] == k.shape[0] and not library.is_batch_invariant()
    mask = None
    if mod.function is None and tables.mode == "band" and own_keys:
        mask = _flash_mask(tables, q.shape[2], k.shape[2])
    if mask is not None and mask.mode != "window":
        flash.launch_backward(grads, operands, results, gradients, scale, mask, deterministic)
        return
    ready = prepared(grads, results[1], operands, gradients)
    if ready is None:
        return
    out, (dout, dlse, lse, (dq, dk, dv)) = results[0], ready
    maps = launch_sm90_bwd.maps_of(operands, dout, dk, dv, tables, mod)
    if maps is not None:
        launch_sm90_bwd.launch_backward_over_maps(maps, out, lse, dlse, dq, scale, tables, mod)
    elif mask is not None:
        flash.launch_backward((dout, dlse), operands, (out, lse), (dq, dk, dv), scale, mask, deterministic)
    if any(each.numel() for each in of_captured) or (maps is None and mask is None):
        written = (dq, dk, dv) if maps is None else tuple(each.new_empty(0) for each in gradients)
        _launch_over_pointers((dout, dlse), operands, (out, lse), written, of_captured, scale, tables, mod)


def _launch_over_pointers(
    grads: tuple[Tensor, Tensor | None],
    operands: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    gradients: Sequence[Tensor],
    of_captured: Gradients,
    scale: float,
    tables: MaskTables,
    mod: Modification,
) -> None:
    """Write the gradients that are not empty, with the pointer kernels, which can run every call.

    `tables`: the mask; `mod`: the score modification as kernels take it; `operands`: queries, keys and values.
    """
    (dout, dlse), (q, k, v), (out, lse), (dq, dk, dv) = grads, operands, results, gradients
    delta = torch.empty_like(lse)
    launch_delta(out, dout, lse, dlse, delta)
    if dk.numel():
        launch_dkdv(q, k, v, dout, lse, delta, dk, dv, scale, tables, mod)
    if dq.numel():
        launch_dq(q, k, v, dout, lse, delta, dq, scale, tables, mod)
    if any(each.numel() for each in of_captured):
        dlse = torch.zeros_like(lse) if dlse is None else dlse
        launch_captured(q, k, v, dout, lse, delta, dlse, of_captured, scale, tables, mod)


def _flash_mask(tables: MaskTables, q_len: int, kv_len: int) -> BandMask:
    """Return the mask of a band in flash attention's form, without bounds that mask nothing.

    `tables`: the mask.
    """
    if q_len - 1 + tables.left > 0:
        return BandMask("window", tables.left, tables.right)
    return BandMask("causal", 0, tables.right) if tables.right < kv_len - 1 else NO_MASK


def _function_of(mod: Modification, q: Tensor) -> FunctionRef | None:
    return mod.function if q.dtype == torch.float32 else lightest(mod.function, mod.slots)


def launch_dkdv(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dout: Tensor,
    lse: Tensor,
    delta: Tensor,
    dk: Tensor,
    dv: Tensor,
    scale: float,
    tables: MaskTables,
    mod: Modification,
) -> None:
    """Launch the pointer kernel for the gradients of k and v.

    `tables`: the mask; `mod`: the score modification as kernels take it.
    """
    batch = q.shape[0]
    kv_batch, kv_heads = v.shape[:2]
    block_d, block_dv = tile_widths(q.shape[3], v.shape[3], FLEX_WIDTH_MIN)
    pointers, numbers = mod_arguments(mod, lse, q)
    library.get("flex_attention_bwd_dkdv")(
        **qkv_arguments(q, k, v, kv_batch),
        dout_ptr=dout,
        lse_ptr=lse,
        delta_ptr=delta,
        dk_ptr=dk,
        dv_ptr=dv,
        **mask_pointers(tables, tables.by_key),
        **pointers,
        scale=scale,
        **mask_facts(tables),
        **numbers,
        kv_batch=kv_batch,
        shared=batch // kv_batch,
        kv_heads=kv_heads,
        **named("stride_g", "bhm", dout.stride()[:3]),
        **named("stride_dk", "bhn", dk.stride()[:3]),
        **named("stride_dv", "bhn", dv.stride()[:3]),
        MASK=tables.mode,
        SCORE_MOD=_function_of(mod, q),
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )


def launch_dq(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dout: Tensor,
    lse: Tensor,
    delta: Tensor,
    dq: Tensor,
    scale: float,
    tables: MaskTables,
    mod: Modification,
) -> None:
    """Launch the pointer kernel for the gradient of q.

    `tables`: the mask; `mod`: the score modification as kernels take it.
    """
    batch, heads = q.shape[:2]
    block_d, block_dv = tile_widths(q.shape[3], v.shape[3], FLEX_WIDTH_MIN)
    pointers, numbers = mod_arguments(mod, lse, q)
    library.get("flex_attention_bwd_dq")(
        **qkv_arguments(q, k, v, batch),
        dout_ptr=dout,
        lse_ptr=lse,
        delta_ptr=delta,
        dq_ptr=dq,
        **mask_pointers(tables, tables.by_query),
        **pointers,
        scale=scale,
        **mask_facts(tables),
        **numbers,
        batch=batch,
        heads=heads,
        **named("stride_g", "bhm", dout.stride()[:3]),
        **named("stride_dq", "bhm", dq.stride()[:3]),
        MASK=tables.mode,
        SCORE_MOD=_function_of(mod, q),
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )


def launch_captured(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dout: Tensor,
    lse: Tensor,
    delta: Tensor,
    dlse: Tensor,
    of_captured: Gradients,
    scale: float,
    tables: MaskTables,
    mod: Modification,
) -> None:
    """Launch the kernel that adds up the gradients of captured tensors, in any order.

    `dlse`: gradient by the log-sums, or None for zero; `tables`: the mask; `mod`: the score modification as kernels
    take it.
    """
    batch, heads = q.shape[:2]
    block_d, block_dv = tile_widths(q.shape[3], v.shape[3], FLEX_WIDTH_MIN)
    pointers, numbers = mod_arguments(mod, lse, q)
    dfirst, dsecond, dbias = of_captured
    shape = (0, 0, 0, 0) if not dbias.numel() else _shared_strides(dbias)
    library.get("flex_attention_bwd_captured")(
        **qkv_arguments(q, k, v, batch),
        dout_ptr=dout,
        lse_ptr=lse,
        delta_ptr=delta,
        dlse_ptr=dlse,
        dfirst_ptr=dfirst if dfirst.numel() else delta,
        dsecond_ptr=dsecond if dsecond.numel() else delta,
        dbias_ptr=dbias if dbias.numel() else delta,
        **mask_pointers(tables, tables.by_query),
        **pointers,
        scale=scale,
        **mask_facts(tables),
        **numbers,
        **_wanted("first", mod.first, dfirst, dbias),
        **_wanted("second", mod.second, dsecond, dbias),
        **named("dbias_stride_", "bhmn", shape),
        batch=batch,
        heads=heads,
        **named("stride_g", "bhm", dout.stride()[:3]),
        MASK=tables.mode,
        SCORE_MOD=mod.function,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )


def _wanted(place: str, slot: Slot, gradient: Tensor, dbias: Tensor) -> dict[str, int]:
    """Return the kind of a slot (0 if its gradient is not requested) and the gradient's strides by the names of params.

    `place`: the slot's name in params: ``first`` or ``second``.
    """
    kind, strides = 0, (0, 0)
    if slot.kind == BIAS:
        kind = BIAS if dbias.numel() else 0
    elif gradient.numel():
        # a relative-bias table has an extra last dimension, the distances, which are contiguous
        outer = _shared_strides(gradient)[: gradient.dim() - (slot.kind == RELATIVE)]
        kind, strides = slot.kind, (outer[0] if len(outer) > 1 else 0, outer[-1])
    return {f"{place}_wanted": kind, **named(f"d{place}_stride_", "bh", strides)}


def _shared_strides(value: Tensor) -> tuple[int, ...]:
    """Return the strides of `value`, with 0 for dimensions of size 1, which all batches or heads share."""
    return tuple(0 if size == 1 else stride for size, stride in zip(value.shape, value.stride(), strict=True))
