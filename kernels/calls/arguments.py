"""Checks of operator arguments. Each message names the argument, the expected value and the value found.

A wrong type, dtype or device raises `ArgumentError` (a `TypeError`); a wrong size, stride or string raises `ValueError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Final, NoReturn

import torch
from nojit.kernels import library
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import ArgumentError
from torch import Tensor

__all__ = [
    "COUNTED",
    "FLOATS",
    "HALVES",
    "check_apart",
    "check_choice",
    "check_counted",
    "check_dtype",
    "check_flags",
    "check_int",
    "check_like",
    "check_like_device",
    "check_number",
    "check_rank",
    "check_result",
    "check_shape",
    "check_strided",
    "check_tensor",
    "check_tensors",
    "check_unrepeated",
    "ranges_meet",
    "refuse_type",
    "refuse_value",
]

COUNTED: Final = (1 << 31) - (1 << 10)
"""The largest allowed size of a matrix dimension: kernels use 32-bit indices, up to the end of the last tile."""
FLOATS: Final = (torch.float16, torch.bfloat16, torch.float32)
"""The floating-point dtypes that most families accept."""
HALVES: Final = (torch.float16, torch.bfloat16)
"""The floating-point dtypes of 16 bits."""
_LARGEST: Final = torch.finfo(torch.float32).max
_TRIES: Final = 20_000
"""Number of tries after which the search for an element that two tensors share stops, about 20 ms."""


def refuse_type(argument: str, expected: str, got: object) -> NoReturn:
    """Raise `ArgumentError` for an argument with a wrong type, dtype or device.

    `expected`: what is valid, for the error; `got`: what was given.
    """
    raise ArgumentError(f"{argument}: expected {expected}", got=str(got), argument=argument)


def refuse_value(argument: str, expected: str, got: object) -> NoReturn:
    """Raise `ValueError` for an argument with a wrong size, stride or value.

    `expected`: what is valid, for the error; `got`: what was given.
    """
    raise ValueError(f"{argument}: expected {expected}, got {got}")


def check_tensor(argument: str, value: object) -> None:
    """Require a strided tensor on a device that kernels run on, or on ``meta``, where operators launch nothing.

    `argument`: the argument's name, for the error.
    """
    tensor = check_strided(argument, value)
    if tensor.device.type not in library.devices() and not tensor.is_meta:
        refuse_type(argument, f"a tensor on {' or '.join(sorted(library.devices()))}", tensor.device)


def check_strided(argument: str, value: object) -> Tensor:
    """Return `value` if it is a strided tensor; refuse sparse, nested and opaque tensors, and other types.

    `argument`: the argument's name, for the error.
    """
    if not isinstance(value, Tensor):
        refuse_type(argument, "a tensor", type(value).__name__)
    if value.is_nested or value.layout != torch.strided:
        refuse_type(argument, "a tensor of torch.strided layout", "a nested one" if value.is_nested else value.layout)
    return value


def check_dtype(argument: str, value: Tensor, dtypes: Sequence[torch.dtype] = FLOATS) -> None:
    """Require that the tensor `value` has one of `dtypes`.

    `argument`: the argument's name, for the error.
    """
    if value.dtype not in dtypes:
        refuse_type(argument, " or ".join(map(str, dtypes)), value.dtype)


def check_like(argument: str, value: object, first: str, like: Tensor) -> None:
    """Require that `value` is a strided tensor with the device and dtype of `like`, the argument named `first`."""
    tensor = check_strided(argument, value)
    if tensor.dtype != like.dtype:
        refuse_type(argument, f"{like.dtype} as {first} has", tensor.dtype)
    check_like_device(argument, tensor, first, like)


def check_like_device(argument: str, value: Tensor, first: str, like: Tensor) -> None:
    """Require that the tensor `value` is on the device of `like`, the argument named `first`."""
    if value.device != like.device:
        refuse_type(argument, f"a tensor on {like.device} as {first} is", value.device)


def check_rank(argument: str, value: Tensor, dims: str) -> None:
    """Require that `value` has as many dimensions as `dims` names, for example 4 for "B, H, M, D".

    `argument`: the argument's name, for the error.
    """
    if value.dim() != dims.count(",") + 1:
        refuse_value(argument, f"{dims.count(',') + 1} dimensions [{dims}]", f"shape {tuple(value.shape)}")


def check_counted(argument: str, value: Tensor) -> None:
    """Require that every size of `value` is at most `COUNTED`, so that 32-bit indices do not overflow.

    `argument`: the argument's name, for the error.
    """
    if any(size > COUNTED for size in value.shape) and value.numel():
        refuse_value(argument, f"sizes of at most {COUNTED}", f"shape {tuple(value.shape)}")


def check_shape(argument: str, value: Tensor, shape: Sequence[int], dims: str) -> None:
    """Require that `value` has the given shape; `dims` names the dimensions in the error.

    `argument`: the argument's name, for the error.
    """
    if tuple(value.shape) != tuple(shape):
        refuse_value(argument, f"shape {tuple(shape)} [{dims}]", tuple(value.shape))


def check_tensors(**values: object) -> None:
    """Require that each named value is a strided tensor, on any device; traced and transformed tensors pass."""
    for argument, value in values.items():
        check_strided(argument, value)


def check_result(out: object) -> None:
    """Require that the memory of the output tensor `out` holds its values as they are: torch's lazy negation is refused."""
    check_tensors(out=out)
    # torch.compile cannot trace is_neg
    if isinstance(out, Tensor) and not torch.compiler.is_dynamo_compiling() and out.is_neg():
        refuse_value("out", "a tensor without a lazy negation", "one (as the imaginary part of a conjugate is)")


