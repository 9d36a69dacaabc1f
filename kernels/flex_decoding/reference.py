"""Flex decoding in plain torch with dense scores, in the dtype of its operands: pass fp64 for a precise reference."""

from __future__ import annotations

from collections.abc import Callable

import torch
from nojit.kernels.attention.checks import Window, window_sides
from torch import Tensor

__all__ = ["flex_decoding", "gathered", "visible"]

Mod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def gathered(rows: Tensor, page_table: Tensor | None) -> Tensor:
    """Return paged keys or values [pages, Hkv, page size, D] gathered for each batch: [B, Hkv, N, D].

    `page_table`: index of each sequence's pages, or None if keys are not paged.
    """
    if page_table is None:
        return rows
    return rows[page_table.long()].transpose(1, 2).flatten(2, 3)


def visible(
    shape: tuple[int, int, int, int],
    device: torch.device,
    *,
    mask_mod: MaskMod | None = None,
    kv_lens: Tensor | None = None,
    is_causal: bool = False,
    window: Window = None,
) -> Tensor:
    """Return which keys each query sees, bool of the given shape [B, H, M, N].

    `kv_lens`: number of keys of each batch, or None for all.
    """
    b, h, m, n = _places(shape, device)
    lens = (torch.full((shape[0],), shape[3], device=device) if kv_lens is None else kv_lens).view(-1, 1, 1, 1)
    places = m + lens - shape[2]
    left, right = window_sides(window)
    seen = (n < lens).expand(shape).clone()
    if is_causal:
        seen &= n <= places
    if left is not None:
        seen &= n >= places - left
    if right is not None:
        seen &= n <= places + right
    return seen if mask_mod is None else seen & _each(mask_mod, (b, h, m, n))


def flex_decoding(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Mod | None = None,
    *,
    mask_mod: MaskMod | None = None,
    scale: float | None = None,
    kv_lens: Tensor | None = None,
    page_table: Tensor | None = None,
    is_causal: bool = False,
    window: Window = None,
) -> tuple[Tensor, Tensor]:
    """Return the output [B, H, M, Dv] and the log-sum-exp [B, H, M]; arguments are the operator's, masks functions.

    `kv_lens`: number of keys of each batch, or None for all; `page_table`: index of each sequence's pages, or None if
    keys are not paged.
    """
    key, value = (gathered(rows, page_table).expand(query.shape[0], -1, -1, -1) for rows in (key, value))
    group = query.shape[1] // key.shape[1]
    key, value = (rows.repeat_interleave(group, dim=1) for rows in (key, value))
    shape = (*query.shape[:3], key.shape[2])
    words = {"kv_lens": kv_lens, "is_causal": is_causal, "window": window}
    seen = visible(shape, query.device, mask_mod=mask_mod, **words)  # type: ignore[arg-type]  # of several types
    # keys that no query sees may hold anything, NaN included: replace them, since 0 times NaN is NaN
    unread = ~seen.any(2)[..., None]
    key, value = key.masked_fill(unread, 0.0), value.masked_fill(unread, 0.0)
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        b, h, m, n = _places(shape, query.device)
        if kv_lens is not None:
            m = m + kv_lens.view(-1, 1, 1, 1) - shape[2]
        scores = _each(score_mod, (scores, b, h, m, n))
    scores = scores.masked_fill(~seen, float("-inf"))
    no_keys = ~seen.any(-1)
    lse = torch.logsumexp(scores.masked_fill(no_keys[..., None], 0.0), dim=-1)
    weights = torch.exp(scores - lse[..., None])
    return weights.to(value.dtype) @ value, lse.masked_fill(no_keys, float("-inf"))


def _places(shape: tuple[int, int, int, int], device: torch.device) -> tuple[Tensor, ...]:
    """Return the indices of batches, heads, queries and keys, each as a tensor along its own dimension of `shape`."""
    return tuple(
        torch.arange(size, device=device).view([-1 if dim == own else 1 for dim in range(4)])
        for own, size in enumerate(shape)
    )


def _each(function: Callable[..., Tensor], places: tuple[Tensor, ...]) -> Tensor:
    """Apply a function of scalar indices to all combinations of `places`."""
    return function(*torch.broadcast_tensors(*places))
