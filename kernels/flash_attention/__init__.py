"""``flash_attention`` and its gradients, for fp16, bf16, fp32 or e4m3 (forward only), and head dimensions up to 256."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.flash_attention.module import FlashAttention
    from nojit.kernels.flash_attention.op import flash_attention

__all__ = ["FlashAttention", "flash_attention"]

__getattr__ = lazily(__name__, __all__, {"FlashAttention": "module"})
