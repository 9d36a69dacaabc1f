"""What operators ask of their operands, and make for them: how they lie, their dtype, room for results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from nojit.kernels.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.pointwise.promotion import broadcast
from torch import Tensor

__all__ = ["alike", "apart", "converted", "fitted", "result_like", "same"]


def alike(first: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Return whether all are contiguous tensors of one shape, dtype and device."""
    shape, dtype, device = first.shape, first.dtype, first.get_device()
    for tensor in tensors:
        if (
            tensor is None
            or not tensor.is_contiguous()
            or tensor.dtype != dtype
            or tensor.shape != shape
            or tensor.get_device() != device
        ):
            return False
    return True


def apart(out: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Return whether each tensor, like `out` in all, is the same memory or none of it."""
    start, size = out.data_ptr(), out.numel() * out.element_size()
    distances = [abs(tensor.data_ptr() - start) for tensor in tensors]
    return all(distance == 0 or distance >= size for distance in distances)


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same elements in one order."""
    return (one.data_ptr(), one.stride(), one.shape) == (other.data_ptr(), other.stride(), other.shape)


def converted(tensors: Sequence[Tensor], dtype: torch.dtype, caller: Caller = DIRECT) -> list[Tensor]:
    """Convert those of another dtype."""
    return [tensor if tensor.dtype == dtype else caller.make(Tensor.to, tensor, dtype) for tensor in tensors]


def result_like(names: Sequence[str], tensors: Sequence[Tensor], dtype: torch.dtype, caller: Caller = DIRECT) -> Tensor:
    """Make room for a result, laid out as the first operand of its shape."""
    shape = broadcast(names, tensors)
    for tensor in tensors:
        if tensor.shape == shape:
            if tensor.dtype == dtype:
                return caller.make(torch.empty_like, tensor)
            return caller.make(torch.empty_like, tensor, dtype=dtype)
    return new_contiguous(caller, tensors[0], shape, dtype)


def fitted(value: Any, shape: Sequence[int], dtype: torch.dtype, grad: Tensor) -> Tensor:
    """Sum a gradient over what was broadcast, in the shape and dtype of what it is the gradient of."""
    found = value if isinstance(value, Tensor) else torch.full_like(grad, value)
    if found.shape != grad.shape:
        found = found.expand(grad.shape)
    return found.sum_to_size(shape).to(dtype)
