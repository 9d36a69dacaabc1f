"""Convolutions as they are called, ``conv2d`` and ``conv3d``: arguments checked, and calls remembered."""

# ruff: noqa: PLR0917 - a call has many arguments, as torch's has

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.arguments import check_tensors
from nojit.kernels.conv import operators, sweeps
from nojit.kernels.conv.checks import Padding, check_operands, precision, sizes_of, window_of, word_of
from nojit.kernels.conv.running import run_conv
from nojit.kernels.conv.sweeps import Window
from nojit.kernels.dispatch import autocasts, is_plain, lowered
from nojit.kernels.memos import Recording, made_and_remembered, new_memo
from torch import Tensor

__all__ = ["conv2d", "conv3d"]

_MEMO: Final = new_memo(operands=4, limit=1024, in_place=())
_Ints = int | Sequence[int]


def conv2d(
    input: Tensor,  # noqa: A002 - torch's name
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Ints = 1,
    padding: Padding = 0,
    dilation: _Ints = 1,
    groups: int = 1,
    *,
    allow_tf32: bool | None = None,
) -> Tensor:
    """Convolve images, as ``torch.nn.functional.conv2d`` does.

    Args:
        input: [N, C, H, W] or [C, H, W], of any strides; fp16, bf16 or fp32. Under autocast all operands get its dtype.
            Fastest by channels (``torch.channels_last``), with a weight that is stored so too.
        weight: [O, C / groups, kH, kW], of the same dtype and device.
        bias: [O].
        stride: an int, or one a dimension.
        padding: likewise, or ``"same"`` (with a stride of 1) or ``"valid"``; with zeros, on both sides.
        dilation: likewise.
        groups: a divisor of C and of O.
        allow_tf32: whether fp32 may be multiplied by TF32; None leaves it to torch's switch for convolutions, which says
            yes unless it was changed.

    Returns:
        [N, O, ...], or without N where the input had none; by channels where the input or the weight is, else contiguous.
        Sums are taken in fp32 and rounded once. Differentiable, twice too.

    Raises:
        ArgumentError: a type, dtype or device that does not fit.
        ValueError: a shape, number or word that does not fit.
    """
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups, allow_tf32)


def conv3d(
    input: Tensor,  # noqa: A002 - torch's name
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Ints = 1,
    padding: Padding = 0,
    dilation: _Ints = 1,
    groups: int = 1,
    *,
    allow_tf32: bool | None = None,
) -> Tensor:
    """Convolve volumes, [N, C, D, H, W] or [C, D, H, W], by a weight [O, C / groups, kD, kH, kW]; else like `conv2d`."""
    return _convolve(3, input, weight, bias, stride, padding, dilation, groups, allow_tf32)


def _convolve(
    dims: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: _Ints,
    padding: Padding,
    dilation: _Ints,
    groups: int,
    allow_tf32: bool | None,
) -> Tensor:
    """Launch at once what nobody else has to see; send all else through torch's dispatcher."""
    if not torch.compiler.is_dynamo_compiling():
        words = _words(dims, x, stride, padding, dilation, groups, allow_tf32)
        known: Tensor | None = _MEMO(x, weight, bias, None, library.CURRENT.source, *words)
        if known is not None:
            return known
    check_tensors(input=x, weight=weight)
    if bias is not None:
        check_tensors(bias=bias)
    if autocasts():
        x, weight, bias = lowered(x), lowered(weight), lowered(bias)
    # torch takes a single image for a batch of one
    single = x.dim() == dims + 1
    batched = x.unsqueeze(0) if single else x
    check_operands(dims, batched, weight, bias, groups)
    window = window_of(dims, weight, stride, padding, dilation)
    sizes_of(batched, weight, window)
    word = word_of(allow_tf32)
    # asked in any case: it refuses tangents
    plain = is_plain(x, weight, bias)
    if plain and not autocasts():
        words = _words(dims, x, stride, padding, dilation, groups, allow_tf32)
        return _remember(words, x, weight, bias, window, int(groups), precision(x.dtype, word), single)
    run = operators.convolve if plain else operators.conv
    result: Tensor = run(batched, weight, bias, *window, int(groups), word)
    return result.squeeze(0) if single else result


def _remember(
    words: tuple[object, ...],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
    how: str,
    single: bool,
) -> Tensor:
    """Convolve what nothing but the kernels has to see, and remember how."""

    def make(own: list[Any], _: Tensor | None, recording: Recording) -> Tensor:
        own_x, own_weight, own_bias = own
        if single:
            own_x = recording.stands(own_x.unsqueeze(0), own_x)
        return run_conv(recording, own_x, own_weight, own_bias, window, groups, how, single=single)

    def lasts(result: Tensor) -> bool:
        # what has more positions than one launch counts is launched in pieces, which a single image is not cut into
        return not single or math.prod(result.shape[1:]) <= sweeps.LIMIT

    return made_and_remembered(_MEMO, (x, weight, bias), None, words, make, lasts=lasts)


def _words(
    dims: int, x: Tensor, stride: _Ints, padding: Padding, dilation: _Ints, groups: int, allow_tf32: bool | None
) -> tuple[object, ...]:
    """Return what a call depends on beside its operands; how fp32 is multiplied is a switch of torch's."""
    # an operand that is no tensor has no dtype: the checks say so
    how = precision(x.dtype, word_of(allow_tf32)) if getattr(x, "dtype", None) is torch.float32 else allow_tf32
    if type(stride) is type(padding) is type(dilation) is int:
        return (dims, stride, padding, dilation, groups, how)
    return (dims, *_flat(stride), *_flat(padding), *_flat(dilation), groups, how)


def _flat(value: object) -> tuple[object, ...]:
    """Return words of which no others begin as these do: several start with one that no single one is."""
    return ("", len(value), *value) if isinstance(value, (tuple, list)) else (value,)
