"""Products of dense matrices: ``mm``, ``bmm`` and ``baddbmm``, of fp16, bf16, fp32 or int8 and of any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.bmm.op import baddbmm, bmm, mm

__all__ = ["baddbmm", "bmm", "mm"]


def __getattr__(name: str) -> object:
    """Import the operators, and torch with them, when the first one is asked for."""
    if name in __all__:
        from nojit.kernels.bmm import op  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
