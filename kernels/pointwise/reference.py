"""Pointwise operators in plain torch, in the dtype of their operands: pass fp64 for a precise reference.

These are written by hand; `nojit.kernels.pointwise.evaluation` computes any operator from its expression.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["addcmul", "gelu", "silu", "swiglu", "vector_add"]


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1.0) -> Tensor:  # noqa: A002 - the operator's name
    """Return ``input + value * tensor1 * tensor2``."""
    return input + value * tensor1 * tensor2


def vector_add(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002 - the operator's name
    """Return ``input + other``."""
    return input + other


def gelu(input: Tensor, approximate: str = "none") -> Tensor:  # noqa: A002 - the operator's name
    """Return gelu (Hendrycks and Gimpel 2016, section 2), exactly, or in its tanh form if `approximate` is ``"tanh"``."""
    if approximate == "tanh":
        inner = (2.0 / torch.pi) ** 0.5 * (input + 0.044715 * input**3)
        return 0.5 * input * (1.0 + torch.tanh(inner))
    return 0.5 * input * (1.0 + torch.erf(input / 2.0**0.5))


def silu(input: Tensor) -> Tensor:  # noqa: A002 - the operator's name
    """Return ``x * sigmoid(x)``."""
    return input * torch.sigmoid(input)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return ``silu(gate) * up``."""
    return silu(gate) * up
