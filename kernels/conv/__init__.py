"""Convolutions of two and three dimensions: ``conv2d`` and ``conv3d``, with torch's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.conv.op import conv2d, conv3d

__all__ = ["conv2d", "conv3d"]


def __getattr__(name: str) -> object:
    """Import the operators, and torch with them, when the first one is asked for."""
    if name in __all__:
        from nojit.kernels.conv import op  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
