"""Checks of the layout, dtype and overlap of operands, and allocation of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.pointwise.promotion import broadcast
from torch import Tensor

__all__ = ["alike", "apart", "converted", "fitted", "result_like", "same"]


def alike(first: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Return whether all tensors are contiguous, with the shape, dtype and device of `first`."""
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
    """Return whether each tensor has the same memory as `out` or memory disjoint from it; all have the layout of `out`."""
    start, size = out.data_ptr(), out.numel() * out.element_size()
    distances = [abs(tensor.data_ptr() - start) for tensor in tensors]
    return all(distance == 0 or distance >= size for distance in distances)


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are views of the same elements in the same order."""
    return (one.data_ptr(), one.stride(), one.shape) == (other.data_ptr(), other.stride(), other.shape)


def converted(tensors: Sequence[Tensor], dtype: torch.dtype, caller: Caller = DIRECT) -> list[Tensor]:
    """Return the tensors, converted to `dtype` where they have another one.

    `caller`: allocates and launches, or also records both for replays.
    """
    return [tensor if tensor.dtype == dtype else caller.make(Tensor.to, tensor, dtype) for tensor in tensors]


def result_like(names: Sequence[str], tensors: Sequence[Tensor], dtype: torch.dtype, caller: Caller = DIRECT) -> Tensor:
    """Allocate a result of the broadcast shape, with the layout of the first operand that has this shape.

    `caller`: allocates and launches, or also records both for replays.
    """
    shape = broadcast(names, tensors)
    for tensor in tensors:
        if tensor.shape == shape:
            if tensor.dtype == dtype:
                return caller.make(torch.empty_like, tensor)
            return caller.make(torch.empty_like, tensor, dtype=dtype)
    return new_contiguous(caller, tensors[0], shape, dtype)


def fitted(value: Any, shape: Sequence[int], dtype: torch.dtype, grad: Tensor) -> Tensor:
    """Sum the gradient `value` over broadcast dimensions; return it with the given shape and dtype."""
    found = value if isinstance(value, Tensor) else torch.full_like(grad, value)
    if found.shape != grad.shape:
        found = found.expand(grad.shape)
    return found.sum_to_size(shape).to(dtype)
