"""``mm``, ``bmm`` and ``baddbmm`` in plain torch, computed in the dtype of the operands (fp64 works as well)."""

from __future__ import annotations

import torch
from nojit.kernels.products.activations import FUNCTIONS
from torch import Tensor

__all__ = ["baddbmm", "bmm", "mm"]


def mm(input: Tensor, mat2: Tensor, *, activation: str = "none") -> Tensor:  # noqa: A002 - torch's name
    """Return ``activation(input @ mat2)``; for int8, the exact product as int32."""
    if input.dtype == torch.int8:
        # fp64 is exact for sums of fewer than 2^38 products of bytes
        return (input.double() @ mat2.double()).to(torch.int32)
    return FUNCTIONS[activation](input @ mat2)


def bmm(input: Tensor, mat2: Tensor, *, activation: str = "none") -> Tensor:  # noqa: A002 - torch's name
    """Return ``activation(input @ mat2)`` for batches of matrices."""
    return mm(input, mat2, activation=activation)


def baddbmm(
    input: Tensor,  # noqa: A002 - torch's name
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: str = "none",
) -> Tensor:
    """Return ``activation(beta * input + alpha * batch1 @ batch2)``; if beta is 0, NaN and inf in the input do not matter."""
    return FUNCTIONS[activation](torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha))
