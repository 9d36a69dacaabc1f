"""DeepSpeed's block-sparse softmax: a layout at construction, tensors at each call."""

# ruff: noqa: PLR0917 - DeepSpeed's signatures

from __future__ import annotations

import torch
from nojit.kernels.arguments import check_choice, check_tensors
from nojit.kernels.block_sparse import BlockLayout, block_sparse_softmax
from nojit.kernels.block_sparse.checks import MODES, check_bias, check_mask, check_sparse
from nojit.kernels.compat.deepspeed.patterns import layout_of
from nojit.runtime.errors import ArgumentError
from torch import Tensor

__all__ = ["Softmax"]


class Softmax:
    """Softmax over the active columns of each row, with a bias and masks."""

    def __init__(self, layout: Tensor | BlockLayout, block: int, bench: bool = False) -> None:
        """Take the layout.

        Args:
            layout: [H, M / block, N / block] of zeros and ones, or without H for all heads alike; or one made of such.
            block: rows and columns of a block.
            bench: nothing is measured either way.

        Raises:
            ArgumentError: the layout is no tensor of integers, or the block size no int.
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
        """Write ``softmax(x * scale + rpe + masks)`` over x, and return it.

        Args:
            x: scores [Z, nnz, block, block]; differentiable, but then no leaf of the graph.
            scale: what x is multiplied with.
            rpe: a dense bias that broadcasts to [Z, H, M, N], in x's dtype; it has a gradient too.
            key_padding_mask: [Z, N], in x's dtype.
            attn_mask: [M, N], in x's dtype.
            key_padding_mask_mode: ``"add"`` adds the mask; ``"mul"`` hides the places where it is 0.
            attn_mask_mode: likewise.

        Returns:
            x, or under torch.compile a new tensor. A row with nothing to see gives 0.

        Raises:
            ArgumentError: x or a term is no tensor, or the scale no number.
            ValueError: a term's dtype is not x's, or a shape or mode does not fit.
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
                # compilers place results themselves, and warn of what writes in place and has a gradient
                inplace=not torch.compiler.is_compiling(),
            )
        except (ArgumentError, ValueError):
            # the operator has other names for these
            self._check_terms(x, rpe, attn_mask, attn_mask_mode)
            raise

    def _check_terms(self, x: Tensor, rpe: Tensor | None, attn_mask: Tensor | None, attn_mask_mode: str) -> None:
        """Check the bias and the attention mask by their names here."""
        layout = self.block_layout
        size = (x.shape[0], check_sparse(x, layout, bias=rpe), *layout.shape)
        check_bias(rpe, x, size, "rpe")
        check_mask("attn_mask", attn_mask, attn_mask_mode, x, size[2:], "M, N")
