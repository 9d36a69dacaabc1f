"""Products of the rows of each group by a matrix of its own: ``grouped_mm``, the core of mixture-of-experts layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.grouped_mm.op import grouped_mm

__all__ = ["grouped_mm"]

__getattr__ = lazily(__name__, __all__)
