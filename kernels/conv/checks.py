"""Validation of convolution arguments."""

# ruff: noqa: PLR0917 - the gradient of a convolution has as many facts

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from nojit.kernels.calls.arguments import (
    check_choice,
    check_dtype,
    check_int,
    check_like,
    check_rank,
    check_shape,
    check_tensor,
    refuse_type,
    refuse_value,
)
from nojit.kernels.calls.torch_state import allows_tf32
from nojit.kernels.conv.sweeps import Window
from torch import Tensor

__all__ = ["Padding", "check_grad", "check_operands", "precision", "sizes_of", "window_of", "word_of"]

Padding = int | Sequence[int] | str
_WORDS: Final = ("same", "valid")
_DIMS: Final = {2: "H, W", 3: "D, H, W"}


def window_of(
    dims: int,
    weight: Tensor,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
) -> Window:
    """Return the `Window` for the arguments of torch's convolutions.

    Padding ``"same"`` adds zeros until the result has the input's size; if their number is odd, the end gets one more.
    """
    steps, apart = _ints("stride", stride, dims, 1), _ints("dilation", dilation, dims, 1)
    if not isinstance(padding, str):
        sides = _ints("padding", padding, dims, 0)
        return Window(steps, sides, sides, apart)
    if padding not in _WORDS:
        refuse_value("padding", "ints, 'same' or 'valid'", repr(padding))
    if padding == "valid":
        return Window(steps, (0,) * dims, (0,) * dims, apart)
    if any(step != 1 for step in steps):
        refuse_value("padding", "ints or 'valid' with a stride above 1", repr(padding))
    totals = [d * (count - 1) for d, count in zip(apart, weight.shape[2:], strict=True)]
    before = tuple(total // 2 for total in totals)
    return Window(steps, before, tuple(total - side for total, side in zip(totals, before, strict=True)), apart)


def _ints(argument: str, value: object, dims: int, least: int) -> tuple[int, ...]:
    """Return `dims` ints, each at least `least`, from a single int or a sequence; `argument` names the value in errors."""
    given: list[Any] = list(value) if isinstance(value, (tuple, list)) else [value]
    for each in given:
        check_int(argument, each)
    if len(given) not in {1, dims}:
        refuse_value(argument, f"an int, or {dims} of them [{_DIMS[dims]}]", f"{len(given)} of them")
    if any(each < least for each in given):
        refuse_value(argument, f"at least {least}", tuple(given))
    numbers = [int(each) for each in given]
    return tuple(numbers * dims if len(numbers) == 1 else numbers)


def check_operands(dims: int, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    """Require x [N, C, ...], weight and bias with matching dtypes, devices and channels; `dims` is 2 or 3."""
    check_tensor("input", x)
    check_dtype("input", x)
    check_like("weight", weight, "input", x)
    check_rank("input", x, f"N, C, {_DIMS[dims]}")
    check_rank("weight", weight, f"O, C/groups, {_DIMS[dims]}")
    check_int("groups", groups)
    if groups < 1:
        refuse_value("groups", "at least 1", groups)
    if x.shape[1] % groups:
        refuse_value("groups", f"a divisor of {x.shape[1]}, the channels of input", groups)
    if weight.shape[0] % groups:
        refuse_value("groups", f"a divisor of {weight.shape[0]}, the channels of the output", groups)
    if weight.shape[1] != x.shape[1] // groups:
        refuse_value("weight", f"{x.shape[1] // groups} channels, as each group of input has", weight.shape[1])
    if bias is not None:
        check_like("bias", bias, "input", x)
        check_shape("bias", bias, (weight.shape[0],), "O")


def check_grad(
    grad: Tensor, other: tuple[str, Tensor], shape: Sequence[int], taps: Sequence[int], window: Window, groups: int
) -> None:
    """Require a gradient with the shape of the output, and the dtype and device of `other`.

    Args:
        grad: gradient by the output.
        other: name and value of the operand that accompanies the gradient.
        shape: shape of the input.
        taps: shape of the weight.
        window: stride, padding and dilation.
        groups: number of groups.
    """
    name, value = other
    check_tensor("grad", grad)
    check_dtype("grad", grad)
    check_like(name, value, "grad", grad)
    if groups < 1 or shape[1] != taps[1] * groups or taps[0] % groups:
        refuse_value("shape", f"sizes of an input and a weight of {groups} groups", (tuple(shape), tuple(taps)))
    sizes = window.sizes(shape[2:], taps[2:])
    check_shape("grad", grad, (shape[0], taps[0], *sizes), f"N, O, {_DIMS[len(sizes)]}")


def sizes_of(x: Tensor, weight: Tensor, window: Window) -> tuple[int, ...]:
    """Return the output's size in each spatial dimension.

    Raises:
        ValueError: the weight is larger than the padded input, or has a size of 0.
    """
    taps = weight.shape[2:]
    if any(count < 1 for count in taps):
        refuse_value("weight", "a kernel size of at least 1 in each dimension", tuple(taps))
    sizes = window.sizes(x.shape[2:], taps)
    if any(size < 1 for size in sizes):
        padded = tuple(a + b + c for a, b, c in zip(x.shape[2:], window.before, window.after, strict=True))
        refuse_value("input", f"padded sizes that hold the dilated kernel {tuple(taps)}", padded)
    return sizes


def word_of(allow_tf32: bool | None) -> str:
    """Return the operators' string for the argument `allow_tf32`: ``"ieee"``, ``"tf32"``, or ``"switch"`` for None."""
    if allow_tf32 is not None and not isinstance(allow_tf32, bool):
        refuse_type("allow_tf32", "a bool or None", type(allow_tf32).__name__)
    return "switch" if allow_tf32 is None else "tf32" if allow_tf32 else "ieee"


def precision(dtype: torch.dtype, word: str) -> str:
    """Return the precision of products: as `word` says, or from torch's current switch for convolutions."""
    if dtype != torch.float32:
        return "ieee"
    if word != "switch":
        check_choice("precision", word, ("ieee", "tf32"))
        return word
    return "tf32" if allows_tf32("conv") else "ieee"
