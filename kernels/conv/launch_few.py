"""Launch `conv_few`, the kernel for few channels: which calls it can run, unfolding, split-K."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import MAP_BYTES, processors
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_merge import launch_merge
from nojit.kernels.conv.launch_pointers import Sum, unused
from nojit.kernels.conv.launch_unfold import VECTOR, VectorInput, chunks_of, own_form, unfolded, unfolded_form
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
from nojit.kernels.conv.sweeps import DIMS, PADDED_DIM
from nojit.kernels.products.splits import padded_width
from nojit.kernels.products.tile_costs import Tiling
from torch import Tensor, float32

__all__ = [
    "FAR",
    "divided",
    "few_depth",
    "few_form",
    "few_unit",
    "is_dense_by_channels",
    "is_few",
    "is_narrow",
    "is_uneven",
    "is_unfolded",
    "is_unfolded_first",
    "launch_few",
    "serves_few",
    "spans",
    "weight_by_channels",
]

PADDED: Final = 64
"""The sm_90 kernel pads channels to multiples of this."""
FAR: Final = 2**30
"""Coordinates and offsets within an image must be below this."""
MANY: Final = 1 << 16
"""The least positions of an input gradient for which it takes products of 1 x 1 weights and few channels."""
SHARE: Final = 0.65
"""The least share of its products that the sm_90 kernel, which pads channels to multiples of 64, must not waste to be faster."""
SHARE_OF_PART: Final = 0.1
"""The same for a part of a strided convolution's input gradient, whose part of the weight is copied for the kernel for few channels."""


def launch_few(
    writer: RecipeWriter,
    one: Sum,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    out: Tensor,
    tiling: Tiling | None = None,
) -> bool:
    """Launch a sum with the kernel for few channels if it can run it; return whether it did.

    `writer`: allocates and launches, and records both for replays; `tiling`: None if the bundle chooses the tile.
    """
    source = few_form(one, x, out)
    if source is None:
        return False
    if one.is_transposed:
        one, w = replace(one, is_transposed=False), writer.make(Tensor.transpose, w, 0, 1)
    if is_unfolded_first(one, x):
        chunks = chunks_of(one)
        taps = one.n_len * math.prod(one.sweep.taps[:2]) * source.taps
        weight = new_contiguous(writer, x, (taps, source.channels))
        for each, copy, its_out in unfolded(writer, chunks, x, out, (w, weight)):
            _launch(writer, each.one, each.source, copy, weight, bias, its_out, tiling)
        return True
    # whether a replayed part is aligned depends on more of its address than a recipe knows
    weight = copied_by_channels(writer, w) if one.is_part else weight_by_channels(writer, w)
    _launch(writer, one, source, x, weight, bias, out, tiling)
    return True


def few_form(one: Sum, x: Tensor, out: Tensor) -> VectorInput | None:
    """Return the form in which the kernel for few channels reads the input x of a sum; None if it cannot run the sum."""
    if not (serves_few(one, x) and has_adjacent_channels(out)):
        return None
    unfolds = is_unfolded_first(one, x)
    source = unfolded_form(one) if unfolds else own_form(one, x)
    own = one.sweep
    rows = one.batch * math.prod(own.source[:2]) * source.width
    if unfolds and max(rows, one.n_len * math.prod(own.taps[:2]) * source.taps) > sweeps.LIMIT:
        return None
    return source if spans(source, one) else None


def is_unfolded_first(one: Sum, x: Tensor) -> bool:
    """Return whether the kernel for few channels reads an unfolded copy of x."""
    return one.c_len % VECTOR != 0 or not is_described(x)


