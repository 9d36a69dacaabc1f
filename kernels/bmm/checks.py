"""Validation of the arguments of ``mm``, ``bmm`` and ``baddbmm``."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_counted,
    check_dtype,
    check_like,
    check_rank,
    check_tensor,
    refuse_type,
    refuse_value,
)
from torch import Tensor

__all__ = ["Names", "check_input", "check_operands"]

DTYPES: Final = (*FLOATS, torch.int8)
Names = tuple[str, str]
"""Names of the left and the right operand in errors."""


def check_operands(a: Tensor, b: Tensor, names: Names, *, batched: bool) -> None:
    """Require matrices a [M, K] and b [K, N], or if `batched` [B, M, K] and [B, K, N], of one dtype and device."""
    left, right = names
    check_tensor(left, a)
    check_dtype(left, a, DTYPES)
    check_like(right, b, left, a)
    check_rank(left, a, "B, M, K" if batched else "M, K")
    check_rank(right, b, "B, K, N" if batched else "K, N")
    check_counted(left, a)
    check_counted(right, b)
    if batched and a.shape[0] != b.shape[0]:
        refuse_value(right, f"{a.shape[0]} matrices as {left} has", b.shape[0])
    if a.shape[-1] != b.shape[-2]:
        refuse_value(right, f"{a.shape[-1]} rows, as many as {left} has columns", b.shape[-2])


def check_input(value: Tensor, a: Tensor, b: Tensor, name: str) -> None:
    """Require that `value`, added to the product, has the product's dtype and broadcasts to its shape."""
    check_like("input", value, name, a)
    if a.dtype not in FLOATS:
        refuse_type(name, " or ".join(map(str, FLOATS)), a.dtype)
    shape = (a.shape[0], a.shape[1], b.shape[2])
    known = value.shape
    fits = len(known) <= len(shape) and all(
        mine in {1, full} for mine, full in zip(reversed(known), reversed(shape), strict=False)
    )
    if not fits:
        refuse_value("input", f"a shape that broadcasts to {shape} [B, M, N]", tuple(known))
