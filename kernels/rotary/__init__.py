"""Rotary position embedding: of a tensor, of query and key, and with a write to a paged cache; for fp16, bf16 or fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.rotary.op import rotary, rotary_qk, rotary_to_cache

__all__ = ["rotary", "rotary_qk", "rotary_to_cache"]

__getattr__ = lazily(__name__, __all__)
