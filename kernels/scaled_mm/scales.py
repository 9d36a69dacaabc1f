"""Granularity of the scales of fp8 matrices, found from their shapes: per tensor, per row or column, or per block of K."""

from __future__ import annotations

from typing import NamedTuple

from nojit.kernels.calls.arguments import check_like_device, refuse_type, refuse_value
from nojit.kernels.products.agreed_sizes import SCALE_BLOCK
from torch import Tensor, float32

__all__ = ["Scales", "scales_of"]


class Scales(NamedTuple):
    """Granularity and strides of both scales, in the form that kernels take."""

    kind: str
    """Granularity of b's scales: ``ends``, per tensor or column; ``tiles``, per 128 by 128 block; ``rows``, per 128 by 1."""
    a_span: int
    """Number of rows of a that share a scale."""
    b_span: int
    """Number of columns of b that share a scale."""
    strides: tuple[int, int, int, int]
    """Strides of a's scales along rows and K, and of b's along K and columns; 0 where all share a scale."""


def scales_of(scale_a: Tensor, scale_b: Tensor, a: Tensor, b: Tensor) -> Scales:
    """Return the granularity of both scales; require scales that match a product of a [M, K] by b [K, N].

    Raises:
        ArgumentError: not fp32, or not on the operands' device.
        ValueError: unsupported shapes, or shapes that do not match one another.
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
    blocks, high, wide = (-(-size // SCALE_BLOCK) for size in (depth, rows, cols))
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
        1 if known == (rows, blocks) else SCALE_BLOCK,
        1 if whole else SCALE_BLOCK,
        strides,
    )
