"""Flash attention: ``flash_attention`` and its gradients, over fp16, bf16, fp32 or (forward) e4m3 heads of up to 256 dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.flash_attention.module import FlashAttention
    from nojit.kernels.flash_attention.op import flash_attention

__all__ = ["FlashAttention", "flash_attention"]


def __getattr__(name: str) -> object:
    """Import the operators, and torch with them, when the first one is asked for."""
    if name == "flash_attention":
        from nojit.kernels.flash_attention.op import flash_attention  # noqa: PLC0415 - importing the package must stay cheap

        return flash_attention
    if name == "FlashAttention":
        from nojit.kernels.flash_attention.module import FlashAttention  # noqa: PLC0415 - likewise

        return FlashAttention
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
