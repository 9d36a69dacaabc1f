"""Sums of two products of matrices in one launch: ``mm_plus_mm``, of fp16, bf16 or fp32 and of any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.mm_plus_mm.op import mm_plus_mm

__all__ = ["mm_plus_mm"]


def __getattr__(name: str) -> object:
    """Import the operator, and torch with it, when it is asked for."""
    if name in __all__:
        from nojit.kernels.mm_plus_mm import op  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
