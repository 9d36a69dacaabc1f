"""How the operands of dense products lie in memory: as matrices of a batch, and as tensor maps may describe them."""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.gemm.splits import padded_width
from nojit.kernels.maps import MAP_BYTES, Described
from torch import Tensor

__all__ = ["BATCHED", "Layout", "Mapped", "layout_of", "mapped", "stored", "transposed"]

BATCHED: Final = 3
"""The dimensions of a batch of matrices."""
PANEL_BYTES: Final = 128
"""How wide the boxes of what is stored are."""
FP32_BYTES: Final = 4


class Layout(NamedTuple):
    """Sizes and strides of a batch of matrices; those of a single one are those of a batch that shares it."""

    shape: tuple[int, int, int]
    strides: tuple[int, int, int]


class Mapped(NamedTuple):
    """What a tensor map says of a batch of matrices, or of their transposes."""

    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    turned: bool
    """Whether it is the transposes that are described."""
    step: int
    """How far the next product's matrix lies behind: 0 where all share one."""

    def describe(self, value: Tensor) -> Described:
        """Describe a tensor that lies so."""
        return Described(value, self.strides, self.shape)


def layout_of(value: Tensor, batch: int) -> Layout:
    """Return how one matrix, or a batch of them, serves `batch` products."""
    if value.dim() == BATCHED:
        (_, rows, cols), (stride_z, stride_row, stride_col) = value.shape, value.stride()
    else:
        (rows, cols), (stride_row, stride_col), stride_z = value.shape, value.stride(), 0
    return Layout((batch, rows, cols), (stride_z, stride_row, stride_col))


def transposed(layout: Layout) -> Layout:
    """Return the layout of the transposes."""
    (batch, rows, cols), (stride_z, stride_row, stride_col) = layout
    return Layout((batch, cols, rows), (stride_z, stride_col, stride_row))


def mapped(layout: Layout, element_bytes: int, *, turn: bool = True) -> Mapped | None:
    """Say how a map describes matrices that start at a multiple of 16 bytes, or else, if it may `turn` them, transposes.

    Returns:
        None where no map can: it wants columns next to one another, and rows and matrices multiples of 16 bytes apart.
    """
    straight = _mapped(layout, element_bytes, turned=False)
    if straight is not None or not turn:
        return straight
    return _mapped(transposed(layout), element_bytes, turned=True)


def stored(of_out: Mapped, element_bytes: int, parts: int) -> tuple[Mapped, int]:
    """Say what kernels over maps store, and how many columns a box of it has: the result, or fp32 sums of several parts of the depth."""
    if parts == 1:
        return of_out, PANEL_BYTES // element_bytes
    _, batch, rows, cols = of_out.shape
    width = padded_width(cols)
    strides = (batch * rows * width, rows * width, width, 1)
    return Mapped((parts, batch, rows, cols), strides, turned=False, step=1), PANEL_BYTES // FP32_BYTES


def _mapped(layout: Layout, element_bytes: int, *, turned: bool) -> Mapped | None:
    (batch, rows, cols), (stride_z, stride_row, stride_col) = layout
    unit = MAP_BYTES // element_bytes
    if (stride_col != 1 and cols != 1) or not batch * rows * cols:
        return None
    # of a dimension of one, any stride will do, and the tensor's own may be none that a map takes
    if rows == 1:
        stride_row = unit
    shared = stride_z == 0 or batch == 1
    if shared:
        batch, stride_z = 1, unit
    if min(stride_row, stride_z) <= 0 or (stride_row | stride_z) % unit:
        return None
    return Mapped((1, batch, rows, cols), (unit, stride_z, stride_row, 1), turned, int(not shared))
