"""``b2b_gemm``: two matrix products and an activation between them in one launch, for fp16, bf16 or fp32, any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.b2b_gemm.functions import CustomActivation
    from nojit.kernels.b2b_gemm.op import b2b_gemm

__all__ = ["CustomActivation", "b2b_gemm"]

__getattr__ = lazily(__name__, __all__, {"CustomActivation": "functions"})
