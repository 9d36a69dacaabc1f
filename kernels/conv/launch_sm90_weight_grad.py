"""Launch the kernels of weight gradients for sm_90: which calls they can run, TMA descriptors, split-K."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from typing import Any, Final

import torch
from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.tensor_maps import MAP_BYTES, Described, processors
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_merge import merge_rows, merge_taps
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.launch_sm90 import (
    PANEL_BYTES,
    ROWS,
    Boxes,
    boxes_of,
    describe,
    fits,
    result_boxes,
    steps_of,
)
from nojit.kernels.conv.layouts import is_described, is_half, merged, strides_of
from nojit.kernels.products.splits import padded_width
from nojit.kernels.products.tile_costs import Tiling
from torch import Tensor

__all__ = [
    "HALO",
    "launch_mapped_weight_grad",
    "runs_mapped_weight_grad",
    "serves_weight_grad_channels",
    "weight_strips",
]

HALO: Final = "conv_weight_grad_halo_sm90"
"""The kernel that copies input rows once for the taps of a column."""
HEIGHTS: Final = (3, 5)
"""The heights of weights for which it is built."""


def serves_weight_grad_channels(one: Sum, grad: Tensor) -> bool:
    """Return whether the sm_90 kernels run the gradient of `one` by its weight as soon as all operands are channels-last.

    `grad`: the gradient by the result.
    """
    unit = MAP_BYTES // grad.element_size()
    unfolds = one.groups == 1 and is_half(grad)
    return one.n_len % unit == 0 and (unfolds or one.c_len % unit == 0) and fits(one, grad)


def runs_mapped_weight_grad(one: Sum, grad: Tensor, x: Tensor | None, out: Tensor) -> bool:
    """Return whether the kernel can run the gradient of `one` by its weight.

    Args:
        one: the sum.
        grad: gradient by the output.
        x: the input; None for one that is unfolded first.
        out: the result.
    """
    unit = MAP_BYTES // grad.element_size()
    if not (fits(one, grad) and is_described(grad) and one.c_len % unit == 0):
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


def weight_strips(one: Sum) -> Boxes | None:
    """Return boxes one position high if the halo kernel can run the gradient of `one` by its weight; None if it cannot.

    It can run only what `conv_weight_grad_sm90` can.
    """
    own = one.sweep
    if one.groups > 1 or own.mul[1] != 1 or own.step[1] != 1 or own.taps[1] not in HEIGHTS:
        return None
    boxes = boxes_of((one.batch, *own.out), (1, *own.mul), most_rows=1)
    return None if boxes.rows > sweeps.LIMIT else boxes


def launch_mapped_weight_grad(
    writer: RecipeWriter,
    one: Sum,
    together: int,
    grad: Tensor,
    x: Tensor,
    out: Tensor,
    tiling: Tiling,
    strips: Boxes | None = None,
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
        strips: boxes one position high, for the halo kernel; None for the other one.
    """
    own, taps, count = one.sweep, math.prod(one.sweep.taps), one.groups * one.n_len
    boxes = strips or result_boxes(one)
    target, length, parts = out, one.depth, tiling.parts
    in_order = together == 1 and out.shape[1] == one.c_len and is_dense(one, out)
    if parts > 1 or not in_order:
        length = padded_width(one.depth)
        target = new_contiguous(writer, grad, (parts, count, length), torch.float32)
    shape: tuple[Any, ...] = (1, parts, count, taps, one.c_len)
    of_out = Described(target, (count * length * parts, count * length, length, one.c_len, 1), shape)
    facts: dict[str, Any] = {
        "grad_map": describe(grad, (*boxes.sizes, ROWS)),
        "x_map": describe(x, (*boxes.sizes, ROWS), steps_of(one)),
        "out_map": of_out,
        **boxes.numbers,
        **own.map,
        "splits": parts,
        "programs": processors(grad),
        "PANEL": PANEL_BYTES // target.element_size(),
        "BLOCK_M": tiling.rows,
    }
    if strips is None:
        writer.launch("conv_weight_grad_sm90", **facts, **one.channels, BLOCK_N=tiling.cols)
    else:
        # boxes are one position high, and neighbouring boxes read neighbouring rows
        for name in ("boxes_h", "box_h", "taps_h", "mul_h", "step_h"):
            del facts[name]
        shared = own.taps[1]
        sizes = {"c_len": one.c_len, "n_len": one.n_len, "height": own.out[1]}
        writer.launch(HALO, **facts, **sizes, TAPS=shared, BLOCK_N=tiling.cols // shared)
    if not in_order:
        merge_taps(writer, target, out, together, one.c_len)
    elif target is not out:
        merge_rows(writer, target, out, one.depth)
