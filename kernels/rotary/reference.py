"""Rotary position embedding in plain torch."""

# ruff: noqa: PLR0917 - the operator has as many operands

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["rotary", "rotary_qk", "rotary_to_cache"]


def rotary(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None, *, interleaved: bool = False
) -> Tensor:
    """Return `x` with the pairs of each head rotated by the row of its position."""
    if positions is None:
        positions = torch.arange(x.shape[-3], device=x.device)
    cosines, sines = (table[positions.long()].unsqueeze(-2).to(x.dtype) for table in (cos, sin))
    width = 2 * cos.shape[1]
    turned, rest = x[..., :width], x[..., width:]
    if interleaved:
        one, other = turned[..., ::2], turned[..., 1::2]
        pairs = torch.stack((one * cosines - other * sines, other * cosines + one * sines), -1).flatten(-2)
    else:
        one, other = turned.chunk(2, -1)
        pairs = torch.cat((one * cosines - other * sines, other * cosines + one * sines), -1)
    return torch.cat((pairs, rest), -1)


def rotary_qk(
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    query_weight: Tensor | None = None,
    key_weight: Tensor | None = None,
    eps: float | None = None,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return query and key rotated, after norms of their heads if there are weights."""
    own = torch.finfo(torch.float32).eps if eps is None else eps
    found = []
    for x, weight in ((query, query_weight), (key, key_weight)):
        normal = x if weight is None else torch.nn.functional.rms_norm(x, x.shape[-1:], weight, own)
        found.append(rotary(normal, cos, sin, positions, interleaved=interleaved))
    return found[0], found[1]


def rotary_to_cache(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    slot_mapping: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    *,
    query_weight: Tensor | None = None,
    key_weight: Tensor | None = None,
    eps: float | None = None,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return query and key as `rotary_qk` does, and write key and value to the slots of the caches."""
    turned = rotary_qk(
        query,
        key,
        cos,
        sin,
        positions,
        query_weight=query_weight,
        key_weight=key_weight,
        eps=eps,
        interleaved=interleaved,
    )
    size = key_cache.shape[2]
    slots = slot_mapping.flatten()
    kept = slots >= 0
    for cache, rows in ((key_cache, turned[1]), (value_cache, value)):
        cache[slots[kept] // size, :, slots[kept] % size] = rows.flatten(0, -3)[kept].to(cache.dtype)
    return turned
