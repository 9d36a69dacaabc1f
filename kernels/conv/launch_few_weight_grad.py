"""Launch `conv_few_weight_grad`, the kernel for images with few channels: which calls it can run, boxes."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from typing import Final

from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.strides import named
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_few import FAR, serves_few, spans
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.launch_sm90 import Boxes, boxes_of
from nojit.kernels.conv.launch_unfold import VECTOR, VectorInput
from nojit.kernels.conv.layouts import is_described, is_half_image, strides_of
from nojit.kernels.products.tile_costs import Tiling
from torch import Tensor

__all__ = ["few_boxes", "launch_few_weight_grad", "runs_few_weight_grad"]

KERNEL: Final = "conv_few_weight_grad"


def few_boxes(one: Sum) -> Boxes:
    """Return the boxes of positions that the kernel sums over."""
    return boxes_of((one.batch, *one.sweep.out), (1, 1, 1, 1))


def runs_few_weight_grad(one: Sum, source: VectorInput, grad: Tensor) -> bool:
    """Return whether the kernel can run the gradient of `one` by its weight, given the form of the input."""
    if not (is_half_image(grad) and serves_few(one, grad) and one.n_len % VECTOR == 0 and is_described(grad)):
        return False
    if not library.has(KERNEL):
        return False
    boxes, own = few_boxes(one), one.sweep
    count, _, high, wide = boxes.sizes
    outer, _, _, row, pixel = strides_of(grad)
    # offsets within a box
    within_grad = (count - 1) * outer + (high - 1) * row + (wide - 1) * pixel
    x_outer, _, x_row, x_pixel = source.strides
    within_x = (count - 1) * x_outer + (high - 1) * own.mul[1] * x_row + (wide - 1) * source.mul * x_pixel
    # the first row and column of a box
    far = max(own.source[1], own.out[1] * own.mul[1]) * x_row + max(source.width, own.out[2] * source.mul) * x_pixel
    far_grad = own.out[1] * row + own.out[2] * pixel
    return (
        spans(source, one)
        and max(within_grad, far_grad, (within_x + far) * VECTOR, one.depth) < FAR
        and boxes.rows <= sweeps.LIMIT
    )


def launch_few_weight_grad(
    writer: RecipeWriter,
    one: Sum,
    source: VectorInput,
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    tiling: Tiling,
) -> None:
    """Launch the gradient of `one` by its weight.

    Args:
        writer: allocates and launches, and records both for replays.
        one: the sum.
        source: the form of x.
        grad: gradient by the output, [N, O, H, W].
        x: the image in the form `source`.
        target: the split-K parts, [parts, O, kH * kW * C] with the taps and channels of `source`.
        tiling: rows (taps and channels of x) and columns (channels of grad) of a tile, and the number of parts.
    """
    own, boxes = one.sweep, few_boxes(one)
    grad_outer, _, _, grad_row, grad_pixel = (stride // VECTOR for stride in strides_of(grad))
    writer.launch(
        KERNEL,
        grad_ptr=grad,
        x_ptr=x,
        out_ptr=target,
        batch=one.batch,
        results=one.n_len // VECTOR,
        vectors=source.vectors,
        **named("out_", "hw", own.out[1:]),
        **named("x_", "hw", (own.source[1], source.width)),
        **named("taps_", "hw", (own.taps[1], source.taps)),
        **named("mul_", "hw", (own.mul[1], source.mul)),
        **named("step_", "hw", (own.step[1], source.step)),
        **named("start_", "hw", (own.start[1], source.start)),
        **named("boxes_", "nhw", (boxes.counts[0], *boxes.counts[2:])),
        **named("box_", "hw", boxes.sizes[2:]),
        splits=tiling.parts,
        **named("stride_g", "nhw", (grad_outer, grad_row, grad_pixel)),
        **named("stride_x", "nhw", (source.strides[0], *source.strides[2:])),
        BLOCK_M=tiling.rows,
        BLOCK_N=tiling.cols,
    )
