"""``FlashAttention``, a torch module around `flash_attention`."""

from __future__ import annotations

from nojit.kernels.attention.checks import Window, check_scale, window_sides
from nojit.kernels.calls.arguments import check_choice, check_flags
from nojit.kernels.flash_attention.checks import ALIGNMENTS
from nojit.kernels.flash_attention.op import flash_attention
from torch import Tensor, nn

__all__ = ["FlashAttention"]


class FlashAttention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Module that calls `flash_attention` with options set once; it has no parameters."""

    def __init__(
        self,
        *,
        scale: float | None = None,
        is_causal: bool = False,
        causal_alignment: str = "top_left",
        window: Window = None,
        deterministic: bool = True,
    ) -> None:
        """Set the options, which are those of `flash_attention`.

        Raises:
            ArgumentError: a scale, flag or window of a wrong type.
            ValueError: an invalid scale, window or string.
        """
        super().__init__()
        if scale is not None:
            check_scale("scale", scale)
        check_flags(is_causal=is_causal, deterministic=deterministic)
        check_choice("causal_alignment", causal_alignment, ALIGNMENTS)
        window_sides(window)
        self.scale = scale
        self.is_causal = is_causal
        self.causal_alignment = causal_alignment
        self.window = window
        self.deterministic = deterministic

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return attention's output [B, H, M, Dv] for q [B, H, M, D], k [B, Hkv, N, D] and v [B, Hkv, N, Dv]."""
        out: Tensor = flash_attention(
            q,
            k,
            v,
            scale=self.scale,
            is_causal=self.is_causal,
            causal_alignment=self.causal_alignment,
            window=self.window,
            deterministic=self.deterministic,
        )
        return out

    def extra_repr(self) -> str:
        """Return the options as torch prints them in the module's representation."""
        return f"scale={self.scale}, is_causal={self.is_causal}, {self.causal_alignment}, window={self.window}"