def check_unrepeated(argument: str, value: Tensor) -> None:
    """Require that no two elements of `value` have the same address because of a stride of 0: a kernel will write to it.

    `argument`: the argument's name, for the error.
    """
    if any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True)):
        refuse_value(argument, "a tensor without repeated elements", f"strides {value.stride()}")


def check_number(argument: str, value: object) -> float:
    """Return `value` as a float; require a number that fp32 represents.

    A tensor is refused, since its gradient would be lost.

    `argument`: the argument's name, for the error.
    """
    if not isinstance(value, (Real, torch.SymInt, torch.SymFloat)):
        refuse_type(argument, "a number", type(value).__name__)
    try:
        number = float(value)
    except OverflowError:
        refuse_value(argument, "a number that fp32 holds", "a larger one")
    # the kernel would round it to infinity
    if _LARGEST < abs(number) < math.inf:
        refuse_value(argument, "a number that fp32 holds", number)
    return number


def check_flags(**values: object) -> None:
    """Require that each named value is a bool, or an int used as one."""
    for argument, value in values.items():
        if not isinstance(value, int):
            refuse_type(argument, "a bool", type(value).__name__)


def check_int(argument: str, value: object) -> None:
    """Require that `value` is an int, and not a bool.

    `argument`: the argument's name, for the error.
    """
    if not isinstance(value, (Integral, torch.SymInt)) or isinstance(value, bool):
        refuse_type(argument, "an int", type(value).__name__)


def check_choice(argument: str, value: object, choices: tuple[str, ...]) -> None:
    """Require that `value` is one of the strings `choices`.

    `argument`: the argument's name, for the error.
    """
    # a value of another type may not support comparison
    if not isinstance(value, str) or value not in choices:
        near = did_you_mean(str(value), choices)
        refuse_value(argument, " or ".join(map(repr, choices)), f"{value!r}{near}")


def check_apart(argument: str, value: Tensor, other: str, operand: Tensor) -> None:
    """Require that `value` shares no element with `operand`, the argument named `other`. Both have the same dtype.

    Interleaved views with many different strides are refused as well when an exact answer would take too long.
    """
    if value.device == operand.device and ranges_meet(value, operand) and _share(value, operand):
        expected = f"memory of its own, as the kernel reads {other} while it writes {argument}"
        refuse_value(argument, expected, f"an overlap with {other}")


def ranges_meet(one: Tensor, other: Tensor) -> bool:
    """Return whether the byte ranges of two tensors, from first to last element, overlap."""
    (first, end), (start, other_end) = _reach(one), _reach(other)
    return first < other_end and start < end and one.numel() > 0 and other.numel() > 0


def _reach(value: Tensor) -> tuple[int, int]:
    last: int = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    first = value.data_ptr()
    return first, first + (last + 1) * value.itemsize


def _share(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of the same dtype have an element in common; True also where the search gives up."""
    if not one.numel() or not other.numel():
        return False
    distance, rest = divmod(other.data_ptr() - one.data_ptr(), one.element_size())
    if rest:
        return True
    # dimensions of equal stride merge into one range
    ends: dict[int, tuple[int, int]] = {}
    for sign, value in ((1, one), (-1, other)):
        for size, stride in zip(value.shape, value.stride(), strict=True):
            low, high = ends.get(stride, (0, 0))
            ends[stride] = (low, high + size - 1) if sign > 0 else (low - size + 1, high)
    ends.pop(0, None)
    steps = sorted(((stride, *counts) for stride, counts in ends.items()), reverse=True)
    return _reaches(distance, steps, iter(range(_TRIES)))


def _reaches(distance: int, steps: Sequence[tuple[int, int, int]], tries: Iterator[int]) -> bool:
    """Return whether `distance` is a sum of multiples of the step lengths; True also where `tries` runs out before an answer.

    Args:
        distance: the sum to reach, in elements.
        steps: (length, least multiple, largest multiple) of each step, longest first.
        tries: an iterator that each tried combination advances once.
    """
    if not steps:
        return distance == 0
    if next(tries, None) is None:
        return True
    if distance % math.gcd(*[length for length, _, _ in steps]):
        return False
    (length, low, high), *shorter = steps
    lower = distance - sum(size * most for size, _, most in shorter)
    upper = distance - sum(size * least for size, least, _ in shorter)
    first, last = max(low, -(-lower // length)), min(high, upper // length)
    return any(_reaches(distance - count * length, shorter, tries) for count in range(first, last + 1))
