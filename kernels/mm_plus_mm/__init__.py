"""``mm_plus_mm``: the sum of two matrix products in one launch, for fp16, bf16 or fp32 and any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.mm_plus_mm.op import mm_plus_mm

__all__ = ["mm_plus_mm"]

__getattr__ = lazily(__name__, __all__)
