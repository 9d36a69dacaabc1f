"""``grouped_mm`` in plain torch, computed in the dtype of the operands (fp64 works as well)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

__all__ = ["grouped_mm"]


def grouped_mm(mat_a: Tensor, mat_b: Tensor, offs: Tensor, *, bias: Tensor | None = None) -> Tensor:
    """Return the product of each group; rows past the last end are 0.

    Args:
        mat_a: [M, K], rows cut by `offs`; or [M, K], K cut by `offs`.
        mat_b: [groups, K, N] where rows are cut, [K, N] where K is.
        offs: [groups], the end of each group.
        bias: [N] or [groups, N]; only where rows are cut.
    """
    starts = [0, *offs.tolist()]
    spans = [slice(first, last) for first, last in pairwise(starts)]
    if mat_b.dim() == 2:
        return torch.stack([mat_a[:, span] @ mat_b[span] for span in spans])
    out = mat_a.new_zeros(mat_a.shape[0], mat_b.shape[2])
    for group, span in enumerate(spans):
        out[span] = mat_a[span] @ mat_b[group]
        if bias is not None:
            out[span] += bias.expand(len(spans), -1)[group]
    return out
