"""Backward pass of flash attention on sm_90, with TMA: a kernel for all gradients, one before it and one after it."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from nojit.kernels import library
from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.attention.widths import tile_width
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import Described, all_described, described, processors, takes_maps
from nojit.kernels.flash_attention.gradient_parts import (
    GradientParts,
    SharedKeys,
    allocate_parts,
    fastest_parts,
)
from torch import Tensor

__all__ = [
    "GradientMaps",
    "Workspace",
    "allocate_workspace",
    "describe_gradients",
    "gradient_maps_of",
    "launch_backward_over_maps",
    "launch_finish",
    "launch_gradients_over_maps",
    "launch_merge",
    "launch_prepare",
]

MIN_WIDTH: Final = 64
"""The smallest width (padded head dimension) of the kernels."""
MAX_WIDTH: Final = 128
"""The largest width of the kernel for all gradients; wider heads have kernels of their own."""
MAX_DIM: Final = 256
"""The largest head dimension of any kernel for sm_90."""
STEP: Final = 8
"""Head dimensions must be multiples of this: TMA descriptors need strides that are multiples of 16 bytes."""
MERGE: Final = "flash_attention_bwd_sm90_merge"
QUERIES: Final = {64: 128, 128: 64, 256: 64}
"""BLOCK_M, the queries in a tile of the kernels, for each BLOCK_D (padded head dimension)."""


class GradientMaps(NamedTuple):
    """TMA descriptions of the caller's tensors that the kernel reads and writes."""

    q: Described
    k: Described
    v: Described
    dout: Described
    dk: Described
    dv: Described

    @property
    def width(self) -> int:
        """BLOCK_D: the larger head dimension, rounded up to 64, 128 or 256."""
        return tile_width(max(self.q.shape[3], self.v.shape[3]), MIN_WIDTH)


class Workspace(NamedTuple):
    """Tensors that one of the three kernels writes and a later one reads."""

    statistics: Tensor
    """Fp32 [2, B, H, M padded to tiles]: each query's log-sum in base 2, and its rowsum(out * dout) - dlse."""
    sums: Tensor
    """Fp32 [B, H, M, D]: the gradient of queries before the scale."""
    turns: Tensor | None
    """Int32: the number of key tiles added so far to each tile of queries; None if they may be added in any order."""


def gradient_maps_of(
    q: Tensor, k: Tensor, v: Tensor, dout: Tensor, dk: Tensor, dv: Tensor, widest: int = MAX_DIM
) -> GradientMaps | None:
    """Return the TMA descriptions for the sm_90 kernels; None if they cannot run this call.

    They can if operands have 16 bits and suit TMA descriptors, head dimensions are at most `widest`, and gradients of
    keys and values are requested.
    """
    if not takes_maps(q) or max(q.shape[3], v.shape[3]) > widest or q.shape[3] % STEP or not dk.numel():
        return None
    return describe_gradients(q, k, v, dout, dk, dv)


def describe_gradients(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, dk: Tensor, dv: Tensor) -> GradientMaps | None:
    """Return the TMA descriptions for any device; None if descriptors cannot hold the operands.

    An unsuitable `dout` is copied.
    """
    others = all_described(q, k, v, dk, dv)
    if others is None:
        return None
    of_dout = described(dout) or described(dout.contiguous())
    q_map, k_map, v_map, dk_map, dv_map = others
    return None if of_dout is None else GradientMaps(q_map, k_map, v_map, of_dout, dk_map, dv_map)


def launch_backward_over_maps(
    maps: GradientMaps,
    out: Tensor,
    lse: Tensor,
    dlse: Tensor | None,
    dq: Tensor,
    scale: float,
    mask: BandMask,
    deterministic: bool,
) -> None:
    """Write the gradients of keys and values, and that of queries unless `dq` is empty; `mask` must have no left bound.

    `maps`: TMA descriptions of operands and gradients; `dlse`: gradient by the log-sums, or None for zero.
    """
    room = allocate_workspace(maps, deterministic)
    launch_prepare(maps, out, lse, dlse, room.statistics, room.turns)
    written = allocate_parts(maps.dk, maps.dv, _parts_of(maps, mask))
    launch_gradients_over_maps(maps, written, room, scale, mask)
    launch_merge(written, maps.dk.base, maps.dv.base)
    if dq.numel():
        launch_finish(maps, room, lse, dq, scale)


