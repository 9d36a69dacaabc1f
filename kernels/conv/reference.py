"""Convolutions in plain torch by their definition, a matrix product for each tap, in any dtype (fp64 works as well)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

__all__ = ["convolve"]


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
) -> Tensor:
    """Return the convolution of x [N, C, ...] by weight [O, C / groups, ...].

    Args:
        x: the input.
        weight: the weight, with as many dimensions as x.
        bias: [O], added to each position.
        stride: one int per spatial dimension.
        before: zeros before the first position of each dimension.
        after: zeros after the last position of each dimension.
        dilation: one int per spatial dimension.
        groups: the number of groups of C and of O.
    """
    sides = [side for pair in reversed(list(zip(before, after, strict=True))) for side in pair]
    padded = torch.nn.functional.pad(x, sides)
    taps = weight.shape[2:]
    sizes = [
        (size - d * (count - 1) - 1) // s + 1
        for size, count, s, d in zip(padded.shape[2:], taps, stride, dilation, strict=True)
    ]
    batch, rows = x.shape[0], weight.shape[0] // groups
    total = x.new_zeros(batch, groups, rows, *sizes)
    for tap in product(*map(range, taps)):
        spans = [
            slice(t * d, t * d + (size - 1) * s + 1, s)
            for t, d, size, s in zip(tap, dilation, sizes, stride, strict=True)
        ]
        read = padded[:, :, *spans].reshape(batch, groups, -1, *sizes)
        taken = weight[:, :, *tap].reshape(groups, rows, -1)
        total = total + torch.einsum("ngc...,goc->ngo...", read, taken)
    result = total.reshape(batch, -1, *sizes)
    return result if bias is None else result + bias.reshape(1, -1, *(1 for _ in sizes))
