"""Attention in plain torch with dense scores, computed in the dtype of its operands: pass fp64 for a precise reference."""

from __future__ import annotations

import torch
from nojit.kernels.attention.checks import Window, window_sides
from torch import Tensor

__all__ = ["flash_attention", "visible"]


def visible(
    q_len: int,
    kv_len: int,
    device: torch.device,
    *,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
    window: Window = None,
) -> Tensor:
    """Return which keys each query sees, bool [q_len, kv_len]; the arguments are those of `flash_attention`."""
    shift = kv_len - q_len if causal_alignment == "bottom_right" else 0
    places = torch.arange(q_len, device=device)[:, None] + shift
    keys = torch.arange(kv_len, device=device)[None, :]
    left, right = window_sides(window)
    seen = torch.ones(q_len, kv_len, dtype=torch.bool, device=device)
    if is_causal:
        seen &= keys <= places
    if left is not None:
        seen &= keys >= places - left
    if right is not None:
        seen &= keys <= places + right
    return seen


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
    window: Window = None,
) -> tuple[Tensor, Tensor]:
    """Return the output [B, H, M, Dv] and the log-sum-exp [B, H, M]; the arguments are the operator's. Differentiable."""
    group = q.shape[1] // k.shape[1]
    k, v = (value.repeat_interleave(group, dim=1) for value in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    seen = visible(
        q.shape[2], k.shape[2], q.device, is_causal=is_causal, causal_alignment=causal_alignment, window=window
    )
    scores = scores.masked_fill(~seen, float("-inf"))
    # a fully masked row has lse -inf; its output and gradients must be 0, not NaN
    no_keys = ~seen.any(-1)
    lse = torch.logsumexp(scores.masked_fill(no_keys[:, None], 0.0), dim=-1)
    weights = torch.exp(scores - lse[..., None])
    return weights @ v, lse.masked_fill(no_keys, float("-inf"))
