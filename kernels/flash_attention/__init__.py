"""Flash attention: ``flash_attention``, forward, over fp16, bf16 or fp32 heads of up to 256 dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.flash_attention.op import flash_attention

__all__ = ["flash_attention"]


def __getattr__(name: str) -> object:
    """Import the operator, and torch with it, when it is first asked for."""
    if name in __all__:
        from nojit.kernels.flash_attention import op  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
