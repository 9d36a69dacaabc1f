"""Strides of tensors whose leading dimensions are walked as one."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["merged_stride"]


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
