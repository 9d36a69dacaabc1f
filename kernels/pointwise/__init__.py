"""Pointwise operators: ``vector_add``, ``gelu``, ``silu``, ``swiglu``, on dense tensors of fp16, bf16 or fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.pointwise.op import gelu, silu, swiglu, vector_add

__all__ = ["gelu", "silu", "swiglu", "vector_add"]


def __getattr__(name: str) -> object:
    """Import the operators, and torch with them, when the first one is asked for."""
    if name in __all__:
        from nojit.kernels.pointwise import op  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
