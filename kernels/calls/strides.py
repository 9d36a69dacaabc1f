"""Strides in the form that kernels take: by name, of dimensions that are walked as one, of keys that batches share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache

from torch import Tensor

__all__ = ["kv_strides", "merged_stride", "named"]


def named(prefix: str, dims: str, values: Iterable[int]) -> dict[str, int]:
    """Return a value for each dimension by the name of its param.

    ``named("stride_x", "nc", (8, 1))`` is ``{"stride_xn": 8, "stride_xc": 1}``.

    Raises:
        ValueError: there are more or fewer values than dimensions.
    """
    return dict(zip(_names(prefix, dims), values, strict=True))


@cache
def _names(prefix: str, dims: str) -> tuple[str, ...]:
    # a launch finds interned names without comparing their characters
    return tuple(sys.intern(prefix + dim) for dim in dims)


def merged_stride(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the stride, in elements, of several dimensions as one; 0 if all have size 1, None if they are not evenly spaced.

    Args:
        shape: sizes of the dimensions, outermost first.
        strides: their strides, in elements; those of dimensions of size 1 do not matter.
    """
    merged = reach = None
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size == 1:
            continue
        if merged is None:
            merged, reach = stride, stride * size
        elif stride != reach:
            return None
        else:
            reach = stride * size
    return 0 if merged is None else merged


def kv_strides(operand: Tensor, batch: int) -> tuple[int, int, int]:
    """Return the strides of keys or values by batch, head and row; the first is 0 if one batch serves all `batch` batches."""
    by_batch, by_head, by_row, _ = operand.stride()
    return 0 if operand.shape[0] == 1 < batch else by_batch, by_head, by_row
