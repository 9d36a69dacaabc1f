"""Launches of the kernel that unfolds images: a copy whose rows of channels are multiples of 16 bytes, also of several taps."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.layouts import strides_of
from torch import Tensor

__all__ = ["VECTOR", "VectorInput", "own_form", "unfold", "unfolded_form"]

VECTOR: Final = 8
"""Channels per copy of the kernels: 16 bytes."""
GAIN: Final = 0.75
"""Taps of a row are unfolded together if that shortens K to at most this fraction."""


class VectorInput(NamedTuple):
    """An input as kernels read it: channels in vectors of 8, and the map from positions of the result along the width."""

    vectors: int
    """Vectors of a position."""
    width: int
    """Positions in a row of the image."""
    strides: tuple[int, int, int]
    """Distances of images, rows and positions, in vectors."""
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

    def over(self, one: Sum) -> Sum:
        """Return the sum `one` over an image in this form."""
        own = one.sweep
        sweep = replace(
            own,
            source=(1, own.source[1], self.width),
            taps=(1, own.taps[1], self.taps),
            mul=(1, own.mul[1], self.mul),
            step=(1, own.step[1], self.step),
            start=(0, own.start[1], self.start),
        )
        return replace(one, c_len=self.channels, sweep=sweep)


def own_form(one: Sum, x: Tensor) -> VectorInput:
    """Return the form of an image x whose channels fill vectors, as it is."""
    own = one.sweep
    outer, _, _, row, pixel = (stride // VECTOR for stride in strides_of(x))
    return VectorInput(
        vectors=one.c_len // VECTOR,
        width=own.source[2],
        strides=(outer, row, pixel),
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
        width = own.out[2]
        strides = (own.source[1] * width * all_taps, width * all_taps, all_taps)
        return VectorInput(all_taps, width, strides, taps=1, mul=1, step=1, start=0, together=taps)
    width = own.source[2]
    strides = (own.source[1] * width * each, width * each, each)
    return VectorInput(each, width, strides, taps, own.mul[2], own.step[2], own.start[2], together=1)


def unfold(
    writer: RecipeWriter, one: Sum, source: VectorInput, x: Tensor, weights: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Launch the kernel that copies an image x [N, C, H, W] to [N, H, positions, 8 * vectors], padded with zeros.

    Args:
        writer: allocates and launches, and records both for replays.
        one: the sum.
        source: the result of `unfolded_form`.
        x: the input, of any strides.
        weights: the weight, and a tensor for it in the same order of channels; None for no weight.
    """
    own = one.sweep
    unfolded = new_contiguous(writer, x, (one.batch, own.source[1], source.width, source.vectors * VECTOR))
    w, copy = weights or (x, unfolded)
    joins = source.taps == 1
    outer, channel, _, row, pixel = strides_of(x)
    w_outer, w_channel, _, w_row, w_pixel = strides_of(w)
    writer.launch(
        "conv_unfold",
        x_ptr=x,
        w_ptr=w,
        x_out_ptr=unfolded,
        w_out_ptr=copy,
        batch=one.batch,
        channels=one.c_len,
        results=one.n_len if weights else 0,
        **named("x_", "hw", own.source[1:]),
        out_w=source.width,
        **named("taps_", "hw", own.taps[1:]),
        together=source.together,
        vectors=source.vectors,
        mul_w=own.mul[2] if joins else 1,
        step_w=own.step[2] if joins else 1,
        start_w=own.start[2] if joins else 0,
        **named("stride_x", "nchw", (outer, channel, row, pixel)),
        **named("stride_w", "nchw", (w_outer, w_channel, w_row, w_pixel)),
    )
    return unfolded
