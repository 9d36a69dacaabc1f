"""Launch `conv_unfold`, which copies inputs: the channels of one or several taps become rows of multiples of 16 bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.layouts import HALF, copied_by_channels, merged, piece_of, positions_of, strides_of
from nojit.kernels.conv.sweeps import PADDED_DIM, Sweep, pieces_of
from torch import Tensor

__all__ = ["VECTOR", "Chunk", "VectorInput", "chunks_of", "own_form", "unfolded", "unfolded_form"]

VECTOR: Final = 8
"""Channels per copy of the kernels: 16 bytes."""
COPY_BYTES: Final = 1 << 30
"""The most bytes of an unfolded copy: larger inputs are unfolded and summed in chunks."""
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


class Chunk(NamedTuple):
    """A part of a sum, and the form of the input that it reads."""

    one: Sum
    source: VectorInput
    first: tuple[int, ...] = (0, 0, 0, 0)
    """Its first position in the result: batch, depth, height and width."""
    first_read: tuple[int, ...] = (0, 0, 0, 0)
    """The first position that it reads."""

    @property
    def rows(self) -> int:
        """Positions of its input, unfolded."""
        return self.one.batch * math.prod(self.one.sweep.source[:2]) * self.source.width


def chunks_of(one: Sum, padded: int = VECTOR) -> list[Chunk]:
    """Cut a sum into chunks whose unfolded inputs have at most `COPY_BYTES`: by images, then by slices, then by rows.

    No chunk has less than one row of the result. `padded` is that of `unfolded_form`.
    """
    row, most = one.sweep.out[2], one.positions
    while True:
        pieces = pieces_of((one.batch, *one.sweep.out), most)
        chunks = [_chunk(one, padded, first, sizes) for first, sizes in pieces]
        if most <= row or max(each.source.copied_bytes(each.one) for each in chunks) <= COPY_BYTES:
            return chunks
        most = max(most // 2, row)


def _chunk(one: Sum, padded: int, first: tuple[int, ...], sizes: tuple[int, ...]) -> Chunk:
    (n, d, h, w), (batch, deep, high, wide) = first, sizes
    read, sweep = one.sweep.reading((d, h, w), (deep, high, wide))
    own = replace(one, batch=batch, sweep=sweep)
    return Chunk(own, unfolded_form(own, padded), first, (n, *read))


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
    """Return the input as `unfolded` stores it.

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


def unfolded(
    writer: RecipeWriter,
    chunks: Sequence[Chunk],
    x: Tensor,
    result: Tensor,
    weights: tuple[Tensor, Tensor] | None = None,
) -> Iterator[tuple[Chunk, Tensor, Tensor]]:
    """Unfold the input of each chunk, all into the same memory; yield the chunk, its copy [N, 8 * vectors, ...], and its part of `result`.

    Args:
        writer: allocates and launches, and records both for replays.
        chunks: the result of `chunks_of`.
        x: the input, of any strides.
        result: a tensor with the positions of the sum's result.
        weights: the weight, and a tensor for it in the same order of channels; None for no weight.
    """
    memory = new_contiguous(writer, x, (max(each.rows * each.source.channels for each in chunks),))
    for each in chunks:
        one, dims = each.one, x.dim()
        its_x, its_result = x, result
        if len(chunks) > 1:
            its_x = writer.make(piece_of, x, dims, each.first_read, (one.batch, *one.sweep.source))
            its_result = writer.make(piece_of, result, dims, each.first, (one.batch, *one.sweep.out))
        lines = one.sweep.source[PADDED_DIM + 3 - dims : 2]
        shape = (one.batch, *lines, each.source.width, each.source.channels)
        copy = writer.stands(memory[: math.prod(shape)].view(shape).movedim(-1, 1), memory)
        _unfold(writer, each, its_x, copy, weights)
        weights = None
        yield each, copy, its_result


def _unfold(writer: RecipeWriter, each: Chunk, x: Tensor, copy: Tensor, weights: tuple[Tensor, Tensor] | None) -> None:
    """Launch the kernel that copies x, the input of a chunk, to `copy`, padded with zeros.

    `writer` and `weights` are those of `unfolded`.
    """
    one, source, own = each.one, each.source, each.one.sweep
    high, taps = math.prod(own.source[:2]), math.prod(own.taps[:2])
    x, x_strides = _as_image(writer, x)
    w, w_copy = weights or (x, copy)
    w, w_strides = _as_image(writer, w)
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
