"""Block-sparse attention as a module: scores at the active blocks, a softmax over them, and their product with values."""

# ruff: noqa: PLR0917 - as many operands and terms

from __future__ import annotations

import torch
from nojit.kernels.attention.checks import check_scale
from nojit.kernels.block_sparse.checks import MODES, check_attention
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.matmul.op import block_sparse_matmul
from nojit.kernels.block_sparse.softmax.op import block_sparse_softmax
from nojit.kernels.calls.arguments import check_choice, check_flags, refuse_type, refuse_value
from nojit.kernels.calls.torch_state import is_transformed
from nojit.runtime.errors import ArgumentError
from torch import Tensor, nn

__all__ = ["BlockSparseAttention"]


class BlockSparseAttention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Module that computes ``softmax(q @ k^T * scale + relative_position + masks) @ v`` over a layout's active blocks.

    It has no weights.
    """

    def __init__(
        self,
        layout: BlockLayout,
        *,
        scale: float | None = None,
        is_causal: bool = False,
        key_padding_mask_mode: str = "add",
        attention_mask_mode: str = "add",
    ) -> None:
        """Set the options that all calls share.

        Args:
            layout: the active blocks of the scores [M, N].
            scale: factor of the scores; ``1 / sqrt(D)`` if None.
            is_causal: mask key n for query m if n > m.
            key_padding_mask_mode: ``"add"`` adds `key_padding_mask` to the scores; ``"mul"`` masks positions where it
                is 0.
            attention_mask_mode: ``"add"`` or ``"mul"`` in the same way, for `attention_mask`.

        Raises:
            ArgumentError: a layout, scale or flag of a wrong type.
            ValueError: a scale that is not finite, or an unknown mode.
        """
        super().__init__()
        if not isinstance(layout, BlockLayout):
            refuse_type("layout", "a BlockLayout", type(layout).__name__)
        if scale is not None:
            check_scale("scale", scale)
        check_flags(is_causal=is_causal)
        check_choice("key_padding_mask_mode", key_padding_mask_mode, MODES)
        check_choice("attention_mask_mode", attention_mask_mode, MODES)
        self.layout = layout
        self.scale = scale
        self.is_causal = is_causal
        self.key_padding_mask_mode = key_padding_mask_mode
        self.attention_mask_mode = attention_mask_mode

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        relative_position: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Compute attention over the layout's active blocks.

        Args:
            q: queries [B, H, M, D], fp16, bf16 or fp32.
            k: keys [B, H, N, D], of the dtype and device of `q`.
            v: values [B, H, N, Dv], of the dtype and device of `q`.
            relative_position: a bias that broadcasts to [B, H, M, N], added to the scores.
            key_padding_mask: [B, N], one value for each key.
            attention_mask: [M, N], one value for each pair of query and key.

        Returns:
            The output [B, H, M, Dv]. The output row of a query that sees no key is 0.

        Raises:
            ArgumentError: a wrong type, dtype or device.
            ValueError: a wrong shape or mode.
        """
        try:
            return self._attend(q, k, v, relative_position, key_padding_mask, attention_mask)
        except (ArgumentError, ValueError):
            # check here, since the errors of block_sparse_matmul would name the operands a and b
            check_attention(q, k, v, self.layout)
            raise

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        relative_position: Tensor | None,
        key_padding_mask: Tensor | None,
        attention_mask: Tensor | None,
    ) -> Tensor:
        scores = block_sparse_matmul(q, k, self.layout, "sdd", trans_b=True)
        weights = block_sparse_softmax(
            scores,
            self.layout,
            scale=_scale_of(q) if self.scale is None else self.scale,
            relative_position=relative_position,
            key_padding_mask=key_padding_mask,
            attention_mask=attention_mask,
            key_padding_mask_mode=self.key_padding_mask_mode,
            attention_mask_mode=self.attention_mask_mode,
            is_causal=self.is_causal,
            # torch.compile plans memory itself, and warns about differentiable in-place operators
            inplace=not (torch.compiler.is_compiling() or is_transformed()),
        )
        return block_sparse_matmul(weights, v, self.layout, "dsd")


def _scale_of(q: Tensor) -> float:
    """Return the default scale, ``1 / sqrt(D)``, for queries [B, H, M, D]."""
    dim: int = q.shape[-1]
    if not dim:
        refuse_value("q", "at least 1 element in a row, where no scale is given", 0)
    scale: float = dim**-0.5
    return scale
