"""``conv2d`` and ``conv3d``: convolutions in two and three dimensions, with torch's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.conv.op import conv2d, conv3d

__all__ = ["conv2d", "conv3d"]

__getattr__ = lazily(__name__, __all__)
