"""``rms_norm`` and ``add_rms_norm`` in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["add_rms_norm", "rms_norm"]


def rms_norm(input: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return each row divided by its root mean square and multiplied by the weight, as torch does."""
    own = torch.finfo(torch.float32).eps if eps is None else eps
    return torch.nn.functional.rms_norm(input, input.shape[-1:], weight, own)


def add_rms_norm(
    input: Tensor,  # noqa: A002 - torch's name
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the norm of ``input + residual``, and the sum."""
    total = input + residual
    return rms_norm(total, weight, eps), total
