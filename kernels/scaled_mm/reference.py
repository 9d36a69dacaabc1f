"""``scaled_mm`` in plain torch, in fp64 or a given dtype."""

from __future__ import annotations

import torch
from nojit.kernels.products.fp8 import spread
from torch import Tensor

__all__ = ["scaled_mm"]


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
