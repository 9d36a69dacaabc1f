"""Attention in plain torch, scores and all, in the dtype of its operands: give it fp64 for a yardstick."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["flash_attention", "visible"]


def visible(q_len: int, kv_len: int, causal_alignment: str, device: torch.device) -> Tensor:
    """Return which keys each query sees under a causal mask: bool [q_len, kv_len]."""
    offset = kv_len - q_len if causal_alignment == "bottom_right" else 0
    rows = torch.arange(q_len, device=device)[:, None]
    return torch.arange(kv_len, device=device)[None, :] <= rows + offset


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
) -> tuple[Tensor, Tensor]:
    """Return the output [B, H, M, Dv] and the log-sum-exp [B, H, M] of the operator's arguments."""
    group = q.shape[1] // k.shape[1]
    k, v = (value.repeat_interleave(group, dim=1) for value in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        mask = visible(q.shape[2], k.shape[2], causal_alignment, q.device)
        scores = scores.masked_fill(~mask, float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    # a row that sees nothing has lse -inf and must give 0, not NaN
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0)[..., None])
    return weights @ v, lse
