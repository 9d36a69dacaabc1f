"""Torch operators of convolutions and their gradients, and replay of their cached calls.

The namespace ``nojit`` has three operators: the convolution, its gradient by the input, and its gradient by the weight.
Each is linear in both operands, and its gradients are calls of the other two operators.
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define
from nojit.kernels.conv.checks import check_grad, check_operands, precision, sizes_of
from nojit.kernels.conv.launch import run_conv, run_input_grad, run_weight_grad
from nojit.kernels.conv.layouts import by_channels, formatted, new_like
from nojit.kernels.conv.sweeps import Window
from torch import Tensor

__all__ = ["MEMO", "conv", "conv_input_grad", "conv_weight_grad", "convolve"]

MEMO: Final = new_memo(operands=4, limit=1024, in_place=(), under_autocast=True)
"""Cache of replays of all three operators, and of the public functions."""


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    word: str,
) -> Tensor:
    """Validate and convolve x [N, C, ...] by `weight` [O, C / groups, ...], without torch's dispatcher.

    `before` and `after` are the padding at the start and the end of each dimension; `word` is the string from
    `checks.word_of`.
    """

    def make(own: list[Any], writer: RecipeWriter) -> Tensor:
        window = _window(stride, before, after, dilation)
        own_x, own_weight, own_bias = own
        check_operands(x.dim() - 2, x, weight, bias, groups)
        sizes_of(x, weight, window)
        return run_conv(writer, own_x, own_weight, own_bias, window, groups, how)

    how = precision(x.dtype, word)
    return _made("conv", (x, weight, bias), (*stride, *before, *after, *dilation, groups, how), make)


def _made(
    name: str,
    operands: tuple[Tensor, Tensor, Tensor | None],
    words: tuple[object, ...],
    make: Callable[[list[Any], RecipeWriter], Tensor],
) -> Tensor:
    """Replay a cached call of the operator `name`; if there is none, validate the call, run it with `make` and cache it.

    `words`: the call's arguments that are not tensors, for the cache key.
    """
    known: Tensor | None = MEMO(*operands, None, library.CURRENT.source, name, *words)
    if known is not None:
        return known
    return made_and_remembered(MEMO, operands, None, (name, *words), lambda own, _, writer: make(own, writer))


def _run_input_grad(
    grad: Tensor,
    weight: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    word: str,
) -> Tensor:
    def make(own: list[Any], writer: RecipeWriter) -> Tensor:
        window = _window(stride, before, after, dilation)
        own_grad, own_weight, _ = own
        check_grad(grad, ("weight", weight), shape, weight.shape, window, groups)
        return run_input_grad(writer, own_grad, own_weight, tuple(shape), window, groups, how)

    how = precision(grad.dtype, word)
    words = (*shape, *stride, *before, *after, *dilation, groups, how)
    return _made("conv_input_grad", (grad, weight, None), words, make)


def _run_weight_grad(
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    word: str,
) -> Tensor:
    def make(own: list[Any], writer: RecipeWriter) -> Tensor:
        window = _window(stride, before, after, dilation)
        own_grad, own_x, _ = own
        check_grad(grad, ("x", x), x.shape, shape, window, groups)
        return run_weight_grad(writer, own_grad, own_x, tuple(shape), window, groups, how)

    how = precision(grad.dtype, word)
    words = (*shape, *stride, *before, *after, *dilation, groups, how)
    return _made("conv_weight_grad", (grad, x, None), words, make)


def _window(stride: Sequence[int], before: Sequence[int], after: Sequence[int], dilation: Sequence[int]) -> Window:
    return Window(tuple(stride), tuple(before), tuple(after), tuple(dilation))


def _allocate(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilation: Sequence[int],
    *_: object,
) -> Tensor:
    """Return an empty tensor with the result's shape, dtype and memory format, for torch's tracing."""
    del bias
    sizes = _window(stride, before, after, dilation).sizes(x.shape[2:], weight.shape[2:])
    return new_like(x, (x.shape[0], weight.shape[0], *sizes), by_channels(x, weight))


def _allocate_grad(grad: Tensor, other: Tensor, shape: Sequence[int], *_: object) -> Tensor:
    return new_like(grad, shape, by_channels(grad, other))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    x, weight, _, *ctx.words = inputs
    of_x, of_weight, *_ = ctx.needs_input_grad
    ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
    ctx.shapes = x.shape, weight.shape
    ctx.by_channels = by_channels(x, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    to_x = to_weight = to_bias = None
    grad = grad.contiguous(memory_format=formatted(ctx.by_channels, grad.dim()))
    if ctx.needs_input_grad[0]:
        to_x = conv_input_grad(grad, weight, ctx.shapes[0], *ctx.words)
    if ctx.needs_input_grad[1]:
        to_weight = conv_weight_grad(grad, x, ctx.shapes[1], *ctx.words)
    if ctx.needs_input_grad[2]:
        to_bias = grad.sum((0, *range(2, grad.dim())))
    return to_x, to_weight, to_bias, *(None for _ in ctx.words)


def _like(grad: Tensor, *operands: Tensor) -> Tensor:
    """Return a gradient in the memory layout of a result; an expanded gradient, such as that of a sum, is copied."""
    return grad.contiguous(memory_format=formatted(by_channels(*operands), grad.dim()))


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    grad, other, _, *ctx.words = inputs
    ctx.save_for_backward(grad, other)


def _backward_of_input_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    from_output, weight = ctx.saved_tensors
    grad = _like(grad, from_output, weight)
    to_grad = conv(grad, weight, None, *ctx.words) if ctx.needs_input_grad[0] else None
    to_weight = None
    if ctx.needs_input_grad[1]:
        to_weight = conv_weight_grad(from_output, grad, weight.shape, *ctx.words)
    return to_grad, to_weight, None, *(None for _ in ctx.words)


def _backward_of_weight_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    from_output, x = ctx.saved_tensors
    grad = _like(grad, from_output, x)
    to_grad = conv(x, grad, None, *ctx.words) if ctx.needs_input_grad[0] else None
    to_x = conv_input_grad(from_output, grad, x.shape, *ctx.words) if ctx.needs_input_grad[1] else None
    return to_grad, to_x, None, *(None for _ in ctx.words)


_WINDOW: Final = "int[] stride, int[] before, int[] after, int[] dilation, int groups, str precision"
conv = define(
    f"conv(Tensor x, Tensor weight, Tensor? bias, {_WINDOW}) -> Tensor",
    convolve,
    _allocate,
    backward=_backward,
    save=_save,
)
conv_input_grad = define(
    f"conv_input_grad(Tensor grad, Tensor weight, SymInt[] shape, {_WINDOW}) -> Tensor",
    _run_input_grad,
    _allocate_grad,
    backward=_backward_of_input_grad,
    save=_save_grad,
)
conv_weight_grad = define(
    f"conv_weight_grad(Tensor grad, Tensor x, SymInt[] shape, {_WINDOW}) -> Tensor",
    _run_weight_grad,
    _allocate_grad,
    backward=_backward_of_weight_grad,
    save=_save_grad,
)
