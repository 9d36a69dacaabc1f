"""Dtype and shape of pointwise results, by torch's promotion and broadcasting rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

import torch
from nojit.kernels.calls.arguments import refuse_value
from torch import Tensor

__all__ = ["DTYPES", "broadcast", "promote"]

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
}
"""Torch's dtypes by Triton's names."""


def promote(tensors: Sequence[Tensor], *, floats: bool) -> torch.dtype:
    """Return the common dtype, to which operands are converted and which results have.

    A tensor without dimensions counts only if its category (ints, floats) is higher than that of the others: an fp32
    one does not widen fp16.

    Args:
        tensors: the operands.
        floats: whether the result is always a float; for ints it then has torch's default dtype.
    """
    first = tensors[0].dtype
    if all(tensor.dtype == first for tensor in tensors):
        found = first
    else:
        ranked = [tensor.dtype for tensor in tensors if tensor.dim()]
        single = [tensor.dtype for tensor in tensors if not tensor.dim()]
        high, low = (reduce(torch.promote_types, dtypes) if dtypes else None for dtypes in (ranked, single))
        found = _combined(high, low)
    return torch.get_default_dtype() if floats and not found.is_floating_point and not found.is_complex else found


def _combined(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype:
    """Return the common dtype of tensors with dimensions (`high`) and tensors without (`low`); None for no such tensors."""
    if high is None or low is None:
        return high or low or torch.get_default_dtype()
    if low.is_complex or (not high.is_floating_point and low.is_floating_point) or high == torch.bool:
        return torch.promote_types(high, low)
    return high


def broadcast(names: Sequence[str], tensors: Sequence[Tensor]) -> torch.Size:
    """Return the shape that all operands broadcast to.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    shape = tensors[0].shape
    for name, tensor in zip(names[1:], tensors[1:], strict=True):
        if tensor.shape != shape:
            try:
                shape = torch.broadcast_shapes(shape, tensor.shape)
            except RuntimeError:
                refuse_value(name, f"a shape that broadcasts with {tuple(shape)}", tuple(tensor.shape))
    return shape
