"""Products with 4-bit weights in plain torch: unpack the weights, then multiply."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["uint4x2_mixed_mm", "unpack"]


def unpack(
    b: Tensor,
    dtype: torch.dtype,
    scales: Tensor | None = None,
    zeros: Tensor | None = None,
    group_size: int | None = None,
) -> Tensor:
    """Return the weights [K, N] of bytes [K / 2, N], low nibbles in even rows: nibble minus 8 or zero point, times scale.

    `group_size`: number of rows of a weight that share a scale.
    """
    packed = b.to(torch.int32)
    both = torch.stack((packed & 15, packed >> 4 & 15), 1).reshape(2 * b.shape[0], b.shape[1])
    if scales is None:
        return (both - 8).to(dtype)
    depth = both.shape[0]
    rows = torch.arange(depth, device=b.device) // (depth if group_size is None else group_size)
    shift = 8 if zeros is None else zeros.to(dtype)[rows]
    return (both.to(dtype) - shift) * scales.to(dtype)[rows]


def uint4x2_mixed_mm(
    a: Tensor,
    b: Tensor,
    *,
    scales: Tensor | None = None,
    zeros: Tensor | None = None,
    group_size: int | None = None,
) -> Tensor:
    """Return ``a @ w``, computed in the dtype of a (fp64 works as well).

    `group_size`: number of rows of a weight that share a scale.
    """
    return a @ unpack(b, a.dtype, scales, zeros, group_size)
