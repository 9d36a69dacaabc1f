"""Products of dense matrices: ``mm``, ``bmm`` and ``baddbmm``, for fp16, bf16, fp32 or int8 and any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.bmm.op import baddbmm, bmm, mm

__all__ = ["baddbmm", "bmm", "mm"]

__getattr__ = lazily(__name__, __all__)
