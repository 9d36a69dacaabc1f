"""Copy convolution operands from planes (torch's default layout, NCHW) to channels-last, and results back."""

from __future__ import annotations

import math
from typing import Final

from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.conv.layouts import allocate, copied_by_channels, merged
from nojit.kernels.conv.sweeps import LIMIT
from torch import Tensor

__all__ = ["PLANES", "copy_to_channels", "copy_to_planes"]

PLANES: Final = "conv_planes"
"""The kernel that copies; earlier bundles lack it."""


def copy_to_channels(writer: RecipeWriter, x: Tensor) -> Tensor:
    """Return a channels-last copy of x [N, C, ...], 16 bits.

    `writer`: allocates and launches, and records both for replays.
    """
    positions = math.prod(x.shape[2:])
    if merged(x.shape[2:], x.stride()[2:]) != 1 or max(positions, x.shape[1]) > LIMIT:
        return copied_by_channels(writer, x)
    copy = allocate(writer, x, tuple(x.shape), channels=True)
    _launch(writer, x, copy, (x.shape[0], x.shape[1], positions), (x.stride(0), x.stride(1)))
    return copy


def copy_to_planes(writer: RecipeWriter, written: Tensor, out: Tensor) -> None:
    """Copy `written`, channels-last without gaps, to `out`, contiguous and of the same shape; 16 bits.

    `writer`: allocates and launches, and records both for replays.
    """
    rows, cols = math.prod(out.shape[2:]), out.shape[1]
    if max(rows, cols) > LIMIT:
        # no recipe holds a call this large
        writer.make(Tensor.copy_, out, written)
        return
    _launch(writer, written, out, (out.shape[0], rows, cols), (rows * cols, cols))


def _launch(
    writer: RecipeWriter, value: Tensor, out: Tensor, shape: tuple[int, int, int], strides: tuple[int, int]
) -> None:
    """Write the transposes of matrices, without gaps.

    `shape`: batch, rows and columns of the matrices; `strides`: distances of matrices and rows in `value`.
    """
    batch, rows, cols = shape
    writer.launch(
        PLANES,
        in_ptr=value,
        out_ptr=out,
        rows=rows,
        cols=cols,
        stride_in_z=strides[0],
        stride_in_row=strides[1],
        stride_out_z=rows * cols,
        stride_out_col=rows,
        batch=batch,
    )
