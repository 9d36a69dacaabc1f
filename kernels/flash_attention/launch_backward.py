"""Backward pass of flash attention: allocation of the gradients, choice and launch of the kernels."""

# ruff: noqa: PLR0917 - a launch takes its facts by position, many of them

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from nojit.kernels import library
from nojit.kernels.flash_attention.launch_backward_sm90 import gradient_maps_of, launch_backward_over_maps
from nojit.kernels.flash_attention.launch_forward import tile_widths
from nojit.kernels.flash_attention.masks import Mask
from torch import Tensor

__all__ = [
    "allocate_gradients",
    "allocate_like",
    "launch_backward",
    "launch_delta",
    "launch_dkdv_over_pointers",
    "launch_dq_over_pointers",
]

MIN_WIDTH: Final = 32
"""The smallest tile width (padded head dimension) for which gradient kernels are built."""

Gradients = tuple[Tensor, Tensor, Tensor]
"""Gradients of q, k and v; those not requested are empty tensors."""


def allocate_gradients(q: Tensor, k: Tensor, v: Tensor, wanted: Sequence[bool]) -> Gradients:
    """Allocate the requested gradients of q, k and v, each in the memory order of its operand; the others are empty.

    `wanted` tells for q, k and v whether the gradient is requested.
    """
    dq, dk, dv = (
        allocate_like(value) if wants else value.new_empty(0) for value, wants in zip((q, k, v), wanted, strict=True)
    )
    return dq, dk, dv


def allocate_like(value: Tensor) -> Tensor:
    """Allocate a tensor with the shape and memory order of `value`, and a last stride of 1."""
    made = torch.empty_like(value)
    return made if made.stride(3) == 1 else value.new_empty(value.shape)


def launch_backward(
    grads: tuple[Tensor, Tensor | None],
    operands: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    gradients: Gradients,
    scale: float,
    mask: Mask,
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
    q, k, v = operands
    dq, dk, dv = gradients
    if not q.numel() or not k.numel():
        for gradient in gradients:
            gradient.zero_()
        return
    (out, lse), (dout, dlse) = results, grads
    # the kernels read contiguous rows; an expanded gradient, for example that of a sum, has a last stride of 0
    dout = dout if dout.stride(3) == 1 else dout.contiguous()
    lse = lse.contiguous()
    dlse = None if dlse is None else dlse.contiguous()
    if dk.numel() or dv.numel():
        # one kernel writes both: allocate the gradient that was not requested
        dk, dv = dk if dk.numel() else allocate_like(k), dv if dv.numel() else allocate_like(v)
    maps = None if mask.mode == "window" else gradient_maps_of(q, k, v, dout, dk, dv)
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
        out,
        dout,
        lse,
        dlse,
        delta,
        batch,
        heads,
        q_len,
        v_dim,
        *out.stride()[:3],
        *dout.stride()[:3],
        BLOCK_DV=_widths(v_dim, v_dim)[1],
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
    mask: Mask,
) -> None:
    """Launch the pointer kernel for the gradients of k and v: any strides, alignment, head dimension and mask."""
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len, v_dim = v.shape[1:]
    block_d, block_dv = _widths(head_dim, v_dim)
    library.get("flash_attention_bwd_dkdv")(
        q,
        k,
        v,
        dout,
        lse,
        delta,
        dk,
        dv,
        scale,
        mask.left,
        mask.right,
        batch,
        kv_heads,
        heads // kv_heads,
        q_len,
        kv_len,
        head_dim,
        v_dim,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *dout.stride()[:3],
        *dk.stride()[:3],
        *dv.stride()[:3],
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
    mask: Mask,
) -> None:
    """Launch the pointer kernel for the gradient of q: any strides, alignment, head dimension and mask."""
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len, v_dim = v.shape[1:]
    block_d, block_dv = _widths(head_dim, v_dim)
    library.get("flash_attention_bwd_dq")(
        q,
        k,
        v,
        dout,
        lse,
        delta,
        dq,
        scale,
        mask.left,
        mask.right,
        batch,
        heads,
        heads // kv_heads,
        q_len,
        kv_len,
        head_dim,
        v_dim,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *dout.stride()[:3],
        *dq.stride()[:3],
        MASK=mask.mode,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )


def _widths(dim: int, v_dim: int) -> tuple[int, int]:
    """Return BLOCK_D and BLOCK_DV, the padded head dimensions, as in the forward pass but at least `MIN_WIDTH`."""
    block_d, block_dv = tile_widths(dim, v_dim)
    return max(block_d, MIN_WIDTH), max(block_dv, MIN_WIDTH)
