"""Memory layouts of the operands of dense products: batches of matrices, and their TMA descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from nojit.kernels.calls.tensor_maps import MAP_BYTES, Described
from nojit.kernels.products.splits import padded_width
from torch import Tensor

__all__ = ["BATCHED", "Layout", "Mapped", "described", "layout_of", "mapped", "mapped_product", "stored", "transposed"]

BATCHED: Final = 3
"""Number of dimensions of a batch of matrices."""
PANEL_BYTES: Final = 128
"""Width of a TMA store, in bytes."""
FP32_BYTES: Final = 4


class Layout(NamedTuple):
    """Sizes and strides (batch, rows, columns) of a batch of matrices; a single matrix has batch stride 0."""

    shape: tuple[int, int, int]
    strides: tuple[int, int, int]


class Mapped(NamedTuple):
    """TMA description of a batch of matrices, or of their transposes: (parts, batch, rows, columns)."""

    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    is_transposed: bool
    """True if it describes the transposes."""
    step: int
    """Distance, in matrices, from one product's matrix to the next one's: 1, or 0 if all products share a matrix."""

    def describe(self, value: Tensor) -> Described:
        """Return the TMA description of the tensor `value`, which has this layout."""
        return Described(value, self.strides, self.shape)


def described(maps: Sequence[Mapped], **tensors: Tensor) -> dict[str, Any]:
    """Return the TMA description of each tensor, which has the layout of its map, by the name of its param."""
    return {name: of.describe(value) for of, (name, value) in zip(maps, tensors.items(), strict=True)}


def layout_of(value: Tensor, batch: int) -> Layout:
    """Return the layout of a matrix, or of a batch of matrices, for `batch` products."""
    if value.dim() == BATCHED:
        (_, rows, cols), (stride_z, stride_row, stride_col) = value.shape, value.stride()
    else:
        (rows, cols), (stride_row, stride_col), stride_z = value.shape, value.stride(), 0
    return Layout((batch, rows, cols), (stride_z, stride_row, stride_col))


def transposed(layout: Layout) -> Layout:
    """Return the layout of the transposed matrices."""
    (batch, rows, cols), (stride_z, stride_row, stride_col) = layout
    return Layout((batch, cols, rows), (stride_z, stride_col, stride_row))


def mapped(layout: Layout, element_bytes: int, *, turn: bool = True) -> Mapped | None:
    """Return the TMA description of matrices aligned to 16 bytes or, if `turn` allows it, of their transposes.

    Returns:
        None if no descriptor can hold them: columns must be contiguous, and row and matrix strides multiples of 16
            bytes.
    """
    straight = _mapped(layout, element_bytes, is_transposed=False)
    if straight is not None or not turn:
        return straight
    return _mapped(transposed(layout), element_bytes, is_transposed=True)


def mapped_product(
    of_a: Mapped | None, of_b: Mapped | None, result: Layout, result_bytes: int
) -> tuple[Mapped, Mapped, Mapped] | None:
    """Return the TMA descriptions of both factors and of a result whose elements have `result_bytes` bytes.

    Returns:
        None if a factor has none, no descriptor can hold the result, or matrices of the result share memory.
    """
    of_out = mapped(result, result_bytes, turn=False)
    # the matrices of an expanded result would overwrite one another
    if of_a is None or of_b is None or of_out is None or of_out.shape[1] != result.shape[0]:
        return None
    return of_a, of_b, of_out


def stored(of_out: Mapped, element_bytes: int, parts: int) -> tuple[Mapped, int]:
    """Return the TMA description for stores, and the columns of a box.

    With one of `parts` it describes the result; with several (split-K), fp32 partial sums [parts, batch, rows,
    columns].
    """
    if parts == 1:
        return of_out, PANEL_BYTES // element_bytes
    _, batch, rows, cols = of_out.shape
    width = padded_width(cols)
    strides = (batch * rows * width, rows * width, width, 1)
    return Mapped((parts, batch, rows, cols), strides, is_transposed=False, step=1), PANEL_BYTES // FP32_BYTES


def _mapped(layout: Layout, element_bytes: int, *, is_transposed: bool) -> Mapped | None:
    (batch, rows, cols), (stride_z, stride_row, stride_col) = layout
    unit = MAP_BYTES // element_bytes
    if (stride_col != 1 and cols != 1) or not batch * rows * cols:
        return None
    # a dimension of size 1 may have any stride: replace one that a descriptor cannot hold
    if rows == 1:
        stride_row = unit
    shared = stride_z == 0 or batch == 1
    if shared:
        batch, stride_z = 1, unit
    if min(stride_row, stride_z) <= 0 or (stride_row | stride_z) % unit:
        return None
    return Mapped((1, batch, rows, cols), (unit, stride_z, stride_row, 1), is_transposed, int(not shared))
