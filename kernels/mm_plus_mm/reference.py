"""Sums of two products in plain torch, in the dtype of their operands, fp64 included."""

from __future__ import annotations

from torch import Tensor

__all__ = ["mm_plus_mm"]


def mm_plus_mm(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Return ``a @ b + c @ d``."""
    return a @ b + c @ d
