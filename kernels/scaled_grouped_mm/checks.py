"""Validation of the arguments of ``scaled_grouped_mm``."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    check_counted,
    check_dtype,
    check_like,
    check_rank,
    check_tensor,
    refuse_type,
    refuse_value,
)
from nojit.kernels.products.fp8 import check_order
from nojit.kernels.products.groups import check_offs, cuts_depth
from torch import Tensor

__all__ = ["RESULT", "check_operands", "check_out_dtype"]

RESULT: Final = torch.bfloat16
"""Dtype of results."""


def check_out_dtype(out_dtype: object) -> None:
    """Require None or bf16, as torch does."""
    # a value of another type may not support comparison
    if out_dtype is not None and (not isinstance(out_dtype, torch.dtype) or out_dtype != RESULT):
        refuse_type("out_dtype", f"None or {RESULT}", out_dtype)


def check_operands(mat_a: Tensor, mat_b: Tensor, offs: Tensor) -> None:
    """Require e4m3 factors a [M, K], row-major, and b [groups, K, N], column-major, and the ends of groups."""
    check_tensor("mat_a", mat_a)
    check_dtype("mat_a", mat_a, (torch.float8_e4m3fn,))
    check_like("mat_b", mat_b, "mat_a", mat_a)
    check_rank("mat_a", mat_a, "M, K")
    if cuts_depth(mat_b):
        refuse_value(
            "mat_b", "3 dimensions [groups, K, N] (to cut K, call grouped_mm with 16-bit operands)", tuple(mat_b.shape)
        )
    check_rank("mat_b", mat_b, "groups, K, N")
    check_counted("mat_a", mat_a)
    check_counted("mat_b", mat_b)
    if mat_a.shape[1] != mat_b.shape[1]:
        refuse_value("mat_b", f"{mat_a.shape[1]} rows, as many as mat_a has columns", mat_b.shape[1])
    check_order(mat_a=mat_a, mat_b=mat_b)
    check_offs(offs, mat_a, mat_b)
