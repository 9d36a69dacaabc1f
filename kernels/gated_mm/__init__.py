"""``gated_mm``: a matrix product whose one half gates the other, in one launch, for fp16, bf16 or fp32 and any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.gated_mm.op import gated_mm

__all__ = ["gated_mm"]

__getattr__ = lazily(__name__, __all__)
