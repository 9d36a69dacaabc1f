"""Launch the kernels of weight gradients for sm_90: which calls they can run, TMA descriptors."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from typing import Any, Final

from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.tensor_maps import MAP_BYTES, Described, processors
from nojit.kernels.conv import sweeps
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
from nojit.kernels.conv.launch_unfold import VectorInput
from nojit.kernels.conv.layouts import is_described, is_half
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


def runs_mapped_weight_grad(one: Sum, source: VectorInput, grad: Tensor) -> bool:
    """Return whether the kernel can run the gradient of `one` by its weight, given the form of an input for TMA descriptors.

    `grad`: gradient by the output.
    """
    one = source.over(one)
    unit = MAP_BYTES // grad.element_size()
    if not (fits(one, grad) and is_described(grad) and one.c_len % unit == 0):
        return False
    return result_boxes(one).rows <= sweeps.LIMIT


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
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    tiling: Tiling,
    strips: Boxes | None = None,
) -> None:
    """Launch the gradient of `one` by its weight.

    Args:
        writer: allocates and launches, and records both for replays.
        one: the sum, over x.
        grad: gradient by the output.
        x: the input, as it is or unfolded.
        target: the split-K parts, [parts, O, at least kD * kH * kW * C].
        tiling: the tile and the number of parts.
        strips: boxes one position high, for the halo kernel; None for the other one.
    """
    own, boxes = one.sweep, strips or result_boxes(one)
    parts, count, length = target.shape
    shape: tuple[Any, ...] = (1, parts, count, math.prod(own.taps), one.c_len)
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
