"""Validation of the arguments of products with 4-bit weights."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    HALVES,
    check_counted,
    check_dtype,
    check_like,
    check_like_device,
    check_rank,
    check_shape,
    check_strided,
    check_tensor,
    refuse_value,
)
from torch import Tensor

__all__ = ["BYTES", "Operands", "check_operands"]

BYTES: Final = (torch.uint8, torch.int32, torch.int64)
"""Allowed dtypes of packed weights; each element holds one byte, two weights."""
Operands = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""a [M, K], packed weights b [K / 2, N], scales and zero points of quantization groups (or None)."""


def check_operands(operands: Operands, group_size: int | None) -> None:
    """Require a [M, K], packed weights [K / 2, N], and scales and zero points with one row for each group of `group_size`.

    `operands`: a, packed weights, and the scales and zero points of quantization groups.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or size.
    """
    a, b, scales, zeros = operands
    check_tensor("a", a)
    check_dtype("a", a, HALVES)
    check_rank("a", a, "M, K")
    check_strided("b", b)
    check_like_device("b", b, "a", a)
    check_dtype("b", b, BYTES)
    check_rank("b", b, "K / 2, N")
    check_counted("a", a)
    check_counted("b", b)
    if a.shape[1] % 2:
        refuse_value("a", "an even number of columns, two for each byte of b", a.shape[1])
    check_shape("b", b, (a.shape[1] // 2, b.shape[1]), "K / 2, N")
    if scales is None:
        for name, value in (("zeros", zeros), ("group_size", group_size)):
            if value is not None:
                refuse_value(name, "None without scales", "one")
        return
    _check_groups(a, b.shape[1], scales, zeros, group_size)


def _check_groups(a: Tensor, cols: int, scales: Tensor, zeros: Tensor | None, group_size: int | None) -> None:
    if group_size is not None and (group_size <= 0 or group_size % 2):
        refuse_value("group_size", "a positive even int, or None for one group", group_size)
    depth = a.shape[1]
    count = min(depth, 1) if group_size is None else -(-depth // group_size)
    for name, value in (("scales", scales), ("zeros", zeros)):
        if value is not None:
            check_like(name, value, "a", a)
            check_rank(name, value, "K / group_size, N")
            check_shape(name, value, (count, cols), "K / group_size, N")
