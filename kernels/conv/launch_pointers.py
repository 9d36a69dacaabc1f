"""Launch convolutions with the kernels that take pointers (any strides), or as plain matrix products."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import torch
from nojit.kernels import library
from nojit.kernels.bmm.launch import prepare
from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import nothing, processors
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_merge import launch_merge, merge_rows
from nojit.kernels.conv.layouts import merged, part_of, piece_of, positions_of, strides_of
from nojit.kernels.conv.splits import parts_of, tiles_of
from nojit.kernels.conv.sweeps import Sweep, pieces_of
from nojit.kernels.products.splits import padded_width
from torch import Tensor

__all__ = [
    "Sum",
    "launch",
    "launch_product",
    "launch_weight_grad",
    "launch_weight_product",
    "unused",
]

TENSOR_DIMS: Final = "ncdhw"
"""Letters of the dimensions of inputs and results in the names of params."""
WEIGHT_DIMS: Final = "gncdhw"
"""Letters of the dimensions of weights: group, output channel, input channel, and taps."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A convolution or its input gradient: ``out[n, g, o, p] = bias[g, o] + sum of x[n, g, c, ...] * w[g, o, c, tap]``.

    `sweep` maps each output position p and tap (position in the weight) to an input position. The tensors are x [batch,
    groups * c_len, ...], out [batch, groups * n_len, ...] and w, whose first two dimensions are [groups * n_len,
    c_len], or [groups * c_len, n_len] if `is_transposed`.
    """

    sweep: Sweep
    batch: int
    groups: int
    c_len: int
    n_len: int
    is_transposed: bool
    precision: str
    is_part: bool = False
    """Whether it is one of the parts of a strided convolution's input gradient, with a part of the weight."""

    @property
    def positions(self) -> int:
        """Number of output positions, over the whole batch."""
        return self.batch * math.prod(self.sweep.out)

    @property
    def depth(self) -> int:
        """Number of products that each output element sums up."""
        return self.c_len * math.prod(self.sweep.taps)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Batch, positions and channels of a group of the result."""
        return self.batch, math.prod(self.sweep.out), self.n_len

    @property
    def channels(self) -> dict[str, int]:
        """Numbers of groups and of their channels by the names of the kernels' params."""
        return {"groups": self.groups, "c_len": self.c_len, "n_len": self.n_len}

    def weight_strides(self, w: Tensor) -> tuple[int, ...]:
        """Return the strides of `w` by group, output channel, input channel, and the three dimensions of taps."""
        outer, inner, *taps = strides_of(w)
        if self.is_transposed:
            return (outer * self.c_len, inner, outer, *taps)
        return (outer * self.n_len, outer, inner, *taps)

    def part(self, first: tuple[int, ...], sizes: tuple[int, ...]) -> Sum:
        """Return this sum for a part of the output: `first` and `sizes` are (batch, depth, height, width)."""
        own = self.sweep.part((first[1], first[2], first[3]), (sizes[1], sizes[2], sizes[3]))
        return replace(self, batch=sizes[0], sweep=own)


def unused(writer: RecipeWriter, value: Tensor) -> Tensor:
    """Return the tensor that a kernel receives in place of partial sums if there are none; one for all calls on a device.

    `writer`: allocates and launches, and records both for replays.
    """
    unused = nothing(torch.float32, value.device)
    writer.constant(unused)
    return unused


