"""DeepSpeed's flash attention module for inference."""

from __future__ import annotations

from nojit.kernels.attention.checks import check_scale
from nojit.kernels.flash_attention import flash_attention
from torch import Tensor, nn

__all__ = ["triton_flash_attn"]


class triton_flash_attn(nn.Module):  # type: ignore[misc]  # noqa: N801 - torch is untyped here; DeepSpeed's name
    """Module of attention without a mask, for inference, in one kernel."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, sm_scale: float, block_128: bool = True) -> Tensor:  # noqa: ARG002
        """Compute ``softmax(q @ k^T * sm_scale) @ v``.

        Args:
            q: queries [B, H, M, D], fp16, bf16 or fp32; any length, the last stride 1.
            k: keys [B, H, N, D].
            v: values [B, H, N, D].
            sm_scale: factor of the scores.
            block_128: accepted and ignored: tuning tables choose the tile.

        Returns:
            The output [B, H, M, D], in the memory order of q. Differentiable.

        Raises:
            ArgumentError: a wrong type, dtype or device.
            ValueError: a wrong shape, or a scale that is not finite.
        """
        out: Tensor = flash_attention(q, k, v, scale=check_scale("sm_scale", sm_scale))
        return out
