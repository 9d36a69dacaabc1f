"""``mm_plus_mm`` in plain torch, computed in the dtype of the operands (fp64 works as well)."""

from __future__ import annotations

from torch import Tensor

__all__ = ["mm_plus_mm"]


def mm_plus_mm(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Return ``a @ b + c @ d``."""
    return a @ b + c @ d
