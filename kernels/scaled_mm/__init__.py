"""``scaled_mm``: products of fp8 matrices with scales per tensor, per row and column, or per block of 128 along K."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.scaled_mm.op import scaled_mm

__all__ = ["scaled_mm"]

__getattr__ = lazily(__name__, __all__)
