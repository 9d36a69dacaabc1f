"""Backward pass of flash attention: choice and launch of the kernels."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels import library
from nojit.kernels.attention.arguments import qkv_arguments
from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.attention.outputs import Gradients, prepared
from nojit.kernels.attention.widths import tile_width, tile_widths
from nojit.kernels.calls.strides import named
from nojit.kernels.flash_attention.launch_sm90_bwd import MAX_WIDTH, gradient_maps_of, launch_backward_over_maps
from nojit.kernels.flash_attention.launch_sm90_bwd_wide import launch_wide_over_maps
from torch import Tensor

__all__ = [
    "launch_backward",
    "launch_delta",
    "launch_dkdv_over_pointers",
    "launch_dq_over_pointers",
]

MIN_WIDTH: Final = 32
"""The smallest tile width (padded head dimension) for which gradient kernels are built."""


def launch_backward(
    grads: tuple[Tensor, Tensor | None],
    operands: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    gradients: Gradients,
    scale: float,
    mask: BandMask,
    deterministic: bool = True,
) -> None:
    """Write the gradients that are not empty, with the fastest kernels that can run the call.

    Args:
        grads: dout [B, H, M, Dv], gradient by the output, any strides; and dlse [B, H, M], gradient by the log-sums, or
            None.
        operands: q, k and v.
        results: the output and the log-sums of the forward pass.
        gradients: tensors from `allocate_gradients`, to write.
        scale: factor of the scores.
        mask: the mask of the forward pass.
        deterministic: return the same bits every time.
    """
    ready = prepared(grads, results[1], operands, gradients)
    if ready is None:
        return
    (q, k, v), out = operands, results[0]
    dout, dlse, lse, (dq, dk, dv) = ready
    maps = None if mask.mode == "window" else gradient_maps_of(q, k, v, dout, dk, dv)
    if maps is not None and maps.width > MAX_WIDTH:
        launch_wide_over_maps(maps, out, lse, dlse, dq, scale, mask)
        return
    if maps is not None:
        launch_backward_over_maps(maps, out, lse, dlse, dq, scale, mask, deterministic)
        return
    delta = torch.empty_like(lse)
    launch_delta(out, dout, lse, dlse, delta)
    if dk.numel():
        launch_dkdv_over_pointers(q, k, v, dout, lse, delta, dk, dv, scale, mask)
    if dq.numel():
        launch_dq_over_pointers(q, k, v, dout, lse, delta, dq, scale, mask)


def launch_delta(out: Tensor, dout: Tensor, lse: Tensor, dlse: Tensor | None, delta: Tensor) -> None:
    """Launch the kernel that writes ``rowsum(out * dout) - dlse`` to `delta`, fp32 [B, H, M]."""
    batch, heads, q_len, v_dim = out.shape
    library.get("flash_attention_bwd_delta")(
        out_ptr=out,
        dout_ptr=dout,
        lse_ptr=lse,
        dlse_ptr=dlse,
        delta_ptr=delta,
        batch=batch,
        heads=heads,
        q_len=q_len,
        v_dim=v_dim,
        **named("stride_o", "bhm", out.stride()[:3]),
        **named("stride_g", "bhm", dout.stride()[:3]),
        BLOCK_DV=tile_width(v_dim, MIN_WIDTH),
    )


def launch_dkdv_over_pointers(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dout: Tensor,
    lse: Tensor,
    delta: Tensor,
    dk: Tensor,
    dv: Tensor,
    scale: float,
    mask: BandMask,
) -> None:
    """Launch the pointer kernel for the gradients of k and v: any strides, alignment, head dimension and mask."""
    batch, kv_heads = q.shape[0], v.shape[1]
    block_d, block_dv = tile_widths(q.shape[3], v.shape[3], MIN_WIDTH)
    library.get("flash_attention_bwd_dkdv")(
        **qkv_arguments(q, k, v, batch),
        dout_ptr=dout,
        lse_ptr=lse,
        delta_ptr=delta,
        dk_ptr=dk,
        dv_ptr=dv,
        scale=scale,
        left=mask.left,
        right=mask.right,
        batch=batch,
        kv_heads=kv_heads,
        **named("stride_g", "bhm", dout.stride()[:3]),
        **named("stride_dk", "bhn", dk.stride()[:3]),
        **named("stride_dv", "bhn", dv.stride()[:3]),
        MASK=mask.mode,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )


def launch_dq_over_pointers(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dout: Tensor,
    lse: Tensor,
    delta: Tensor,
    dq: Tensor,
    scale: float,
    mask: BandMask,
) -> None:
    """Launch the pointer kernel for the gradient of q: any strides, alignment, head dimension and mask."""
    batch, heads = q.shape[:2]
    block_d, block_dv = tile_widths(q.shape[3], v.shape[3], MIN_WIDTH)
    library.get("flash_attention_bwd_dq")(
        **qkv_arguments(q, k, v, batch),
        dout_ptr=dout,
        lse_ptr=lse,
        delta_ptr=delta,
        dq_ptr=dq,
        scale=scale,
        left=mask.left,
        right=mask.right,
        batch=batch,
        heads=heads,
        **named("stride_g", "bhm", dout.stride()[:3]),
        **named("stride_dq", "bhm", dq.stride()[:3]),
        MASK=mask.mode,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )
