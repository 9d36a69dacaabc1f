"""Products under torch's ``vmap``: what it maps over joins their batch. torch's own fallback takes no lists of tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

__all__ = ["over_batches"]


def over_batches(product: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, int]]:
    """Return the rule of a product: its first two arguments are operands [Z, ...], and nothing else is ever mapped over."""

    def rule(info: Any, in_dims: Sequence[Any], left: Tensor, right: Tensor, *rest: Any) -> tuple[Tensor, int]:
        operands = [_in_front(value, dim, info.batch_size) for value, dim in zip((left, right), in_dims, strict=False)]
        result = product(*(operand.flatten(0, 1) for operand in operands), *rest)
        return result.unflatten(0, operands[0].shape[:2]), 0

    return rule


def _in_front(operand: Tensor, dim: int | None, count: int) -> Tensor:
    """Return [count, Z, ...] of an operand that is mapped over in `dim`, or that is the same for all."""
    return operand.expand(count, *operand.shape) if dim is None else operand.movedim(dim, 0)
