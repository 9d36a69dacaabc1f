"""Products with weights of 4 bits, two to a byte: ``uint4x2_mixed_mm``, of fp16 or bf16 and of any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.mixed_mm.op import uint4x2_mixed_mm

__all__ = ["uint4x2_mixed_mm"]


def __getattr__(name: str) -> object:
    """Import the operator, and torch with it, when it is asked for."""
    if name in __all__:
        from nojit.kernels.mixed_mm import op  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
