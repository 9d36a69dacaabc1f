"""Products with weights of 4 bits, two to a byte: ``uint4x2_mixed_mm``, of fp16 or bf16 and of any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.mixed_mm.op import uint4x2_mixed_mm

__all__ = ["uint4x2_mixed_mm"]

__getattr__ = lazily(__name__, __all__)
