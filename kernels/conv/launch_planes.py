"""Copies of convolution operands and results between planes and channels-last."""

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
    rows, cols = x.shape[1], positions
    writer.launch(PLANES, x, copy, rows, cols, x.stride(0), x.stride(1), rows * cols, rows, x.shape[0])
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
    strides = (rows * cols, cols, rows * cols, rows)
    writer.launch(PLANES, written, out, rows, cols, *strides, out.shape[0])
