"""DeepSpeed's block-sparse softmax: the constructor takes a layout, each call the tensors."""

# ruff: noqa: PLR0917 - DeepSpeed's signatures

from __future__ import annotations

import torch
from nojit.kernels.block_sparse import BlockLayout, block_sparse_softmax
from nojit.kernels.block_sparse.checks import MODES, check_bias, check_mask, check_sparse
from nojit.kernels.calls.arguments import check_choice, check_tensors
from nojit.kernels.compat.deepspeed.patterns import layout_of
from nojit.runtime.errors import ArgumentError
from torch import Tensor

__all__ = ["Softmax"]


class Softmax:
    """Block-sparse softmax over the active columns of each row, with an optional bias and masks."""

    def __init__(self, layout: Tensor | BlockLayout, block: int, bench: bool = False) -> None:
        """Set the layout.

        Args:
            layout: active blocks: [H, M / block, N / block] of zeros and ones, or without H if all heads share it; or a
                `BlockLayout`.
            block: rows and columns of a block.
            bench: accepted and ignored: nothing is measured.

        Raises:
            ArgumentError: the layout is not a tensor of integers, or the block size not an int.
            ValueError: a `BlockLayout` of another block size.
        """
        self.block_layout = layout_of(layout, block)
        self.layout = layout
        self.block = block
        self.bench = bench
        self.num_blocks = self.block_layout.nnz

    def __call__(
        self,
        x: Tensor,
        scale: float = 1.0,
        rpe: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        key_padding_mask_mode: str = "add",
        attn_mask_mode: str = "add",
    ) -> Tensor:
        """Overwrite x with ``softmax(x * scale + rpe + masks)``, and return it.

        Args:
            x: scores [Z, nnz, block, block]; if it requires a gradient, not a leaf of the graph.
            scale: factor of x.
            rpe: a dense bias that broadcasts to [Z, H, M, N], in x's dtype; differentiable.
            key_padding_mask: [Z, N], in x's dtype.
            attn_mask: [M, N], in x's dtype.
            key_padding_mask_mode: ``"add"`` adds the mask; ``"mul"`` masks the positions where it is 0.
            attn_mask_mode: ``"add"`` or ``"mul"`` in the same way, for `attn_mask`.

        Returns:
            x, or under torch.compile a new tensor. A fully masked row gives 0.

        Raises:
            ArgumentError: x, the bias or a mask is not a tensor, or the scale not a number.
            ValueError: the bias or a mask has another dtype than x, or a wrong shape or mode.
        """
        check_tensors(x=x)
        for argument, name, term in (
            ("rpe", "relative position embedding", rpe),
            ("attn_mask", "Attention mask", attn_mask),
            ("key_padding_mask", "Key padding mask", key_padding_mask),
        ):
            if term is not None:
                check_tensors(**{argument: term})
                if term.dtype != x.dtype:
                    raise ValueError(f"{name} must be {x.dtype}")
        check_choice("attn_mask_mode", attn_mask_mode, MODES)
        try:
            return block_sparse_softmax(
                x,
                self.block_layout,
                scale=scale,
                relative_position=rpe,
                key_padding_mask=key_padding_mask,
                attention_mask=attn_mask,
                key_padding_mask_mode=key_padding_mask_mode,
                attention_mask_mode=attn_mask_mode,
                # torch.compile plans memory itself, and warns about differentiable in-place operators
                inplace=not torch.compiler.is_compiling(),
            )
        except (ArgumentError, ValueError):
            # check again here, since the operator's error would use its own argument names
            self._check_terms(x, rpe, attn_mask, attn_mask_mode)
            raise

    def _check_terms(self, x: Tensor, rpe: Tensor | None, attn_mask: Tensor | None, attn_mask_mode: str) -> None:
        """Validate the bias and the attention mask, with this class's argument names in the errors.

        `attn_mask_mode`: ``"add"`` or ``"mul"``.
        """
        layout = self.block_layout
        size = (x.shape[0], check_sparse(x, layout, bias=rpe), *layout.shape)
        check_bias(rpe, x, size, "rpe")
        check_mask("attn_mask", attn_mask, attn_mask_mode, x, size[2:], "M, N")
