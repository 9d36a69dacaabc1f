"""Launches of weight gradients with the kernel for sm_90: which calls it runs, TMA descriptors, split-K."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from typing import Any

import torch
from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.tensor_maps import MAP_BYTES, Described, processors
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_merge import merge_rows, merge_taps
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.launch_sm90 import PANEL_BYTES, ROWS, MapsRun, describe, fits, result_boxes, steps_of
from nojit.kernels.conv.layouts import is_described, is_half, merged, strides_of
from nojit.kernels.products.splits import padded_width
from nojit.kernels.products.tile_costs import Tiling
from torch import Tensor

__all__ = ["launch_mapped_weight_grad", "runs_mapped_weight_grad", "serves_weight_grad_channels"]


def serves_weight_grad_channels(one: Sum, grad: Tensor) -> bool:
    """Return whether the sm_90 kernels run the gradient of `one` by its weight as soon as all operands are channels-last.

    `grad`: the gradient by the result.
    """
    unit = MAP_BYTES // grad.element_size()
    unfolds = one.groups == 1 and is_half(grad)
    return one.n_len % unit == 0 and (unfolds or one.c_len % unit == 0) and fits(one, grad)


def runs_mapped_weight_grad(
    one: Sum, grad: Tensor, x: Tensor | None, out: Tensor, maps_run: MapsRun | None = None
) -> bool:
    """Return whether the kernel can run the gradient of `one` by its weight.

    Args:
        one: the sum.
        grad: gradient by the output.
        x: the input; None for one that is unfolded first.
        out: the result.
        maps_run: function that tells whether the sm_90 kernels run on a device, or None for `takes_maps`.
    """
    unit = MAP_BYTES // grad.element_size()
    if not (fits(one, grad, maps_run) and is_described(grad) and one.c_len % unit == 0):
        return False
    if result_boxes(one).rows > sweeps.LIMIT:
        return False
    return x is None or (is_described(x) and is_dense(one, out))


def is_dense(one: Sum, out: Tensor) -> bool:
    """Return whether a row of the result has the taps in order, each with all its channels, and rows follow one another."""
    row, channel, *inner = strides_of(out)
    taps = one.sweep.taps
    in_order = channel == 1 and (math.prod(taps) == 1 or merged(taps, inner) == one.c_len)
    return in_order and row == one.depth and out.data_ptr() % MAP_BYTES == 0


def launch_mapped_weight_grad(
    writer: RecipeWriter, one: Sum, together: int, grad: Tensor, x: Tensor, out: Tensor, tiling: Tiling
) -> None:
    """Launch the gradient of `one` by its weight.

    Args:
        writer: allocates and launches, and records both for replays.
        one: the sum, over x.
        together: taps of a row that one position of x holds.
        grad: gradient by the output.
        x: the input, as it is or unfolded.
        out: the result.
        tiling: the tile and the split-K parts.
    """
    boxes, taps, count = result_boxes(one), math.prod(one.sweep.taps), one.groups * one.n_len
    target, length, parts = out, one.depth, tiling.parts
    in_order = together == 1 and out.shape[1] == one.c_len and is_dense(one, out)
    if parts > 1 or not in_order:
        length = padded_width(one.depth)
        target = new_contiguous(writer, grad, (parts, count, length), torch.float32)
    shape: tuple[Any, ...] = (1, parts, count, taps, one.c_len)
    of_out = Described(target, (count * length * parts, count * length, length, one.c_len, 1), shape)
    writer.launch(
        "conv_weight_grad_sm90",
        grad_map=describe(grad, (*boxes.sizes, ROWS)),
        x_map=describe(x, (*boxes.sizes, ROWS), steps_of(one)),
        out_map=of_out,
        **one.channels,
        **boxes.numbers,
        **one.sweep.map,
        splits=parts,
        programs=processors(grad),
        PANEL=PANEL_BYTES // target.element_size(),
        BLOCK_M=tiling.rows,
        BLOCK_N=tiling.cols,
    )
    if not in_order:
        merge_taps(writer, target, out, together, one.c_len)
    elif target is not out:
        merge_rows(writer, target, out, one.depth)
