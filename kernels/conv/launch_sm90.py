"""Launch the convolution kernels for sm_90: which calls they can run, TMA descriptors, shapes of boxes.

One TMA copy takes a *box* of 64 positions by 64 channels; `kernel_sm90_boxes` describes boxes.
"""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import torch
from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import MAP_BYTES, Described, processors, takes_maps
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_merge import launch_merge
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.layouts import copied_by_channels, is_described, merged, positions_of, strides_of
from nojit.kernels.conv.splits import parts_of, tile_words
from nojit.kernels.conv.sweeps import DIMS
from nojit.kernels.products.splits import padded_width
from torch import Tensor

__all__ = [
    "PANEL_BYTES",
    "ROWS",
    "Boxes",
    "MapsRun",
    "boxes_of",
    "describe",
    "fits",
    "launch_boxes",
    "launch_mapped",
    "launch_strips",
    "least_share",
    "pixel_of",
    "result_boxes",
    "runs_mapped",
    "serves_channels",
    "steps_of",
    "strip_boxes",
    "strip_rows",
    "strips_of",
]

PANEL_BYTES: Final = 128
"""Width of a TMA store, in bytes."""
ROWS: Final = 64
"""Positions in a box, and channels that a copy takes of each position."""
TILE: Final = 128
REACH: Final = 256
"""The most elements of a dimension that one TMA copy can span."""
STEP: Final = 8
"""The largest element stride of a TMA descriptor."""
USED: Final = 0.6
"""The least fraction of copied channels that must exist for sums by the sm_90 kernels; below it, other kernels waste less."""
SHARED_TAPS: Final = 3
"""The height of weights for which the halo kernel, which copies input rows once for several taps, is built."""
STRIP: Final = 2
"""Number of boxes that a tile of the halo kernel stacks vertically."""
NARROW: Final = 128
"""The halo kernel is faster only up to this many output channels; see also the next limit."""
WASTE: Final = 1.15
"""The halo kernel is faster only if its boxes cover at most this many times the positions of the best boxes."""

Four = tuple[int, int, int, int]
MapsRun = Callable[[Tensor], bool]
"""Function that returns whether the sm_90 kernels, which take TMA descriptors, run on a tensor's device."""


class Boxes(NamedTuple):
    """Number and size of the boxes in each dimension: batch, depth, height, width."""

    counts: Four
    sizes: Four

    @property
    def numbers(self) -> dict[str, int]:
        """Number and size by the names of the kernels' params."""
        return named("boxes_", "ndhw", self.counts) | named("box_", "ndhw", self.sizes)

    @property
    def rows(self) -> int:
        """Number of positions in all boxes, including those past the edges of the result."""
        return math.prod(self.counts) * ROWS


