"""``scaled_grouped_mm`` in plain torch, in fp64 or a given dtype."""

from __future__ import annotations

import torch
from nojit.kernels.grouped_mm import reference
from nojit.kernels.scaled_mm.reference import spread
from torch import Tensor

__all__ = ["scaled_grouped_mm"]


def scaled_grouped_mm(  # noqa: PLR0917 - torch's order
    mat_a: Tensor, mat_b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return the product of each group's scaled rows by its scaled matrix, computed in `dtype`; other rows are 0."""
    by_rows = scale_a[:, None] if scale_a.dim() == 1 else scale_a
    by_columns = scale_b[:, None] if scale_b.dim() == 2 else scale_b
    left = mat_a.to(dtype) * spread(by_rows.to(dtype), mat_a)
    right = [b.to(dtype) * spread(scale.to(dtype), b) for b, scale in zip(mat_b, by_columns, strict=True)]
    return reference.grouped_mm(left, torch.stack(right) if right else mat_b.to(dtype), offs)
