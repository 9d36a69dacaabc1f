"""Backward pass of flex attention on sm_90, with TMA: one kernel for all gradients, between two of flash attention's."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from nojit.kernels import library
from nojit.kernels.block_mask.tables import MaskTables, mask_facts
from nojit.kernels.calls.tensor_maps import Described
from nojit.kernels.flash_attention import launch_sm90_bwd as flash
from nojit.kernels.flash_attention.launch_sm90_bwd import MAX_WIDTH, QUERIES, GradientMaps, Workspace
from nojit.kernels.score_mod.modification import Modification, mod_arguments
from nojit.kernels.score_mod.mods import LISTED, cheapest
from torch import Tensor

__all__ = ["launch_backward_over_maps", "launch_gradients_over_maps", "maps_of"]


def maps_of(
    operands: tuple[Tensor, Tensor, Tensor],
    dout: Tensor,
    dk: Tensor,
    dv: Tensor,
    tables: MaskTables,
    mod: Modification,
) -> GradientMaps | None:
    """Return the TMA descriptions for the sm_90 kernel; None if it cannot run this call.

    It has the requirements of flash attention's kernel. The mask must also be orderly (`MaskTables.is_orderly`) and the
    same for all query heads of a key head, and the score modification must load no value for each score.

    `tables`: the mask; `mod`: the score modification as kernels take it; `operands`: queries, keys and values.
    """
    q, k, v = operands
    if not tables.is_orderly or not _is_shared(tables, q, k) or cheapest(mod.function, mod.slots) == LISTED:
        return None
    return flash.gradient_maps_of(q, k, v, dout, dk, dv, MAX_WIDTH)


def _is_shared(tables: MaskTables, q: Tensor, k: Tensor) -> bool:
    """Return whether the batches and query heads that share keys also share a mask.

    `tables`: the mask.
    """
    return all(count == 1 or q.shape[dim] == k.shape[dim] for dim, count in enumerate((tables.batches, tables.heads)))


def launch_backward_over_maps(
    maps: GradientMaps,
    out: Tensor,
    lse: Tensor,
    dlse: Tensor | None,
    dq: Tensor,
    scale: float,
    tables: MaskTables,
    mod: Modification,
) -> None:
    """Write the gradients of keys and values, and that of queries unless `dq` is empty.

    `dlse`: gradient by the log-sums, or None for zero; `tables`: the mask; `mod`: the score modification as kernels
    take it.
    """
    room = flash.allocate_workspace(maps, deterministic=True)
    flash.launch_prepare(maps, out, lse, dlse, room.statistics, room.turns)
    launch_gradients_over_maps(maps, room, scale, tables, mod)
    if dq.numel():
        flash.launch_finish(maps, room, lse, dq, scale)


def launch_gradients_over_maps(
    maps: GradientMaps, room: Workspace, scale: float, tables: MaskTables, mod: Modification
) -> None:
    """Launch the main kernel: it writes the gradients of keys and values, and adds up those of queries.

    `room`: the workspace of the backward pass; `tables`: the mask; `mod`: the score modification as kernels take it.
    """
    batch, heads, q_len, _ = maps.q.shape
    kv_batch, kv_heads, kv_len, _ = maps.k.shape
    pointers, numbers = mod_arguments(mod, room.statistics, maps.q.base)
    facts = mask_facts(tables)
    # the kernel has blocks of one size
    del facts["block"]
    spans, key_hulls, query_hulls = tables.of_turns
    library.get("flex_attention_bwd_sm90")(
        q_map=maps.q,
        k_map=maps.k,
        v_map=maps.v,
        dout_map=maps.dout,
        stat_map=Described(room.statistics, room.statistics.stride()),
        sum_map=Described(room.sums, room.sums.stride()),
        dk_map=maps.dk,
        dv_map=maps.dv,
        turn_ptr=room.turns,
        spans_ptr=spans,
        key_hulls_ptr=key_hulls,
        query_hulls_ptr=query_hulls,
        **pointers,
        scale=scale,
        **facts,
        **numbers,
        kv_batch=kv_batch,
        shared=batch // kv_batch,
        kv_heads=kv_heads,
        group=heads // kv_heads,
        q_len=q_len,
        kv_len=kv_len,
        MASK=tables.mode,
        SCORE_MOD=cheapest(mod.function, mod.slots),
        BLOCK_D=maps.width,
        BLOCK_M=QUERIES[maps.width],
    )