def allocate_workspace(maps: GradientMaps, deterministic: bool) -> Workspace:
    """Allocate the workspace; `sums` are zeroed unless `deterministic`. The first kernel initializes everything else.

    `maps`: TMA descriptions of operands and gradients.
    """
    q = maps.q.base
    batch, heads, length, _ = q.shape
    tiles = -(-length // QUERIES[maps.width])
    make = torch.empty if deterministic else torch.zeros
    return Workspace(
        q.new_empty((2, batch, heads, tiles * QUERIES[maps.width]), dtype=torch.float32),
        make(q.shape, dtype=torch.float32, device=q.device),
        q.new_empty((batch, heads, tiles), dtype=torch.int32) if deterministic else None,
    )


def launch_prepare(
    maps: GradientMaps, out: Tensor, lse: Tensor, dlse: Tensor | None, statistics: Tensor, turns: Tensor | None
) -> None:
    """Launch the first kernel: it writes the statistics of queries, and zeros `turns`.

    `maps`: TMA descriptions of operands and gradients; `dlse`: gradient by the log-sums, or None for zero; `statistics`
    and `turns`: those of the workspace.
    """
    dout = maps.dout.base
    batch, heads, q_len, v_dim = dout.shape
    library.get("flash_attention_bwd_sm90_prepare")(
        out_ptr=out,
        dout_ptr=dout,
        lse_ptr=lse,
        dlse_ptr=dlse,
        stat_ptr=statistics,
        turn_ptr=turns,
        batch=batch,
        heads=heads,
        q_len=q_len,
        v_dim=v_dim,
        **named("stride_o", "bhm", out.stride()[:3]),
        **named("stride_g", "bhm", dout.stride()[:3]),
        BLOCK_D=maps.width,
        BLOCK_M=QUERIES[maps.width],
    )


def launch_gradients_over_maps(
    maps: GradientMaps, written: GradientParts, room: Workspace, scale: float, mask: BandMask
) -> None:
    """Launch the main kernel: it writes the gradients of keys and values, and adds up those of queries in `sums`.

    `maps`: TMA descriptions of operands and gradients; `written`: the gradients of keys and values that it writes;
    `room`: the workspace of the backward pass.
    """
    batch, heads, q_len, _ = maps.q.shape
    kv_heads, kv_len = maps.k.shape[1:3]
    library.get("flash_attention_bwd_sm90")(
        q_map=maps.q,
        k_map=maps.k,
        v_map=maps.v,
        dout_map=maps.dout,
        stat_map=Described(room.statistics, room.statistics.stride()),
        sum_map=Described(room.sums, room.sums.stride()),
        dk_map=written.dk,
        dv_map=written.dv,
        turn_ptr=room.turns,
        scale=scale,
        causal_offset=mask.right,
        batch=batch,
        heads=heads,
        group=heads // kv_heads // written.parts,
        parts=written.parts,
        q_len=q_len,
        kv_len=kv_len,
        CAUSAL=mask.mode == "causal",
        BLOCK_D=maps.width,
        BLOCK_M=QUERIES[maps.width],
    )


def _parts_of(maps: GradientMaps, mask: BandMask) -> int:
    """Return into how many parts the query heads that share a key head are divided; 1 under batch invariance."""
    # the descriptors of parts need rows of a multiple of 16 bytes
    if library.is_batch_invariant() or maps.v.shape[3] % STEP or not library.has(MERGE):
        return 1
    batch, heads, q_len, _ = maps.q.shape
    kv_heads, kv_len = maps.k.shape[1:3]
    tiles = -(-q_len // QUERIES[maps.width])
    sizes = SharedKeys(batch * kv_heads, heads // kv_heads, q_len, tiles, kv_len, maps.width, mask.mode == "causal")
    return fastest_parts(sizes, processors(maps.q.base))


def launch_merge(written: GradientParts, dk: Tensor, dv: Tensor) -> None:
    """Launch the kernel that adds up the parts to the caller's gradients; with one part, there is nothing to do."""
    if written.parts == 1:
        return
    batch, heads, kv_len, head_dim = dk.shape
    library.get(MERGE)(
        dk_parts_ptr=written.dk.base,
        dv_parts_ptr=written.dv.base,
        dk_ptr=dk,
        dv_ptr=dv,
        parts=written.parts,
        batch=batch,
        heads=heads,
        kv_len=kv_len,
        head_dim=head_dim,
        v_dim=dv.shape[3],
        **named("stride_k", "bhn", dk.stride()[:3]),
        **named("stride_v", "bhn", dv.stride()[:3]),
        BLOCK_D=tile_width(max(head_dim, dv.shape[3]), MIN_WIDTH),
    )


def launch_finish(maps: GradientMaps, room: Workspace, lse: Tensor, dq: Tensor, scale: float) -> None:
    """Launch the last kernel: it writes the gradient of queries, the scaled and rounded `sums`.

    `maps`: TMA descriptions of operands and gradients; `room`: the workspace of the backward pass.
    """
    batch, heads, q_len, head_dim = dq.shape
    library.get("flash_attention_bwd_sm90_finish")(
        sum_ptr=room.sums,
        lse_ptr=lse,
        dq_ptr=dq,
        scale=scale,
        batch=batch,
        heads=heads,
        q_len=q_len,
        head_dim=head_dim,
        **named("stride_q", "bhm", dq.stride()[:3]),
        BLOCK_D=maps.width,
    )
