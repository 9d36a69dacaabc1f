"""Checks of operators' arguments. Each message names the argument, what was expected and what was got.

A wrong type, dtype or device is an `ArgumentError` (a `TypeError`); a wrong size, stride or word is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

import torch
from nojit.kernels import library
from nojit.runtime.errors import ArgumentError, did_you_mean
from torch import Tensor

__all__ = [
    "FLOATS",
    "check_choice",
    "check_dtype",
    "check_like",
    "check_rank",
    "check_shape",
    "check_tensor",
    "refuse_type",
    "refuse_value",
]

FLOATS: Final = (torch.float16, torch.bfloat16, torch.float32)
"""The floating types that every family takes."""


def refuse_type(argument: str, expected: str, got: object) -> NoReturn:
    """Raise the error of an argument whose type, dtype or device is wrong."""
    raise ArgumentError(f"{argument}: expected {expected}", got=str(got), argument=argument)


def refuse_value(argument: str, expected: str, got: object) -> NoReturn:
    """Raise the error of an argument whose size, stride or value is wrong."""
    raise ValueError(f"{argument}: expected {expected}, got {got}")


def check_tensor(argument: str, value: object) -> None:
    """Require a tensor on a device that kernels run on."""
    if not isinstance(value, Tensor):
        refuse_type(argument, "a tensor", type(value).__name__)
    if value.device.type not in library.devices():
        refuse_type(argument, f"a tensor on {' or '.join(sorted(library.devices()))}", value.device)


def check_dtype(argument: str, value: Tensor, dtypes: Sequence[torch.dtype] = FLOATS) -> None:
    """Require one of `dtypes`."""
    if value.dtype not in dtypes:
        refuse_type(argument, " or ".join(map(str, dtypes)), value.dtype)


def check_like(argument: str, value: object, first: str, like: Tensor) -> None:
    """Require a tensor of the device and dtype of `like`, which is the argument `first`."""
    if not isinstance(value, Tensor):
        refuse_type(argument, "a tensor", type(value).__name__)
    if value.dtype != like.dtype:
        refuse_type(argument, f"{like.dtype} as {first} has", value.dtype)
    if value.device != like.device:
        refuse_type(argument, f"a tensor on {like.device} as {first} is", value.device)


def check_rank(argument: str, value: Tensor, dims: str) -> None:
    """Require as many dimensions as `dims` names, "B, H, M, D" say."""
    if value.dim() != dims.count(",") + 1:
        refuse_value(argument, f"{dims.count(',') + 1} dimensions [{dims}]", f"shape {tuple(value.shape)}")


def check_shape(argument: str, value: Tensor, shape: Sequence[int], dims: str) -> None:
    """Require `shape`, whose dimensions are named `dims`."""
    if tuple(value.shape) != tuple(shape):
        refuse_value(argument, f"shape {tuple(shape)} [{dims}]", tuple(value.shape))


def check_choice(argument: str, value: object, choices: tuple[str, ...]) -> None:
    """Require one of a few words."""
    if value not in choices:
        near = did_you_mean(str(value), choices)
        refuse_value(argument, " or ".join(map(repr, choices)), f"{value!r}{near}")
