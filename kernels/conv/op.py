"""Public operators ``conv2d`` and ``conv3d``: validation of arguments, and replay of cached calls."""

# ruff: noqa: PLR0917 - a call has many arguments, as torch's has

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from nojit.kernels import library
from nojit.kernels.calls.arguments import check_tensors
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered
from nojit.kernels.calls.torch_state import autocasts, is_plain, lowered
from nojit.kernels.conv import op_autograd, sweeps
from nojit.kernels.conv.checks import Padding, check_operands, precision, sizes_of, window_of, word_of
from nojit.kernels.conv.launch import run_conv
from nojit.kernels.conv.op_autograd import MEMO
from nojit.kernels.conv.sweeps import Window
from torch import Tensor

__all__ = ["conv2d", "conv3d"]

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
        input: [N, C, H, W] or [C, H, W], any strides; fp16, bf16 or fp32. Autocast casts all operands. Fastest channels-last
            (``torch.channels_last``), with a channels-last weight.
        weight: [O, C / groups, kH, kW], of the same dtype and device.
        bias: [O], of the same dtype and device; None adds nothing.
        stride: an int, or one per dimension.
        padding: zeros on both sides: an int, or one per dimension; or ``"same"`` (with a stride of 1) or ``"valid"``.
        dilation: an int, or one per dimension.
        groups: a divisor of C and of O.
        allow_tf32: whether fp32 may be multiplied in TF32; None follows torch's switch for convolutions, which allows it by
            default.

    Returns:
        [N, O, ...], or without N if the input has none; channels-last if the input or the weight is, else contiguous. Sums
        are fp32 and rounded once. Differentiable to any order.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape, number or string.
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
    """Convolve volumes, as ``torch.nn.functional.conv3d`` does.

    Args:
        input: [N, C, D, H, W] or [C, D, H, W], any strides; fp16, bf16 or fp32. Autocast casts all operands. Fastest
            channels-last (``torch.channels_last_3d``), with a channels-last weight.
        weight: [O, C / groups, kD, kH, kW], of the same dtype and device.
        bias: [O], of the same dtype and device; None adds nothing.
        stride: an int, or one per dimension.
        padding: zeros on both sides: an int, or one per dimension; or ``"same"`` (with a stride of 1) or ``"valid"``.
        dilation: an int, or one per dimension.
        groups: a divisor of C and of O.
        allow_tf32: whether fp32 may be multiplied in TF32; None follows torch's switch for convolutions, which allows
            it by default.

    Returns:
        [N, O, ...], or without N if the input has none; channels-last if the input or the weight is, else contiguous.
        Sums are fp32 and rounded once. Differentiable to any order.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape, number or string.
    """
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
    """Run a convolution: directly if the call needs no autograd or tracing, otherwise through torch's dispatcher."""
    if not torch.compiler.is_dynamo_compiling() and not autocasts():
        words = _words(dims, x, stride, padding, dilation, groups, allow_tf32)
        known: Tensor | None = MEMO(x, weight, bias, None, library.CURRENT.source, *words)
        if known is not None:
            return known
    check_tensors(input=x, weight=weight)
    if bias is not None:
        check_tensors(bias=bias)
    if autocasts():
        x, weight, bias = lowered(x), lowered(weight), lowered(bias)
    # as in torch, an input without N is a batch of one
    single = x.dim() == dims + 1
    batched = x.unsqueeze(0) if single else x
    check_operands(dims, batched, weight, bias, groups)
    window = window_of(dims, weight, stride, padding, dilation)
    sizes_of(batched, weight, window)
    word = word_of(allow_tf32)
    # call it in any case: it refuses tensors with tangents
    plain = is_plain(x, weight, bias)
    if plain and not autocasts():
        words = _words(dims, x, stride, padding, dilation, groups, allow_tf32)
        return _remember(words, x, weight, bias, window, int(groups), precision(x.dtype, word), single)
    run = op_autograd.convolve if plain else op_autograd.conv
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
    """Run a new call without torch's dispatcher, and cache its launch arguments for replays.

    `words`: the call's arguments that are not tensors, for the cache key.
    """

    def make(own: list[Any], _: Tensor | None, writer: RecipeWriter) -> Tensor:
        own_x, own_weight, own_bias = own
        if single:
            own_x = writer.stands(own_x.unsqueeze(0), own_x)
        return run_conv(writer, own_x, own_weight, own_bias, window, groups, how, single=single)

    def may_replay(result: Tensor) -> bool:
        # a result with too many positions takes one launch for each part of the batch, and a single image has no batch
        # to cut
        return not single or math.prod(result.shape[1:]) <= sweeps.LIMIT

    return made_and_remembered(MEMO, (x, weight, bias), None, words, make, may_replay=may_replay)


def _words(
    dims: int, x: Tensor, stride: _Ints, padding: Padding, dilation: _Ints, groups: int, allow_tf32: bool | None
) -> tuple[object, ...]:
    """Return the part of a call's cache key that is not tensors, including the fp32 precision of torch's switch."""
    # an operand that is not a tensor has no dtype; validation reports it later
    how = precision(x.dtype, word_of(allow_tf32)) if getattr(x, "dtype", None) is torch.float32 else allow_tf32
    if type(stride) is type(padding) is type(dilation) is int:
        return (dims, stride, padding, dilation, groups, how)
    return (dims, *_flat(stride), *_flat(padding), *_flat(dilation), groups, how)


def _flat(value: object) -> tuple[object, ...]:
    """Return a value as flat parts of a cache key; a sequence starts with its length, so that keys are unambiguous."""
    return ("", len(value), *value) if isinstance(value, (tuple, list)) else (value,)