@lru_cache(maxsize=1024)
def boxes_of(positions: Four, apart: Four, most_images: int = ROWS, most_rows: int = ROWS) -> Boxes:
    """Choose the shape of the boxes of 64 positions that cover a result with the least waste past its edges.

    Among equals, it prefers few images, then little depth, then boxes as wide as high.

    Args:
        positions: sizes of the result in batch, depth, height and width.
        apart: distance of the input positions that neighbouring output positions read, in each dimension; a copy spans
            the size of the box times this.
        most_images: the most images in a box.
        most_rows: the most positions in the height of a box.
    """
    sides = [1 << bit for bit in range(ROWS.bit_length())]
    found = []
    for n in sides[: most_images.bit_length()]:
        for d in sides:
            for h in sides[: most_rows.bit_length()]:
                if n * d * h > ROWS:
                    break
                sizes = (n, d, h, ROWS // (n * d * h))
                if all(size * step <= REACH for size, step in zip(sizes, apart, strict=True)):
                    counts = [-(-count // size) for count, size in zip(positions, sizes, strict=True)]
                    found.append(Boxes((counts[0], counts[1], counts[2], counts[3]), sizes))
    return min(
        found, key=lambda boxes: (boxes.rows, boxes.sizes[0], boxes.sizes[1], abs(boxes.sizes[2] - boxes.sizes[3]))
    )


def fits(one: Sum, x: Tensor, maps_run: MapsRun | None = None, used: float = 0.0) -> bool:
    """Return whether the sm_90 kernels can run a sum without too much padding, given operands that are channels-last.

    Args:
        one: the sum.
        x: a tensor on the device; all have its dtype.
        maps_run: function that tells whether the sm_90 kernels run on a device, or None for `takes_maps`.
        used: the least fraction of copied channels that must exist.
    """
    if not ((maps_run or takes_maps)(x) and max(one.sweep.mul) <= STEP and one.positions and one.depth):
        return False
    if one.groups > 1 and (one.c_len % ROWS or one.n_len % ROWS):
        return False
    return all(filled(channels) >= used for channels in (one.c_len, one.n_len))


def serves_channels(one: Sum, x: Tensor) -> bool:
    """Return whether the sm_90 kernels run a sum as soon as all operands are channels-last."""
    unit = MAP_BYTES // x.element_size()
    return one.c_len % unit == one.n_len % unit == 0 and fits(one, x, used=least_share(one))


def least_share(one: Sum) -> float:
    """Return the least fraction of copied channels that must exist: any for parts, whose other kernels need a copy of the weight."""
    return 0.0 if one.is_part else USED


def filled(channels: int) -> float:
    """Return which fraction of the channels that the sm_90 kernels copy exist; they copy multiples of 64."""
    return channels / (ROWS * max(1, -(-channels // ROWS)))


def describe(value: Tensor, box: tuple[int, ...] | None = None, steps: tuple[int, ...] | None = None) -> Described:
    """Return the TMA description of a tensor as [batch, depth, height, width, channels], which must be channels-last.

    Args:
        value: the tensor, with two or three spatial dimensions.
        box: elements that one copy transfers, per dimension; None for the kernel's block.
        steps: distance of the copied elements, per dimension, for strides; None for 1.
    """
    unit = MAP_BYTES // value.element_size()
    outer, _, *inner = strides_of(value)
    shape = (value.shape[0], *positions_of(value), value.shape[1])
    # a dimension of size 1 may have any stride: replace one that a descriptor cannot hold
    strides = [unit if size == 1 else stride for size, stride in zip(shape, (outer, *inner), strict=False)]
    return Described(value, (*strides, 1), shape, box, steps)


def _weight_of(writer: RecipeWriter, w: Tensor) -> Tensor:
    """Return `w`, or a channels-last copy if TMA descriptors cannot hold `w`.

    `writer`: allocates and launches, and records both for replays.
    """
    if is_described(w):
        return w
    return copied_by_channels(writer, w)


def steps_of(one: Sum) -> tuple[int, ...] | None:
    """Return the distance of the input positions that a box copies, per dimension; None for 1."""
    return None if one.sweep.mul == (1, 1, 1) else (1, *one.sweep.mul, 1)


def strips_of(one: Sum, rows: int, count: int) -> Boxes | None:
    """Return boxes one position high if the halo kernel should run a sum; None if it should not.

    Args:
        one: the sum.
        rows: number of positions in all of the boxes that `boxes_of` chose.
        count: number of SMs.
    """
    own, boxes = one.sweep, strip_boxes(one)
    if boxes is None or one.n_len > NARROW:
        return None
    invariant = library.is_batch_invariant()
    # under batch invariance the order of sums must not depend on the batch
    positions = (ROWS if invariant else one.batch, *own.out)
    best = boxes_of(positions, (1, 1, 1, 1)).rows if invariant else rows
    whole = strip_rows(boxes_of(positions, (1, 1, 1, 1), most_rows=1), own.out[1])
    if whole > WASTE * best or (not invariant and whole < STRIP * ROWS * count):
        return None
    return boxes


def strip_boxes(one: Sum) -> Boxes | None:
    """Return boxes one position high if the halo kernel can run a sum that the sm_90 kernels run; None if it cannot."""
    own = one.sweep
    if one.groups > 1 or own.mul != (1, 1, 1) or own.taps[1] != SHARED_TAPS or abs(own.step[1]) != 1:
        return None
    return boxes_of((one.batch, *own.out), (1, 1, 1, 1), most_rows=1)


def strip_rows(boxes: Boxes, height: int) -> int:
    """Return the number of positions in all tiles of the halo kernel; `height`: of the result."""
    return boxes.rows // height * -(-height // STRIP) * STRIP


def launch_strips(
    writer: RecipeWriter, one: Sum, boxes: Boxes, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor
) -> None:
    """Launch a sum with the halo kernel, whose tiles stack boxes vertically.

    `writer`: allocates and launches, and records both for replays.
    """
    own, box = one.sweep, (*boxes.sizes, ROWS)
    # boxes are one position high
    numbers = {name: number for name, number in boxes.numbers.items() if name not in {"boxes_h", "box_h"}}
    writer.launch(
        "conv_halo_sm90",
        x_map=describe(x, box),
        w_map=describe(_weight_of(writer, w)),
        out_map=describe(out, box),
        bias_ptr=x if bias is None else bias,
        height=own.out[1],
        c_len=one.c_len,
        n_len=one.n_len,
        **numbers,
        **named("taps_", "dw", (own.taps[0], own.taps[2])),
        **named("step_", DIMS, own.step),
        **named("start_", DIMS, own.start),
        has_bias=int(bias is not None),
        programs=processors(x),
        TRANSPOSED=one.is_transposed,
        TAPS=own.taps[1],
    )


def runs_mapped(
    one: Sum, x: Tensor, w: Tensor, out: Tensor, maps_run: MapsRun | None = None, used: float = 0.0
) -> bool:
    """Return whether the sm_90 kernels can run a sum; the arguments are those of `fits` and `launch_mapped`."""
    unit = MAP_BYTES // x.element_size()
    if not (fits(one, x, maps_run, used) and is_described(x) and is_described(out)) or w.shape[1] % unit:
        return False
    return result_boxes(one).rows <= sweeps.LIMIT


def result_boxes(one: Sum, parts: int = 1) -> Boxes:
    """Return the boxes of a result in a number of split-K parts."""
    # split-K parts follow one another along the batch dimension, and a box must not span two of them
    images = 1 if parts > 1 else ROWS
    return boxes_of((one.batch, *one.sweep.out), (1, *one.sweep.mul), images)


def pixel_of(one: Sum, out: Tensor) -> int | None:
    """Return the stride of the positions of an image of `out`; None if the sum has no split-K."""
    return merged(positions_of(out), strides_of(out)[2:]) if one.groups == 1 else None


def launch_mapped(
    writer: RecipeWriter,
    one: Sum,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    out: Tensor,
    maps_run: MapsRun | None = None,
    *,
    sharing: bool = True,
) -> bool:
    """Launch a sum with an sm_90 kernel if one can run it; return whether it did. `sharing` allows the halo kernel.

    `writer`: allocates and launches, and records both for replays; `maps_run`: function that tells whether the sm_90
    kernels run on a device, or None for `takes_maps`.
    """
    if not runs_mapped(one, x, w, out, maps_run, least_share(one)):
        return False
    count, boxes = processors(x), result_boxes(one)
    strips = strips_of(one, boxes.rows, count) if sharing else None
    if strips is not None:
        launch_strips(writer, one, strips, x, w, bias, out)
        return True
    splits = 1
    if pixel_of(one, out) is not None and not library.is_batch_invariant():
        splits = parts_of(-(-boxes.rows // TILE) * -(-one.n_len // TILE), one.depth, count)
    launch_boxes(writer, one, x, w, bias, out, splits)
    return True


def launch_boxes(
    writer: RecipeWriter,
    one: Sum,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    out: Tensor,
    splits: int,
    tile: tuple[int, int] | None = None,
) -> None:
    """Launch a sum with `conv_sm90`, in a number of split-K parts.

    `writer`: allocates and launches, and records both for replays; `tile`: rows and columns; None if the bundle chooses.
    """
    positions, boxes = (one.batch, *one.sweep.out), result_boxes(one, splits)
    partial, target, element_bytes = None, out, x.element_size()
    width = padded_width(one.n_len)
    if splits > 1:
        partial = new_contiguous(writer, x, (splits, one.positions, width), torch.float32)
        element_bytes = partial.element_size()
    panel = PANEL_BYTES // element_bytes
    box = (*boxes.sizes, panel)
    if partial is None:
        of_out = describe(target, box)
    else:
        _, d, h, row = positions
        shape = (splits * one.batch, d, h, row, one.n_len)
        of_out = Described(partial, (d * h * row * width, h * row * width, row * width, width, 1), shape, box)
    has_bias = bias is not None and splits == 1
    writer.launch(
        "conv_sm90",
        x_map=describe(x, (*boxes.sizes, ROWS), steps_of(one)),
        w_map=describe(_weight_of(writer, w)),
        out_map=of_out,
        bias_ptr=x if bias is None else bias,
        batch=one.batch,
        **one.channels,
        **boxes.numbers,
        **one.sweep.map,
        splits=splits,
        has_bias=int(has_bias),
        programs=processors(x),
        TRANSPOSED=one.is_transposed,
        PANEL=panel,
        **tile_words(tile),
    )
    if partial is not None:
        outer, channel, *_ = strides_of(out)
        launch_merge(writer, partial, out, bias, one.shape, (outer, pixel_of(one, out) or 0, channel))
