"""What the scales of fp8 matrices are of: whole matrices, rows and columns, or blocks that are 128 deep; their shapes say it."""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.arguments import check_like_device, refuse_type, refuse_value
from torch import Tensor, float32

__all__ = ["DEEP", "Scales", "scales_of"]

DEEP: Final = 128
"""How many of the depth share a scale of a block, and how many rows or columns may."""


class Scales(NamedTuple):
    """How kernels read scales."""

    kind: str
    """Of b: ``ends`` for those of whole matrices or of columns, ``tiles`` for blocks of 128 by 128, ``rows`` for 128 by 1."""
    a_span: int
    """How many rows share a scale."""
    b_span: int
    """How many columns share one."""
    strides: tuple[int, int, int, int]
    """Of a's along the rows and the depth, of b's along the depth and the columns; 0 where one serves all."""


def scales_of(scale_a: Tensor, scale_b: Tensor, a: Tensor, b: Tensor) -> Scales:
    """Say what scales are of, and refuse those that fit no product of a [M, K] by b [K, N].

    Raises:
        ArgumentError: they are not fp32, or not on the operands' device.
        ValueError: their shapes fit nothing, or not one another.
    """
    for argument, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        if value.dtype != float32:
            refuse_type(argument, f"{float32}", value.dtype)
        check_like_device(argument, value, "a", a)
    if scale_a.numel() == scale_b.numel() == 1:
        return Scales("ends", 1, 1, (0, 0, 0, 0))
    (rows, depth), cols = a.shape, b.shape[1]
    known, other = tuple(scale_a.shape), tuple(scale_b.shape)
    if known == (rows, 1) and other == (1, cols):
        return Scales("ends", 1, 1, (scale_a.stride(0), 0, 0, scale_b.stride(1)))
    blocks, high, wide = (-(-size // DEEP) for size in (depth, rows, cols))
    if known not in {(rows, blocks), (high, blocks)} or other not in {(blocks, cols), (blocks, wide)}:
        refuse_value(
            "scale_a, scale_b",
            f"one element each, or shapes {(rows, 1)} and {(1, cols)} for rows and columns, or for blocks {(rows, blocks)} or "
            f"{(high, blocks)} and {(blocks, cols)} or {(blocks, wide)}",
            f"{known} and {other}",
        )
    strides = (*scale_a.stride(), *scale_b.stride())
    whole = other == (blocks, cols)
    return Scales(
        "rows" if whole else "tiles",
        1 if known == (rows, blocks) else DEEP,
        1 if whole else DEEP,
        strides,
    )
