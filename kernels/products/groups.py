"""Validation of the ends of groups, which several grouped products share."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    check_counted,
    check_like_device,
    check_rank,
    check_strided,
    refuse_type,
    refuse_value,
)
from torch import Tensor

__all__ = ["MATRIX", "check_offs", "cuts_depth"]

MATRIX: Final = 2


def cuts_depth(mat_b: Tensor) -> bool:
    """Return whether the groups are ranges of K, as they are if `mat_b` is a matrix, and not ranges of rows."""
    return bool(mat_b.dim() == MATRIX)


def check_offs(offs: Tensor, mat_a: Tensor, mat_b: Tensor) -> None:
    """Require the ends of groups, as many as there are matrices."""
    check_strided("offs", offs)
    if offs.dtype != torch.int32:
        refuse_type("offs", str(torch.int32), offs.dtype)
    check_like_device("offs", offs, "mat_a", mat_a)
    check_rank("offs", offs, "groups")
    check_counted("offs", offs)
    if not offs.is_contiguous():
        refuse_value("offs", "contiguous elements: call offs.contiguous()", f"strides {offs.stride()}")
    if not cuts_depth(mat_b) and offs.shape[0] != mat_b.shape[0]:
        refuse_value("offs", f"{mat_b.shape[0]} elements, as many as mat_b has matrices", offs.shape[0])
