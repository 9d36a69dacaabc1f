"""``scaled_mm`` in plain torch, in fp64 or a given dtype."""

from __future__ import annotations

import torch
from nojit.kernels.scaled_mm.scales import DEEP
from torch import Tensor

__all__ = ["scaled_mm", "spread"]


def scaled_mm(  # noqa: PLR0917 - torch's order
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Return ``(scale_a * a) @ (scale_b * b) + bias``, computed in `dtype`."""
    result = (a.to(dtype) * spread(scale_a.to(dtype), a)) @ (b.to(dtype) * spread(scale_b.to(dtype), b))
    return result if bias is None else result + bias.to(dtype)


def spread(scale: Tensor, of: Tensor) -> Tensor:
    """Return `scale` as one number for each element of the matrix `of`, or unchanged if it is one number for all."""
    if scale.numel() == 1:
        return scale.reshape(())
    for dim in range(2):
        size, full = scale.shape[dim], of.shape[dim]
        if size not in {1, full}:
            scale = scale.repeat_interleave(DEEP, dim).narrow(dim, 0, full)
    return scale
