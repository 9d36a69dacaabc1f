"""``rms_norm``, and ``add_rms_norm``, which adds a residual first; for fp16, bf16 or fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.norm.op import add_rms_norm, rms_norm, rms_norm_bwd

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_bwd"]

__getattr__ = lazily(__name__, __all__)
