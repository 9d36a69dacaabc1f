"""Launch `conv_unfold`, which copies inputs: the channels of one or several taps become rows of multiples of 16 bytes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, NamedTuple

from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.layouts import HALF, copied_by_channels, merged, positions_of, strides_of
from nojit.kernels.conv.sweeps import PADDED_DIM, Sweep
from torch import Tensor

__all__ = ["COPY_BYTES", "VECTOR", "VectorInput", "own_form", "unfold", "unfolded_form"]

VECTOR: Final = 8
"""Channels per copy of the kernels: 16 bytes."""
COPY_BYTES: Final = 1 << 30
"""The most bytes of an unfolded copy where there is a choice: convolutions take the batch in parts, weight gradients the input as it is."""
GAIN: Final = 0.75
"""Taps of a row are unfolded together if that shortens K to at most this fraction."""


class VectorInput(NamedTuple):
    """An input as kernels read it: channels in vectors of 8, and the map from positions of the result along the width."""

    vectors: int
    """Vectors of a position."""
    width: int
    """Positions in a row of the input."""
    strides: tuple[int, int, int, int]
    """Distances of images (volumes), slices, rows and positions, in vectors."""
    taps: int
    """Taps of a row of the weight."""
    mul: int
    """Along the width, tap t at position p of the result reads position p * mul + t * step + start."""
    step: int
    start: int
    together: int
    """Taps of a row that one position holds: all of them or one."""

    @property
    def channels(self) -> int:
        """Channels of a position, padding included."""
        return self.vectors * VECTOR

    def copied_bytes(self, one: Sum) -> int:
        """Return the number of bytes of an unfolded input of `one`."""
        return one.batch * self.strides[0] * VECTOR * HALF

    def over(self, one: Sum) -> Sum:
        """Return the sum `one` over an input in this form."""
        own = one.sweep
        sweep = replace(
            own,
            source=(*own.source[:2], self.width),
            taps=(*own.taps[:2], self.taps),
            mul=(*own.mul[:2], self.mul),
            step=(*own.step[:2], self.step),
            start=(*own.start[:2], self.start),
        )
        return replace(one, c_len=self.channels, sweep=sweep)


def own_form(one: Sum, x: Tensor) -> VectorInput:
    """Return the form of an input x whose channels fill vectors, as it is."""
    own = one.sweep
    outer, _, *inner = (stride // VECTOR for stride in strides_of(x))
    return VectorInput(
        vectors=one.c_len // VECTOR,
        width=own.source[2],
        strides=(outer, _between(own, inner[0]), inner[1], inner[2]),
        taps=own.taps[2],
        mul=own.mul[2],
        step=own.step[2],
        start=own.start[2],
        together=1,
    )


def unfolded_form(one: Sum, padded: int = VECTOR) -> VectorInput:
    """Return the input as `unfold` stores it.

    Args:
        one: the sum.
        padded: the multiple to which the kernel that reads it pads the channels of a position.
    """
    own = one.sweep
    taps = own.taps[2]
    each, all_taps = (-(-count // VECTOR) for count in (one.c_len, one.c_len * taps))
    alone, joined = (-(-vectors * VECTOR // padded) for vectors in (each, all_taps))
    if taps == 1 or joined <= GAIN * taps * alone:
        strides = _strides(own, own.out[2], all_taps)
        return VectorInput(all_taps, own.out[2], strides, taps=1, mul=1, step=1, start=0, together=taps)
    strides = _strides(own, own.source[2], each)
    return VectorInput(each, own.source[2], strides, taps, own.mul[2], own.step[2], own.start[2], together=1)


def _strides(own: Sweep, width: int, vectors: int) -> tuple[int, int, int, int]:
    """Return the distances of images, slices, rows and positions in an unfolded copy, given the positions of a row."""
    row = width * vectors
    return own.source[0] * own.source[1] * row, _between(own, own.source[1] * row), row, vectors


def _between(own: Sweep, stride: int) -> int:
    """Return the distance `stride` of slices; 0 for a single one, whose offsets would else count as far."""
    return stride if own.source[0] > 1 else 0


def _as_image(writer: RecipeWriter, value: Tensor) -> tuple[Tensor, tuple[int, int, int, int]]:
    """Return `value` and its strides by image, channel, row of any slice, and position; a copy if slices have gaps between them.

    `writer`: allocates, and records that for replays.
    """
    row = merged(positions_of(value)[:2], strides_of(value)[2:4])
    if row is None:
        return _as_image(writer, copied_by_channels(writer, value))
    outer, channel, *_, pixel = strides_of(value)
    return value, (outer, channel, row, pixel)


def unfold(
    writer: RecipeWriter,
    one: Sum,
    source: VectorInput,
    x: Tensor,
    weights: tuple[Tensor, Tensor] | None = None,
    *,
    copy: Tensor | None = None,
) -> Tensor:
    """Launch the kernel that copies x [N, C, ..., W] to [N, ..., positions, 8 * vectors], padded with zeros.

    Args:
        writer: allocates and launches, and records both for replays.
        one: the sum.
        source: the result of `unfolded_form`.
        x: the input, of any strides.
        weights: the weight, and a tensor for it in the same order of channels; None for no weight.
        copy: a result for at least as large a batch, to write again; None allocates one.
    """
    own = one.sweep
    high, taps = math.prod(own.source[:2]), math.prod(own.taps[:2])
    if copy is None:
        lines = own.source[:2] if x.dim() > PADDED_DIM + 2 else own.source[1:2]
        copy = new_contiguous(writer, x, (one.batch, *lines, source.width, source.channels))
    w, w_copy = weights or (x, copy)
    (x, x_strides), (w, w_strides) = _as_image(writer, x), _as_image(writer, w)
    joins = source.taps == 1
    writer.launch(
        "conv_unfold",
        x_ptr=x,
        w_ptr=w,
        x_out_ptr=copy,
        w_out_ptr=w_copy,
        batch=one.batch,
        channels=one.c_len,
        results=one.n_len if weights else 0,
        **named("x_", "hw", (high, own.source[2])),
        out_w=source.width,
        **named("taps_", "hw", (taps, own.taps[2])),
        together=source.together,
        vectors=source.vectors,
        mul_w=own.mul[2] if joins else 1,
        step_w=own.step[2] if joins else 1,
        start_w=own.start[2] if joins else 0,
        **named("stride_x", "nchw", x_strides),
        **named("stride_w", "nchw", w_strides),
    )
    return copy
