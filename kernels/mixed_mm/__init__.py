"""Products with 4-bit weights, two per byte: ``uint4x2_mixed_mm``, for fp16 or bf16 and any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.mixed_mm.op import uint4x2_mixed_mm

__all__ = ["uint4x2_mixed_mm"]

__getattr__ = lazily(__name__, __all__)
