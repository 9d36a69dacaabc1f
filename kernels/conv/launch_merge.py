"""Launch the kernels that add up split-K parts."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.strides import named
from nojit.kernels.conv.layouts import merged, positions_of, strides_of
from torch import Tensor

__all__ = ["MERGE", "launch_merge", "merge_rows", "merge_taps"]

MERGE: Final = "conv_weight_merge"
FEW: Final = 8
"""Up to so many parts, the kernel that merges those of products is faster."""


def launch_merge(
    writer: RecipeWriter,
    partial: Tensor,
    out: Tensor,
    bias: Tensor | None,
    shape: tuple[int, int, int],
    strides: tuple[int, int, int],
) -> None:
    """Add up split-K parts in order, add the bias, and write the result.

    Args:
        writer: records the launch.
        partial: fp32 [parts, batch * rows, padded columns].
        out: the result.
        bias: one value for each column, or None.
        shape: batch, rows and columns of the result as matrices.
        strides: strides of `out` by batch, row and column.
    """
    added = out if bias is None else bias
    batch, rows, cols = shape
    writer.launch(
        "bmm_merge",
        partial_ptr=partial,
        out_ptr=out,
        input_ptr=added,
        batch=batch,
        m_len=rows,
        n_len=cols,
        splits=partial.shape[0],
        width=partial.shape[2],
        activation=0,
        alpha=1.0,
        beta=float(bias is not None),
        **named("stride_c", "zmn", (0, 0, added.stride(0))),
        **named("stride_o", "zmn", strides),
    )


def merge_rows(writer: RecipeWriter, partial: Tensor, out: Tensor, numbers: int) -> None:
    """Add up split-K parts, fp32 [parts, rows, width], whose rows start with the `numbers` of a row of `out`.

    `writer`: records the launch; `out`: a weight gradient whose rows are dense.
    """
    # each program of the other kernel reads many parts at once, and few numbers
    if partial.shape[0] <= FEW or not library.has(MERGE):
        launch_merge(writer, partial, out, None, (1, partial.shape[1], numbers), (0, numbers, 1))
        return
    _launch(writer, partial, out, (numbers, 1, 1), (numbers, 1, 0, 0), 1, numbers)


def merge_taps(writer: RecipeWriter, partial: Tensor, out: Tensor, together: int, wide: int) -> None:
    """Add up split-K parts, fp32 [parts, O, width], in another order than that of `out`, [O, C, kH, kW].

    Args:
        writer: records the launch.
        partial: the parts; a row has the rows of the weight, and of these the taps, each with its channels.
        out: the weight gradient.
        together: number of neighbouring taps whose channels follow one another.
        wide: the numbers for these taps: their channels, and padding.
    """
    outer, channel, *inner = strides_of(out)
    *lines, across = positions_of(out)
    shape, strides = (out.shape[1], math.prod(lines), across), (outer, channel, merged(lines, inner[:2]) or 0, inner[2])
    _launch(writer, partial, out, shape, strides, together, wide)


def _launch(
    writer: RecipeWriter,
    partial: Tensor,
    out: Tensor,
    shape: tuple[int, ...],
    strides: Sequence[int],
    together: int,
    wide: int,
) -> None:
    channels, high, across = shape
    writer.launch(
        MERGE,
        partial_ptr=partial,
        out_ptr=out,
        results=partial.shape[1],
        channels=channels,
        taps_h=high,
        taps_w=across,
        together=together,
        wide=wide,
        splits=partial.shape[0],
        width=partial.shape[2],
        **named("stride_o", "nchw", strides),
    )
