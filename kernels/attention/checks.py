"""Validation that the families of attention share: rows of operands, and sliding windows."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import FLOATS, refuse_type, refuse_value
from torch import Tensor

__all__ = ["FP8", "MAX_LEN", "WIDEST", "Window", "check_rows", "window_sides"]

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
