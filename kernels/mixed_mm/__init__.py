"""``uint4x2_mixed_mm``: products of fp16 or bf16 matrices by 4-bit weights, two in a byte, with any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.mixed_mm.op import uint4x2_mixed_mm

__all__ = ["uint4x2_mixed_mm"]

__getattr__ = lazily(__name__, __all__)