def launch(writer: RecipeWriter, one: Sum, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Launch a sum with the pointer kernel, with split-K where it pays; `out` may be a strided view.

    `writer`: allocates and launches, and records both for replays.
    """
    splits = 1
    pixel = merged(positions_of(out), strides_of(out)[2:])
    cuttable = one.groups == 1 and one.positions <= sweeps.LIMIT and pixel is not None
    # split-K rounds differently
    if cuttable and not library.is_batch_invariant():
        splits = parts_of(tiles_of(1, one.positions, one.n_len), one.depth, processors(x))
    if splits == 1:
        for first, sizes in pieces_of((one.batch, *one.sweep.out), sweeps.LIMIT):
            own = one.part(first, sizes)
            whole = own.positions == one.positions
            source = x if whole else writer.make(part_of, x, (first[0],), (sizes[0],), (1,))
            target = out if whole else writer.make(piece_of, out, out.dim(), first, sizes)
            _launch(writer, own, source, w, bias, target, None, 1)
        return
    partial = new_contiguous(writer, x, (splits, one.positions, padded_width(one.n_len)), torch.float32)
    _launch(writer, one, x, w, None, out, partial, splits)
    outer, channel, *_ = strides_of(out)
    launch_merge(writer, partial, out, bias, one.shape, (outer, pixel or 0, channel))


def _launch(
    writer: RecipeWriter,
    one: Sum,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    out: Tensor,
    partial: Tensor | None,
    splits: int,
) -> None:
    writer.launch(
        "conv",
        x_ptr=x,
        w_ptr=w,
        out_ptr=out,
        bias_ptr=x if bias is None else bias,
        partial_ptr=unused(writer, x) if partial is None else partial,
        batch=one.batch,
        **one.channels,
        **one.sweep.sizes,
        **one.sweep.map,
        splits=splits,
        width=padded_width(one.n_len),
        has_bias=int(bias is not None),
        **named("stride_x", TENSOR_DIMS, strides_of(x)),
        **named("stride_w", WEIGHT_DIMS, one.weight_strides(w)),
        **named("stride_o", TENSOR_DIMS, strides_of(out)),
        PRECISION=one.precision,
    )


def launch_product(writer: RecipeWriter, one: Sum, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor) -> bool:
    """Launch a convolution as one matrix product, if each output position reads one input position; return whether it did.

    `writer`: allocates and launches, and records both for replays.
    """
    if not (one.sweep.is_pointwise and one.groups == 1 and x.element_size() == 2 and one.positions <= sweeps.LIMIT):
        return False
    sizes = (one.batch, *one.sweep.out)
    rows = _Rows.of(x, sizes), _Rows.of(out, sizes)
    if any(each.apart is None for each in rows):
        return False
    batch = 1 if all(each.whole for each in rows) else one.batch
    a, result = (
        writer.stands(each.matrices(value, (batch, one.positions // batch, width)), value)
        for each, value, width in zip(rows, (x, out), (one.c_len, one.n_len), strict=True)
    )
    _, across, down, *_ = one.weight_strides(w)
    b = writer.stands(w.as_strided((batch, one.c_len, one.n_len), (0, down, across)), w)
    call = prepare(a, b, bias, result, has_epilogue=bias is not None)
    call(a, b, bias, result, (0, 1.0, float(bias is not None)), writer)
    return True


def launch_weight_product(writer: RecipeWriter, one: Sum, grad: Tensor, x: Tensor, out: Tensor) -> bool:
    """Launch the weight gradient of a 1 x 1 weight as one matrix product over all positions, if it is one; return whether it did.

    `writer`: allocates and launches, and records both for replays.
    """
    if not (one.sweep.is_pointwise and one.groups == 1 and x.element_size() == 2 and one.positions):
        return False
    sizes = (one.batch, *one.sweep.out)
    rows = _Rows.of(grad, sizes), _Rows.of(x, sizes)
    if not all(each.whole for each in rows) or one.sweep.out != one.sweep.source or one.positions > sweeps.LIMIT:
        return False
    a, b = (
        writer.stands(each.matrices(value, (1, one.positions, width)), value)
        for each, value, width in zip(rows, (grad, x), (one.n_len, one.c_len), strict=True)
    )
    outer, channel, *_ = out.stride()
    result = writer.stands(out.as_strided((1, one.n_len, one.c_len), (0, outer, channel)), out)
    a = writer.stands(a.transpose(1, 2), grad)
    call = prepare(a, b, None, result, has_epilogue=False)
    call(a, b, None, result, (0, 1.0, 0.0), writer)
    return True


class _Rows(NamedTuple):
    """A tensor's positions as rows of a matrix, or of a batch of matrices, whose columns are channels."""

    apart: int | None
    """Stride between rows, in elements; None if it is not constant."""
    whole: bool
    """True if the same stride leads from the last row of an image to the first row of the next."""

    @staticmethod
    def of(value: Tensor, sizes: tuple[int, ...]) -> _Rows:
        """Return the rows of `value`; `sizes` are (batch, depth, height, width)."""
        outer, _, *inner = strides_of(value)
        apart = merged(sizes, (outer, *inner))
        return _Rows(merged(sizes[1:], inner), False) if apart is None else _Rows(apart, True)

    def matrices(self, value: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """Return a view of `value` as matrices of `shape`: (batch, rows, channels)."""
        outer, channel, *_ = value.stride()
        return value.as_strided(shape, (outer, self.apart or 0, channel))


def launch_weight_grad(writer: RecipeWriter, one: Sum, grad: Tensor, x: Tensor, out: Tensor) -> None:
    """Launch the gradient of `one` by its weight with the pointer kernel, from `grad`, the gradient by its result.

    In `out`, the channels and taps of a row must fill contiguous memory.

    `writer`: allocates and launches, and records both for replays.
    """
    across = one.depth
    pieces = list(pieces_of((one.batch, *one.sweep.out), sweeps.LIMIT)) if one.positions else [((0,) * 4, (0,) * 4)]
    splits = 1
    if len(pieces) == 1:
        splits = parts_of(tiles_of(one.groups, one.n_len, across), one.positions, processors(x))
    parts, rows, width = splits * len(pieces), one.groups * one.n_len, padded_width(across)
    partial = None
    if parts > 1:
        partial = new_contiguous(writer, x, (parts, rows, width), torch.float32)
    for number, (first, sizes) in enumerate(pieces):
        own, its_grad, its_x, sums = one, grad, x, partial
        if len(pieces) > 1:
            own = one.part(first, sizes)
            its_grad = writer.make(piece_of, grad, grad.dim(), first, sizes)
            its_x = writer.make(part_of, x, (first[0],), (sizes[0],), (1,))
            sums = writer.make(torch.narrow, partial, 0, number, 1)
        writer.launch(
            "conv_weight_grad",
            grad_ptr=its_grad,
            x_ptr=its_x,
            out_ptr=out,
            partial_ptr=unused(writer, x) if sums is None else sums,
            batch=own.batch,
            **own.channels,
            **own.sweep.sizes,
            **own.sweep.map,
            splits=splits,
            width=width,
            summed=int(parts == 1),
            **named("stride_g", TENSOR_DIMS, strides_of(its_grad)),
            **named("stride_x", TENSOR_DIMS, strides_of(its_x)),
            **named("stride_o", TENSOR_DIMS, strides_of(out)),
            PRECISION=own.precision,
        )
    if partial is not None:
        merge_rows(writer, partial, out, across)
