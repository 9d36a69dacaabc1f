"""Flex attention in plain torch with dense scores, in the dtype of its operands: pass fp64 for a precise reference."""

# ruff: noqa: PLR0917 - the operator's own order

from __future__ import annotations

from collections.abc import Callable

import torch
from nojit.kernels.block_mask.evaluation import MaskMod
from torch import Tensor

__all__ = ["flex_attention", "seen"]

ScoreFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def seen(mask_mod: MaskMod, batch: int, heads: int, q_len: int, kv_len: int, device: torch.device | str) -> Tensor:
    """Evaluate a mask function for every pair of query and key: bool [B, H, M, N]."""
    result = mask_mod
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        result = torch.vmap(result, in_dims=dims)
    places = (torch.arange(count, device=device) for count in (batch, heads, q_len, kv_len))
    return result(*places).expand(batch, heads, q_len, kv_len).bool()


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreFunction | None = None,
    mask_mod: MaskMod | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output [B, H, M, Dv] and the log-sum-exp [B, H, M]; differentiable.

    The arguments are the operator's, but the mask is a function. Keys and values may have fewer heads, and one batch
    for all.
    """
    batch, heads, q_len, dim = query.shape
    kv_len, group = key.shape[2], heads // key.shape[1]
    key, value = (each.expand(batch, -1, -1, -1).repeat_interleave(group, dim=1) for each in (key, value))
    scores = query @ key.transpose(-1, -2) * (dim**-0.5 if scale is None else scale)
    if score_mod is not None:
        places = [
            torch.arange(count, device=query.device).view([count if dim == own else 1 for dim in range(4)])
            for own, count in enumerate(scores.shape)
        ]
        scores = score_mod(scores, *places)
    if mask_mod is not None:
        visible = seen(mask_mod, batch, heads, q_len, kv_len, query.device)
        scores = scores.masked_fill(~visible, float("-inf"))
    # a fully masked row has lse -inf; its output and gradients must be 0, not NaN
    no_keys = (scores == float("-inf")).all(-1)
    lse = torch.logsumexp(scores.masked_fill(no_keys[..., None], 0.0), dim=-1)
    weights = torch.exp(scores - lse[..., None])
    return weights @ value, lse.masked_fill(no_keys, float("-inf"))
