"""Products of the rows of each group by the group's own matrix, in fp8: ``scaled_grouped_mm``, for mixture-of-experts layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.scaled_grouped_mm.op import scaled_grouped_mm

__all__ = ["scaled_grouped_mm"]

__getattr__ = lazily(__name__, __all__)
