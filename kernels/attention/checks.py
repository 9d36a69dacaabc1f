"""Validation that the families of attention share: rows and heads of operands, gradients, and sliding windows."""

# ruff: noqa: PLR0917 - gradients have as many operands

from __future__ import annotations

import math
from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_dtype,
    check_like,
    check_number,
    check_shape,
    refuse_type,
    refuse_value,
)
from torch import Tensor

__all__ = [
    "FP8",
    "LEAST_SCALE",
    "MAX_LEN",
    "WIDEST",
    "Window",
    "check_differentiable",
    "check_gradients",
    "check_heads",
    "check_rows",
    "check_scale",
    "window_sides",
]

FP8: Final = torch.float8_e4m3fn
"""The 8-bit dtype of the forward pass; the output is then bf16."""
MAX_HEAD_DIM: Final = 256
MAX_HEAD_DIM_FP32: Final = 128
"""The largest head dimension for fp32: wider tiles do not fit into registers."""
WIDEST: Final = dict.fromkeys((*FLOATS, FP8), MAX_HEAD_DIM) | {torch.float32: MAX_HEAD_DIM_FP32}
"""The largest head dimension of each dtype."""
MAX_LEN: Final = 2**30 - 512
"""The largest sequence length: sums of positions of queries, keys and tiles must fit 32 bits."""

Window = int | tuple[int | None, int | None] | None
"""Number of keys that a query sees to the left and to the right of its position; None is unlimited, one int is both."""


def check_rows(**operands: Tensor) -> None:
    """Require operands whose rows are contiguous, not too long for a tile, and not too many.

    Raises:
        ValueError: an operand's rows are too long, too many or not contiguous.
    """
    for argument, operand in operands.items():
        length, dim = operand.shape[2:]
        widest = WIDEST[operand.dtype]
        if not 1 <= dim <= widest:
            refuse_value(argument, f"1 to {widest} elements in a row of {operand.dtype}", dim)
        if length > MAX_LEN:
            refuse_value(argument, f"at most {MAX_LEN} rows", length)
        if operand.stride(3) != 1 and dim != 1:
            refuse_value(argument, "a last stride of 1 (try .contiguous())", operand.stride(3))


def check_heads(heads: int, kv_heads: int, enable_gqa: bool) -> None:
    """Require equal numbers of query and key heads; with `enable_gqa`, a number of key heads that divides that of query heads.

    Raises:
        ValueError: another number.
    """
    if heads == kv_heads:
        return
    if not enable_gqa:
        refuse_value("key", f"{heads} heads as query has (enable_gqa=True lets queries share them)", kv_heads)
    if not kv_heads or heads % kv_heads:
        refuse_value("key", f"a number of heads that divides the {heads} of query", kv_heads)


LEAST_SCALE: Final = 2.0**-126
"""The least scale that kernels take which multiply masked scores, -inf, by it: fp32 does not round it to 0."""


def check_scale(argument: str, scale: object) -> float:
    """Return the factor of the scores as a float; require a finite number that fp32 represents.

    `argument`: the argument's name, for the error.

    Raises:
        ArgumentError: not a number.
        ValueError: NaN, infinity or a number that fp32 does not hold.
    """
    number = check_number(argument, scale)
    # NaN fails every comparison
    if not abs(number) < math.inf:
        refuse_value(argument, "a finite number", number)
    return number


def check_differentiable(q: Tensor) -> None:
    """Require a dtype of `q` that has gradients, so not e4m3.

    Raises:
        ArgumentError: the dtype has no gradients.
    """
    if q.dtype not in FLOATS:
        refuse_type("q", f"{' or '.join(map(str, FLOATS))} where gradients are required", q.dtype)


def check_gradients(q: Tensor, v: Tensor, dout: Tensor, dlse: Tensor | None, out: Tensor, lse: Tensor) -> None:
    """Require the output and log-sums of the forward pass, and gradients of the same shapes.

    `dlse`: gradient by the log-sums, or None for zero.

    Raises:
        ArgumentError: a wrong dtype or device.
        ValueError: a wrong shape.
    """
    check_differentiable(q)
    shape = (*q.shape[:3], v.shape[3])
    for name, value in (("out", out), ("dout", dout)):
        check_like(name, value, "q", q)
        check_shape(name, value, shape, "B, H, M, Dv")
    for name, sums in (("lse", lse), ("dlse", dlse)):
        if sums is not None:
            check_dtype(name, sums, (torch.float32,))
            check_shape(name, sums, shape[:3], "B, H, M")


def window_sides(window: Window) -> tuple[int | None, int | None]:
    """Return (left, right): how many keys a query sees to the left and to the right; None is unlimited.

    Raises:
        ArgumentError: not an int, and not a tuple of two ints or None.
        ValueError: an int below 0.
    """
    if window is None:
        return None, None
    sides: tuple[int | None, ...] = window if isinstance(window, tuple) else (window, window)
    if len(sides) != 2 or not all(map(_is_side, sides)):
        refuse_type("window", "an int, or a tuple of two ints or None", repr(window))
    if any(side is not None and side < 0 for side in sides):
        refuse_value("window", "distances of at least 0", repr(window))
    left, right = sides
    return left, right


def _is_side(side: object) -> bool:
    return side is None or (isinstance(side, int) and not isinstance(side, bool))
