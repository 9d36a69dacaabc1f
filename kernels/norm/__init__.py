"""Norms of rows: ``rms_norm``, and ``add_rms_norm``, which adds a residual first; fp16, bf16 or fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.norm.op import add_rms_norm, rms_norm

__all__ = ["add_rms_norm", "rms_norm"]


def __getattr__(name: str) -> object:
    """Import the operators, and torch with them, when the first one is asked for."""
    if name in __all__:
        from nojit.kernels.norm import op  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
