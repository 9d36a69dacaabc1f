"""Products in plain torch, in the dtype of their operands (fp64 too)."""

from __future__ import annotations

import torch
from nojit.kernels.gemm.activations import FUNCTIONS
from torch import Tensor

__all__ = ["baddbmm", "bmm", "mm"]


def mm(a: Tensor, b: Tensor, *, activation: str = "none") -> Tensor:
    """Return ``activation(a @ b)``; of int8 the exact product, in int32."""
    if a.dtype == torch.int8:
        # fp64 holds every sum of fewer than 2^38 products of bytes
        return (a.double() @ b.double()).to(torch.int32)
    return FUNCTIONS[activation](a @ b)


def bmm(a: Tensor, b: Tensor, *, activation: str = "none") -> Tensor:
    """Return the same of batches of matrices."""
    return mm(a, b, activation=activation)


def baddbmm(
    input: Tensor,  # noqa: A002 - torch's name
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: str = "none",
) -> Tensor:
    """Return ``activation(beta * input + alpha * a @ b)``; where beta is 0 the input counts for nothing."""
    return FUNCTIONS[activation](torch.baddbmm(input, a, b, beta=beta, alpha=alpha))
