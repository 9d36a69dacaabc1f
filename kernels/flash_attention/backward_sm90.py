"""The backward pass over TMA descriptors: one kernel for all gradients, one before it and one after."""

# ruff: noqa: PLR0917 - a launch takes its facts by position, many of them

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from nojit.kernels import library
from nojit.kernels.flash_attention.masks import Mask
from nojit.kernels.maps import Described, described, takes_maps
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
    "launch_prepare",
]

MAX_WIDTH: Final = 128
STEP: Final = 8
"""Head dimensions must be multiples of this: TMA descriptors need strides of 16 bytes."""
QUERIES: Final = {64: 128, 128: 64}
"""BLOCK_M by BLOCK_D: the number of queries in a tile of the kernel."""


class GradientMaps(NamedTuple):
    """The caller's tensors that the kernel reads and writes."""

    q: Described
    k: Described
    v: Described
    dout: Described
    dk: Described
    dv: Described

    @property
    def width(self) -> int:
        """BLOCK_D: both head dimensions rounded up to a built width."""
        return 64 if max(self.q.shape[3], self.v.shape[3]) <= 64 else MAX_WIDTH


class Workspace(NamedTuple):
    """Tensors that one kernel passes to the next."""

    statistics: Tensor
    """Log-sums in base two, and each row's sum of out * dout minus dlse, fp32 [2, B, H, M padded to tiles]."""
    sums: Tensor
    """The unscaled gradient of queries, fp32 [B, H, M, D]."""
    turns: Tensor | None
    """The number of key tiles added so far to each tile of queries, int32; None if the order is free."""


def gradient_maps_of(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, dk: Tensor, dv: Tensor) -> GradientMaps | None:
    """Describe the operands to the sm_90 kernel; None if it cannot run this call.

    The kernel needs 16-bit operands that TMA descriptors can hold, head dimensions up to 128, and requested gradients of keys
    and values.
    """
    if not takes_maps(q) or max(q.shape[3], v.shape[3]) > MAX_WIDTH or q.shape[3] % STEP or not dk.numel():
        return None
    return describe_gradients(q, k, v, dout, dk, dv)


def describe_gradients(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, dk: Tensor, dv: Tensor) -> GradientMaps | None:
    """Describe the operands on any device; None if TMA descriptors cannot hold them. An unsuitable `dout` is copied."""
    found = [described(value) for value in (q, k, v, dout, dk, dv)]
    found[3] = found[3] or described(dout.contiguous())
    maps = [each for each in found if each is not None]
    return GradientMaps(*maps) if len(maps) == len(found) else None


def launch_backward_over_maps(
    maps: GradientMaps,
    out: Tensor,
    lse: Tensor,
    dlse: Tensor | None,
    dq: Tensor,
    scale: float,
    mask: Mask,
    deterministic: bool,
) -> None:
    """Write the gradients of keys and values, and of queries unless `dq` is empty; `mask` has no left bound."""
    room = allocate_workspace(maps, deterministic)
    launch_prepare(maps, out, lse, dlse, room)
    launch_gradients_over_maps(maps, room, scale, mask)
    if dq.numel():
        launch_finish(maps, room, lse, dq, scale)


def allocate_workspace(maps: GradientMaps, deterministic: bool) -> Workspace:
    """Allocate the workspace. Sums in free order start at 0; the first kernel initializes everything else."""
    q = maps.q.base
    batch, heads, length, _ = q.shape
    tiles = -(-length // QUERIES[maps.width])
    make = torch.empty if deterministic else torch.zeros
    return Workspace(
        q.new_empty((2, batch, heads, tiles * QUERIES[maps.width]), dtype=torch.float32),
        make(q.shape, dtype=torch.float32, device=q.device),
        q.new_empty((batch, heads, tiles), dtype=torch.int32) if deterministic else None,
    )


def launch_prepare(maps: GradientMaps, out: Tensor, lse: Tensor, dlse: Tensor | None, room: Workspace) -> None:
    """Launch the kernel that writes the statistics of queries and zeros their turns."""
    dout = maps.dout.base
    batch, heads, q_len, v_dim = dout.shape
    library.get("flash_attention_bwd_sm90_prepare")(
        out,
        dout,
        lse,
        dlse,
        room.statistics,
        room.turns,
        batch,
        heads,
        q_len,
        v_dim,
        *out.stride()[:3],
        *dout.stride()[:3],
        BLOCK_D=maps.width,
        BLOCK_M=QUERIES[maps.width],
    )


def launch_gradients_over_maps(maps: GradientMaps, room: Workspace, scale: float, mask: Mask) -> None:
    """Launch the kernel that writes the gradients of keys and values and adds up those of queries."""
    batch, heads, q_len, _ = maps.q.shape
    kv_heads, kv_len = maps.k.shape[1:3]
    library.get("flash_attention_bwd_sm90")(
        maps.q,
        maps.k,
        maps.v,
        maps.dout,
        Described(room.statistics, room.statistics.stride()),
        Described(room.sums, room.sums.stride()),
        maps.dk,
        maps.dv,
        room.turns,
        scale,
        mask.right,
        batch,
        heads,
        heads // kv_heads,
        q_len,
        kv_len,
        CAUSAL=mask.mode == "causal",
        BLOCK_D=maps.width,
        BLOCK_M=QUERIES[maps.width],
    )


def launch_finish(maps: GradientMaps, room: Workspace, lse: Tensor, dq: Tensor, scale: float) -> None:
    """Launch the kernel that scales and rounds the gradient of queries."""
    batch, heads, q_len, head_dim = dq.shape
    library.get("flash_attention_bwd_sm90_finish")(
        room.sums,
        lse,
        dq,
        scale,
        batch,
        heads,
        q_len,
        head_dim,
        *dq.stride()[:3],
        BLOCK_D=maps.width,
    )
