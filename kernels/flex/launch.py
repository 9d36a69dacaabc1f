"""Forward pass of flex attention: choice and launch of the kernel."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nojit.kernels.attention.arguments import qkv_arguments
from nojit.kernels.attention.checks import LEAST_SCALE
from nojit.kernels.attention.widths import FLEX_WIDTH_MIN, tile_width, tile_widths
from nojit.kernels.block_mask.tables import MaskTables, mask_facts, mask_pointers
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import all_described, processors, takes_maps
from nojit.kernels.flash_attention.launch_sm90 import Maps
from nojit.kernels.score_mod.modification import Modification, mod_arguments
from nojit.kernels.score_mod.mods import LISTED, lightest
from torch import Tensor

__all__ = ["launch_forward", "launch_over_maps", "launch_over_pointers", "maps_of"]

MAX_MAPPED_DIM: Final = 128
"""The largest head dimension of the sm_90 kernel, which takes TMA descriptors."""


def launch_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    tables: MaskTables,
    mod: Modification,
    options: Mapping[str, int],
    caller: Caller = DIRECT,
) -> None:
    """Launch the fastest forward kernel that can run the call; with a config in `options`, the pointer kernel.

    `tables`: the mask; `mod`: the score modification as kernels take it; `caller`: allocates and launches, or also
    records both for replays.
    """
    maps = None if options else maps_of(q, k, v, out, scale, tables, mod)
    if maps is None:
        launch_over_pointers(q, k, v, out, lse, scale, tables, mod, options, caller)
    else:
        launch_over_maps(maps, lse, q, scale, tables, mod, caller)


def maps_of(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, scale: float, tables: MaskTables, mod: Modification
) -> Maps | None:
    """Return the TMA descriptions for the sm_90 kernel; None if it cannot run this call.

    It can if operands have 16 bits and suit TMA descriptors, head dimensions are at most `MAX_MAPPED_DIM`, there is a
    key, and bitmaps have blocks of 128. Without a score modification the scale must be at least `LEAST_SCALE`; a modification
    must load no value for each score.

    `tables`: the mask; `mod`: the score modification as kernels take it.
    """
    if not takes_maps(q) or max(q.shape[3], v.shape[3]) > MAX_MAPPED_DIM or not k.shape[2] or not tables.is_wide:
        return None
    if (scale < LEAST_SCALE and mod.function is None) or lightest(mod.function, mod.slots) == LISTED:
        return None
    maps = all_described(q, k, v, out)
    return None if maps is None else Maps(*maps)


def launch_over_maps(
    maps: Maps,
    lse: Tensor,
    q: Tensor,
    scale: float,
    tables: MaskTables,
    mod: Modification,
    caller: Caller = DIRECT,
) -> None:
    """Launch the sm_90 kernel; `q` is the tensor that the first of `maps` describes.

    `tables`: the mask; `mod`: the score modification as kernels take it; `caller`: allocates and launches, or also
    records both for replays.
    """
    batch, heads, q_len, head_dim = maps[0].shape
    kv_batch, kv_heads, kv_len, v_dim = maps[2].shape
    width = tile_width(max(head_dim, v_dim), FLEX_WIDTH_MIN)
    pointers, numbers = mod_arguments(mod, lse, q)
    caller.launch(
        "flex_attention_fwd_sm90",
        **maps._asdict(),
        lse_ptr=lse,
        **mask_pointers(tables, tables.by_query),
        **pointers,
        scale=scale,
        **mask_facts(tables),
        **numbers,
        batch=batch,
        heads=heads,
        group=heads // kv_heads,
        shared=batch // kv_batch,
        q_len=q_len,
        kv_len=kv_len,
        programs=processors(q),
        MASK=tables.mode,
        SCORE_MOD=lightest(mod.function, mod.slots),
        BLOCK_D=width,
        BLOCK_DV=width,
    )


def launch_over_pointers(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    tables: MaskTables,
    mod: Modification,
    options: Mapping[str, int],
    caller: Caller = DIRECT,
) -> None:
    """Launch the kernel that takes pointers: any strides, alignment, head dimension, mask and modification.

    `tables`: the mask; `mod`: the score modification as kernels take it; `caller`: allocates and launches, or also
    records both for replays.
    """
    batch, heads = q.shape[:2]
    block_d, block_dv = tile_widths(q.shape[3], v.shape[3], FLEX_WIDTH_MIN)
    pointers, numbers = mod_arguments(mod, lse, q)
    caller.launch(
        "flex_attention_fwd",
        **qkv_arguments(q, k, v, batch),
        out_ptr=out,
        lse_ptr=lse,
        **mask_pointers(tables, tables.by_query),
        **pointers,
        scale=scale,
        **mask_facts(tables),
        **numbers,
        batch=batch,
        heads=heads,
        **named("stride_o", "bhm", out.stride()[:3]),
        MASK=tables.mode,
        SCORE_MOD=mod.function,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
        **options,
    )
