"""The operands of an fp8 product."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["Operands"]


class Operands(NamedTuple):
    """The tensors of a product: a, b, both scales, and the bias or None."""

    a: Tensor
    b: Tensor
    scale_a: Tensor
    scale_b: Tensor
    bias: Tensor | None