def is_few(one: Sum) -> bool:
    """Return whether the kernel for few channels is faster than the sm_90 kernel, given the channels of input and result."""
    copied, written = (PADDED * -(-count // PADDED) for count in (one.c_len, one.n_len))
    return one.c_len * one.n_len < (SHARE_OF_PART if one.is_part else SHARE) * copied * written


def is_narrow(one: Sum, x: Tensor) -> bool:
    """Return whether the kernel for few channels is faster than a matrix product, which has no narrower tiles than 64 columns."""
    if not (is_few(one) and one.n_len <= PADDED and is_half(x) and one.c_len % VECTOR == 0 and is_described(x)):
        return False
    # the copy of a transposed weight takes longer than a small product; the batch counts among the positions
    return not one.is_transposed or library.is_batch_invariant() or one.positions >= MANY


def is_uneven(x: Tensor) -> bool:
    """Return whether the rows of x, as those of a matrix, are no multiples of 16 bytes apart, and another kernel may be faster.

    Rows are the channels of a position or, by planes, the positions of a channel.
    """
    if x.stride(1) == 1:
        return is_unfolded(x)
    return is_half(x) and x.stride(1) % VECTOR != 0


def is_unfolded(x: Tensor) -> bool:
    """Return whether x has 16 bits and channels that do not fill vectors of 8, so that a copy is read in its place."""
    return is_half(x) and x.shape[1] % VECTOR != 0


def serves_few(one: Sum, x: Tensor) -> bool:
    """Return whether the kernel for few channels can run a sum if its result is channels-last.

    It runs sums over inputs of 16 bits, in one group, whose numbers it can hold.
    """
    own = one.sweep
    if one.groups > 1 or not is_half(x):
        return False
    if not one.positions or not one.depth or one.positions > sweeps.LIMIT:
        return False
    reach = (
        abs(step) * (taps - 1) + abs(start) for step, taps, start in zip(own.step, own.taps, own.start, strict=True)
    )
    far = (size * mul for size, mul in zip(own.out, own.mul, strict=True))
    return max(*own.source, *far, *reach) < FAR


def spans(source: VectorInput, one: Sum) -> bool:
    """Return whether offsets from tap to tap, and the weight's rows, fit the kernel's 32-bit numbers."""
    its = source.over(one).sweep
    steps = zip(its.step, its.taps, source.strides[1:], strict=True)
    reach = sum(abs(step) * (taps - 1) * stride for step, taps, stride in steps)
    row = math.prod(its.taps) * source.vectors
    return max(*source.strides[1:], reach, row) * VECTOR < FAR and divided(its.taps, source.vectors) < FAR


def divided(taps: Sequence[int], vectors: int) -> int:
    """Return the largest product of a number and its divisor in a kernel's loop: `divide_small` needs less than 2**31.

    It divides the `vectors` of all taps by those of one, and taps by those of a row or a plane.
    """
    return math.prod(taps) * max(vectors**2, *taps)


def weight_by_channels(writer: RecipeWriter, w: Tensor) -> Tensor:
    """Return `w` if it is channels-last without gaps, else such a copy.

    `writer`: allocates and launches, and records both for replays.
    """
    return w if is_dense_by_channels(w) else copied_by_channels(writer, w)


def is_dense_by_channels(w: Tensor) -> bool:
    """Return whether a weight is aligned, and channels-last without gaps."""
    if w.data_ptr() % MAP_BYTES:
        return False
    right = 1
    for dim in (1, *range(w.dim() - 1, 1, -1), 0):
        if w.shape[dim] != 1 and w.stride(dim) != right:
            return False
        right *= w.shape[dim]
    return True


def few_depth(one: Sum, source: VectorInput) -> int:
    """Return the depth of a sum over an input in the form `source`, padding included."""
    return math.prod(source.over(one).sweep.taps) * source.channels


def few_unit(one: Sum, out: Tensor) -> int:
    """Return how many channels of a result the kernel stores at a time."""
    return VECTOR if one.n_len % VECTOR == 0 and is_described(out) else 1


def _launch(
    writer: RecipeWriter,
    one: Sum,
    source: VectorInput,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    out: Tensor,
    tiling: Tiling | None,
) -> None:
    """Launch the kernel, without `tiling` with split-K where it pays. `x` and `w` are stored as `source` says.

    `writer`: allocates and launches, and records both for replays.
    """
    own, its = one.sweep, source.over(one).sweep
    splits, partial = 1 if tiling is None else tiling.parts, None
    pixel = merged(positions_of(out), strides_of(out)[2:])
    # split-K rounds differently
    if tiling is None and pixel is not None and not library.is_batch_invariant():
        splits = parts_of(tiles_of(1, one.positions, one.n_len), few_depth(one, source), processors(x))
    if splits > 1:
        partial = new_contiguous(writer, x, (splits, one.positions, padded_width(one.n_len)), float32)
    unit = few_unit(one, out)
    outer, channel, *inner = strides_of(out)
    writer.launch(
        "conv_few",
        x_ptr=x,
        w_ptr=w,
        out_ptr=out,
        bias_ptr=x if bias is None else bias,
        partial_ptr=unused(writer, x) if partial is None else partial,
        batch=one.batch,
        vectors=source.vectors,
        units=one.n_len // unit,
        **named("out_", "hw", (math.prod(own.out[:2]), own.out[2])),
        **named("x_", DIMS, its.source),
        **named("taps_", "hw", (math.prod(its.taps[:2]), its.taps[2])),
        **named("mul_", DIMS, its.mul),
        **named("step_", DIMS, its.step),
        **named("start_", DIMS, its.start),
        high=own.out[1],
        taps_high=its.taps[1],
        splits=splits,
        width=padded_width(one.n_len),
        has_bias=int(bias is not None and splits == 1),
        **named("stride_x", "ndhw", source.strides),
        **named("stride_o", "ndhw", [stride // unit for stride in (outer, *inner)]),
        UNIT=unit,
        DEEP=out.dim() > PADDED_DIM + 2,
        **tile_words(tiling),
    )
    if partial is not None:
        launch_merge(writer, partial, out, bias, one.shape, (outer, pixel or 0, channel))
