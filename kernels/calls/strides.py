"""Strides in the form that kernels take: of dimensions that are walked as one, of keys that batches share."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["kv_strides", "merged_stride"]


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
