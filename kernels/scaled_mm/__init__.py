"""Products of fp8 matrices with scales: of whole operands, of rows and columns, or of blocks 128 deep."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.scaled_mm.op import scaled_mm

__all__ = ["scaled_mm"]


def __getattr__(name: str) -> object:
    """Import the operator, and torch with it, when it is asked for."""
    if name in __all__:
        from nojit.kernels.scaled_mm import op  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
