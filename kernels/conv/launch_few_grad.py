"""Launch `conv_few_grad`, which computes all classes of an input gradient: which calls it can run, layouts, split-K."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import processors
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_few import FAR, divided, is_few, weight_by_channels
from nojit.kernels.conv.launch_merge import launch_merge
from nojit.kernels.conv.launch_pointers import Sum, unused
from nojit.kernels.conv.launch_unfold import VECTOR
from nojit.kernels.conv.layouts import (
    copied_by_channels,
    has_adjacent_channels,
    is_described,
    is_half,
    merged,
    positions_of,
    strides_of,
)
from nojit.kernels.conv.splits import parts_of, tile_words, tiles_of
from nojit.kernels.conv.sweeps import DIMS, PADDED_DIM, Sweep
from nojit.kernels.products.splits import padded_width
from nojit.kernels.products.tile_costs import Tiling
from torch import Tensor, float32

__all__ = ["grad_unit", "is_few_grad", "launch_few_grad", "runs_few_grad"]

KERNEL: Final = "conv_few_grad"
NARROW: Final = 16
"""The kernel is faster up to this many channels of the result; others must fill vectors."""
NARROW_PARTS: Final = 48
"""With a stride, it is faster up to this many channels: other kernels launch each class, and copy a part of the weight for it or pad to 64."""
CLASSES: Final = 4096
"""The most classes: a stride longer than the image has empty ones, which cost programs all the same."""
PRODUCTS: Final = 700_000_000
"""The most products, for each class, of a sum with more channels for which one launch is faster than those of other kernels."""


def is_few_grad(sums: Sequence[Sum]) -> bool:
    """Return whether the kernel is faster than others for an input gradient, given the sums of its classes that have taps."""
    if not sums:
        return False
    if sums[0].n_len <= NARROW:
        return True
    if all(one.sweep.is_pointwise for one in sums) or not (sums[0].is_part or is_few(sums[0])):
        return False
    # the batch counts among the positions
    if library.is_batch_invariant():
        return False
    if sums[0].is_part and sums[0].n_len <= NARROW_PARTS:
        return True
    return sum(one.positions * one.depth * one.n_len for one in sums) <= PRODUCTS * len(sums)


def launch_few_grad(
    writer: RecipeWriter, forward: Sweep, grad: Tensor, w: Tensor, out: Tensor, tiling: Tiling | None = None
) -> bool:
    """Launch an input gradient with the kernel for few channels if it can run it; return whether it did.

    Args:
        writer: allocates and launches, and records both for replays.
        forward: the sweep of the convolution.
        grad: gradient by the output, [N, O, ...].
        w: weight, [O, C, ...]: one group.
        out: gradient by the input, [N, C, ...].
        tiling: None if the bundle chooses the tile.
    """
    if not runs_few_grad(forward, grad, w, out):
        return False
    unit = grad_unit(out)
    if unit == VECTOR:
        weight = weight_by_channels(writer, w)
    else:
        weight = copied_by_channels(writer, writer.make(Tensor.transpose, w, 0, 1))
    _launch(writer, forward, grad, weight, out, unit, tiling)
    return True


def grad_unit(out: Tensor) -> int:
    """Return how many channels of an input gradient the kernel stores at a time."""
    return VECTOR if out.shape[1] % VECTOR == 0 and is_described(out) else 1


def runs_few_grad(forward: Sweep, grad: Tensor, w: Tensor, out: Tensor) -> bool:
    """Return whether the kernel can run an input gradient; the arguments are those of `launch_few_grad`."""
    narrow = grad_unit(out) == VECTOR or out.shape[1] <= NARROW
    return _runs(forward, grad, w, out) and narrow and library.has(KERNEL)


def _runs(forward: Sweep, grad: Tensor, w: Tensor, out: Tensor) -> bool:
    """Return whether the kernel can run an input gradient: its groups, layouts, steps and sizes."""
    # several groups: the weight has the channels of one
    if w.shape[1] != out.shape[1]:
        return False
    if not (is_half(grad) and grad.shape[1] % VECTOR == 0 and is_described(grad) and has_adjacent_channels(out)):
        return False
    if any(mul > 1 and step > 1 for mul, step in zip(forward.mul, forward.step, strict=True)):
        return False
    # the kernel divides positions of the padded input: a window that cuts off positions would make them negative
    if math.prod(forward.mul) > CLASSES or max(forward.start) > 0:
        return False
    between = strides_of(grad)[2:]
    reach = (abs(stride) * step * taps for stride, step, taps in zip(between, forward.step, forward.taps, strict=True))
    padded = (size - start for size, start in zip(forward.source, forward.start, strict=True))
    sizes = (*padded, *forward.out, *forward.mul)
    steps = (step * taps for step, taps in zip(forward.step, forward.taps, strict=True))
    largest: int = max(*sizes, *steps, w.numel(), *between, sum(reach), divided(forward.taps, grad.shape[1] // VECTOR))
    # all classes take the programs of the largest
    rows = (mul * -(-size // mul) for size, mul in zip(forward.source, forward.mul, strict=True))
    return largest < FAR and grad.shape[0] * math.prod(rows) <= sweeps.LIMIT


def _launch(
    writer: RecipeWriter, forward: Sweep, grad: Tensor, w: Tensor, out: Tensor, unit: int, tiling: Tiling | None
) -> None:
    """Launch the kernel, without `tiling` with split-K where it pays; `w` is stored as it needs."""
    (batch, channels, *_), depth = out.shape, grad.shape[1]
    splits, partial = 1 if tiling is None else tiling.parts, None
    outer, channel, *inner = strides_of(out)
    pixel = merged(positions_of(out), strides_of(out)[2:])
    # split-K rounds differently
    if tiling is None and pixel is not None and not library.is_batch_invariant():
        splits = _parts_of(forward, batch, channels, depth, processors(grad))
    positions = math.prod(forward.source)
    if splits > 1:
        partial = new_contiguous(writer, grad, (splits, batch * positions, padded_width(channels)), float32)
    grad_outer, _, *grad_inner = strides_of(grad)
    writer.launch(
        KERNEL,
        grad_ptr=grad,
        w_ptr=w,
        out_ptr=out,
        partial_ptr=unused(writer, grad) if partial is None else partial,
        batch=batch,
        vectors=depth // VECTOR,
        units=channels // unit,
        **named("out_", DIMS, forward.source),
        **named("grad_", DIMS, forward.out),
        **named("taps_", DIMS, forward.taps),
        **named("mul_", DIMS, forward.mul),
        **named("step_", DIMS, forward.step),
        **named("pad_", DIMS, [-start for start in forward.start]),
        splits=splits,
        width=padded_width(channels),
        **named("stride_g", "ndhw", [stride // VECTOR for stride in (grad_outer, *grad_inner)]),
        **named("stride_o", "ndhw", [stride // unit for stride in (outer, *inner)]),
        UNIT=unit,
        DEEP=out.dim() > PADDED_DIM + 2,
        **tile_words(tiling),
    )
    if partial is not None:
        launch_merge(writer, partial, out, None, (batch, positions, channels), (outer, pixel or 0, channel))


def _parts_of(forward: Sweep, batch: int, channels: int, depth: int, device_processors: int) -> int:
    """Return the number of parts for split-K: that of the class with the most taps.

    `depth`: channels of the output's gradient.
    """
    rows, taps = batch, 1
    for size, count, mul in zip(forward.source, forward.taps, forward.mul, strict=True):
        rows, taps = rows * -(-size // mul), taps * -(-count // mul)
    return parts_of(math.prod(forward.mul) * tiles_of(1, rows, channels), depth * taps, device_processors)
