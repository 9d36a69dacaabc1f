"""``scaled_grouped_mm`` in plain torch, in fp64 or a given dtype."""

from __future__ import annotations

import torch
from nojit.kernels.products.fp8 import spread
from torch import Tensor

__all__ = ["scaled_grouped_mm"]


def scaled_grouped_mm(  # noqa: PLR0917 - torch's order
    mat_a: Tensor, mat_b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return the product of each group's scaled rows by its scaled matrix, computed in `dtype`; other rows are 0."""
    by_rows = scale_a[:, None] if scale_a.dim() == 1 else scale_a
    by_columns = scale_b[:, None] if scale_b.dim() == 2 else scale_b
    left = mat_a.to(dtype) * spread(by_rows.to(dtype), mat_a)
    out = left.new_zeros(mat_a.shape[0], mat_b.shape[2])
    ends = offs.tolist()
    for b, scale, start, end in zip(mat_b, by_columns, [0, *ends], ends, strict=False):
        out[start:end] = left[start:end] @ (b.to(dtype) * spread(scale.to(dtype), b))
    return out
