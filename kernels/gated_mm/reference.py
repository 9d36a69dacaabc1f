"""``gated_mm`` in plain torch, computed in the dtype of the operands (fp64 works as well)."""

from __future__ import annotations

from nojit.kernels.products.activations import FUNCTIONS
from torch import Tensor

__all__ = ["gated_mm"]


def gated_mm(input: Tensor, mat2: Tensor, *, activation: str = "silu") -> Tensor:  # noqa: A002 - torch's name
    """Return ``activation(gate) * up``, where ``gate, up = (input @ mat2).chunk(2, -1)``."""
    gate, up = (input @ mat2).chunk(2, -1)
    return FUNCTIONS[activation](gate) * up
