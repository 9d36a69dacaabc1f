"""DeepSpeed's sparse self-attention: the constructor takes a sparsity pattern, each call queries, keys and values."""

# ruff: noqa: PLR0917 - DeepSpeed's signatures

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from nojit.kernels.block_sparse import BlockLayout
from nojit.kernels.block_sparse.checks import MODES
from nojit.kernels.calls.arguments import check_choice, check_int, check_rank, check_tensors, refuse_type, refuse_value
from nojit.kernels.compat.deepspeed.matmul import MatMul
from nojit.kernels.compat.deepspeed.softmax import Softmax
from nojit.kernels.compat.deepspeed.sparsity_config import SparsityConfig
from torch import Tensor, distributed, nn

__all__ = ["SparseSelfAttention"]


@dataclass(frozen=True, slots=True)
class _Operators:
    """The three operators of attention over the layout for one sequence length."""

    scores: MatMul
    softmax: Softmax
    values: MatMul


class SparseSelfAttention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Module that computes ``softmax(q @ k^T / sqrt(D) + masks) @ v`` over the blocks of a sparsity pattern.

    The buffer ``master_layout`` has the layout of the longest sequence; shorter sequences use its upper left part. A
    layout may be random, so at the first use after torch.distributed was initialized, all ranks take the layout of rank
    0. This is a collective call: every rank of the default group must take part. The module then makes its operators
    again.
    """

    def __init__(
        self,
        sparsity_config: SparsityConfig | None = None,
        key_padding_mask_mode: str = "add",
        attn_mask_mode: str = "mul",
        max_seq_length: int = 2048,
    ) -> None:
        """Make the layout of the longest sequence.

        Args:
            sparsity_config: the sparsity pattern.
            key_padding_mask_mode: ``"add"`` adds the mask to the scores; ``"mul"`` masks the positions where it is 0.
            attn_mask_mode: ``"add"`` or ``"mul"`` in the same way, for the attention mask.
            max_seq_length: the longest sequence length, in positions.

        Raises:
            NotImplementedError: no pattern was given.
            ArgumentError: the pattern makes no layout, or the length is not an int.
            ValueError: the pattern does not fit the length, or an unknown mode.
        """
        super().__init__()
        self.sparsity_config = SparsityConfig(num_heads=4) if sparsity_config is None else sparsity_config
        if not hasattr(self.sparsity_config, "make_layout"):
            refuse_type("sparsity_config", "a SparsityConfig", type(sparsity_config).__name__)
        check_int("max_seq_length", max_seq_length)
        check_choice("key_padding_mask_mode", key_padding_mask_mode, MODES)
        check_choice("attn_mask_mode", attn_mask_mode, MODES)
        self.register_buffer("master_layout", self.sparsity_config.make_layout(max_seq_length))
        self.key_padding_mask_mode = key_padding_mask_mode
        self.attn_mask_mode = attn_mask_mode
        self._need_layout_synchronization = True
        self._operators: dict[int, _Operators] = {}
        self.register_load_state_dict_post_hook(_forget_operators)

    def get_layout(self, length: int) -> Tensor:
        """Return the layout for sequences of `length` positions: [H, blocks, blocks] of zeros and ones, on the CPU.

        Raises:
            ArgumentError: `length` is not an int.
            ValueError: the block size does not divide `length`, or `length` is above `max_seq_length`.
        """
        check_int("length", length)
        self._synchronize()
        block = self.sparsity_config.block
        if length % block != 0:
            raise ValueError(f"Sequence Length, {length}, needs to be dividable by Block size {block}!")
        num_blocks = length // block
        if num_blocks > self.master_layout.shape[-1]:
            longest = self.master_layout.shape[-1] * block
            raise ValueError(f"Sequence Length, {length}, needs to be at most max_seq_length {longest}!")
        return self.master_layout[..., :num_blocks, :num_blocks].cpu()

    def _synchronize(self) -> None:
        """Take the layout of rank 0 once torch.distributed is initialized, and drop the operators of the previous layout."""
        if self._need_layout_synchronization and distributed.is_available() and distributed.is_initialized():
            distributed.broadcast(self.master_layout, src=0)
            self._need_layout_synchronization = False
            self._operators.clear()

    def _operators_for(self, length: int) -> _Operators:
        """Return the operators for sequences of `length` positions; the first call creates them."""
        self._synchronize()
        found = self._operators.get(length)
        if found is None:
            block = self.sparsity_config.block
            layout = BlockLayout(self.get_layout(length), block)
            found = self._operators[length] = _Operators(
                scores=MatMul(layout, block, "sdd", trans_b=True),
                softmax=Softmax(layout, block),
                values=MatMul(layout, block, "dsd"),
            )
        return found

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rpe: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
    ) -> Tensor:
        """Compute attention over the pattern's blocks.

        Args:
            query: [B, H, S, D], fp16, bf16 or fp32.
            key: [B, H, S, D]; or transposed, [B, H, D, S], if S differs from D.
            value: [B, H, S, D].
            rpe: a bias that broadcasts to [B, H, S, S], in the dtype of the scores.
            key_padding_mask: [B, S]; dimensions of size 1 in between are allowed.
            attn_mask: [S, S]; further dimensions of size 1 are allowed.

        Returns:
            The output [B, H, S, D]. The output row of a query that sees no key is 0.

        Raises:
            NotImplementedError: the shapes are not those of self-attention.
            ArgumentError: an operand, bias or mask is not a tensor.
            ValueError: a sequence length that the block size does not divide or above `max_seq_length`, a head dimension D
                of 0, or an invalid mask, for example a bool mask in the mode ``"add"``.
        """
        check_tensors(query=query, key=key, value=value)
        check_rank("query", query, "B, H, S, D")
        length, head_dim = query.shape[2:]
        if not head_dim:
            refuse_value("query", "at least 1 element in a row [B, H, S, D]", head_dim)
        check_rank("key", key, "B, H, S, D")
        if key.shape[2] != length:
            key = key.transpose(2, 3)
        if query.shape != key.shape or key.shape != value.shape:
            raise NotImplementedError("only self-attention is supported for now")
        _check_mask("key_padding_mask", key_padding_mask, self.key_padding_mask_mode)
        _check_mask("attn_mask", attn_mask, self.attn_mask_mode)
        operators = self._operators_for(length)
        weights = operators.scores(query, key)
        if key_padding_mask is not None:
            if key_padding_mask.dim() < 2:
                refuse_value(
                    "key_padding_mask", "at least 2 dimensions [B, S]", f"shape {tuple(key_padding_mask.shape)}"
                )
            key_padding_mask = key_padding_mask.to(weights.dtype).flatten(1)
        if attn_mask is not None:
            attn_mask = attn_mask.to(weights.dtype).squeeze()
        weights = operators.softmax(
            weights,
            scale=head_dim**-0.5,
            rpe=rpe,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            key_padding_mask_mode=self.key_padding_mask_mode,
            attn_mask_mode=self.attn_mask_mode,
        )
        return operators.values(weights, value)


def _check_mask(name: str, mask: Tensor | None, mode: str) -> None:
    """Require a mask that suits its mode: a bool mask, True for visible positions, needs ``"mul"``."""
    if mask is None:
        return
    check_tensors(**{name: mask})
    if mask.dtype == torch.bool and mode != "mul":
        refuse_value(name, f"numbers to add, as {name}_mode is {mode!r}, or the mode 'mul'", "a bool mask")


def _forget_operators(module: SparseSelfAttention, _: Any) -> None:
    """Drop a module's operators after a state dict with another layout was loaded."""
    module._operators.clear()  # noqa: SLF001 - a hook of the class
