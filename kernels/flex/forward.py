"""The forward pass: results allocated, and one launch."""

# ruff: noqa: PLR0917 - a launch takes its facts by position, many of them

from __future__ import annotations

from collections.abc import Mapping

import torch
from nojit.kernels.flex.call import Modification, kv_strides, mask_facts, mask_pointers, mod_arguments, widths_of
from nojit.kernels.flex.tables import MaskTables
from nojit.kernels.memos import DIRECT, Caller
from torch import Tensor

__all__ = ["allocate_output", "launch_forward", "launch_over_pointers"]


def allocate_output(q: Tensor, v: Tensor, caller: Caller = DIRECT) -> tuple[Tensor, Tensor]:
    """Allocate the output, in q's order of dimensions where it has q's shape, and the log-sums."""
    *outer, dim = q.shape
    v_dim = v.shape[3]
    if v_dim == dim and torch.empty_like(q, device="meta").stride(3) == 1:
        out = caller.make(torch.empty_like, q)
    else:
        out = caller.make(Tensor.new_empty, q, *outer, v_dim)
    return out, caller.make(Tensor.new_empty, q, *outer, dtype=torch.float32)


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
    """Launch the fastest kernel that runs the call."""
    launch_over_pointers(q, k, v, out, lse, scale, tables, mod, options, caller)


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
    """Launch the kernel that takes any strides, alignment, width, mask and modification."""
    batch, heads, q_len, head_dim = q.shape
    _, kv_heads, kv_len, v_dim = v.shape
    block_d, block_dv = widths_of(head_dim, v_dim)
    pointers, numbers = mod_arguments(mod, lse, q)
    caller.launch(
        "flex_attention_fwd",
        q,
        k,
        v,
        out,
        lse,
        *mask_pointers(tables, tables.by_query),
        *pointers,
        scale,
        *mask_facts(tables),
        *numbers,
        batch,
        heads,
        heads // kv_heads,
        q_len,
        kv_len,
        head_dim,
        v_dim,
        *q.stride()[:3],
        *kv_strides(k, batch),
        *kv_strides(v, batch),
        *out.stride()[:3],
        MASK=tables.mode,
        SCORE_MOD=mod.function,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
        **options,
    )
