"""Granularity of the scales of grouped fp8 products, found from their shapes: per row and column, or per block."""

from __future__ import annotations

from typing import NamedTuple

from nojit.kernels.calls.arguments import check_like_device, check_strided, refuse_type, refuse_value
from nojit.kernels.products.agreed_sizes import SCALE_BLOCK
from torch import Tensor, float32

__all__ = ["Scales", "scales_of"]


class Scales(NamedTuple):
    """Granularity and strides of both scales, in the form that kernels take."""

    kind: str
    """``ends``, per row and per column of each matrix; ``tiles``, per 1 by 128 and per 128 by 128 elements."""
    strides: tuple[int, int, int, int, int]
    """Strides of a's scales along rows and K, and of b's along groups, K and columns; 0 where all share a scale."""


def scales_of(scale_a: Tensor, scale_b: Tensor, mat_a: Tensor, mat_b: Tensor) -> Scales:
    """Return the granularity of both scales; require scales that match a product of [M, K] by [groups, K, N].

    Raises:
        ArgumentError: not fp32, or not on the operands' device.
        ValueError: unsupported shapes, or shapes that do not match one another.
    """
    for argument, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        check_strided(argument, value)
        if value.dtype != float32:
            refuse_type(argument, f"{float32}", value.dtype)
        check_like_device(argument, value, "mat_a", mat_a)
    rows, (groups, depth, cols) = mat_a.shape[0], mat_b.shape
    known, other = tuple(scale_a.shape), tuple(scale_b.shape)
    if known in {(rows,), (rows, 1)} and other in {(groups, cols), (groups, 1, cols)}:
        return Scales("ends", (scale_a.stride(0), 0, scale_b.stride(0), 0, scale_b.stride(-1)))
    high, wide = -(-depth // SCALE_BLOCK), -(-cols // SCALE_BLOCK)
    if known != (rows, high) or other != (groups, high, wide):
        refuse_value(
            "scale_a, scale_b",
            f"shapes {(rows,)} and {(groups, cols)} for rows and columns, or {(rows, high)} and {(groups, high, wide)} "
            "for blocks",
            f"{known} and {other}",
        )
    return Scales("tiles", (*scale_a.stride(), *scale_b.stride()))
