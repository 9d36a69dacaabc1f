"""DeepSpeed's sparse self-attention layer for BERT: projections of the hidden states, then `SparseSelfAttention`."""

from __future__ import annotations

from typing import Protocol

import torch
from nojit.kernels.calls.arguments import check_rank, check_shape, check_tensors, refuse_type, refuse_value
from nojit.kernels.compat.deepspeed.sparse_self_attention import SparseSelfAttention
from nojit.kernels.compat.deepspeed.sparsity_config import FixedSparsityConfig, SparsityConfig
from torch import Tensor, nn

__all__ = ["BertConfig", "BertSparseSelfAttention"]


class BertConfig(Protocol):
    """The fields of a BERT model's config that `BertSparseSelfAttention` reads."""

    hidden_size: int
    num_attention_heads: int


class BertSparseSelfAttention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Layer that projects hidden states to queries, keys and values, and computes block-sparse attention."""

    def __init__(self, config: BertConfig, sparsity_config: SparsityConfig | None = None) -> None:
        """Create the projections and the sparse attention.

        Args:
            config: the model's config.
            sparsity_config: the sparsity pattern; `FixedSparsityConfig` with 4 heads if None.

        Raises:
            ArgumentError: the config lacks a field, or the pattern makes no layout.
            ValueError: the number of heads does not divide the hidden size.
        """
        super().__init__()
        if not (hasattr(config, "hidden_size") and hasattr(config, "num_attention_heads")):
            refuse_type("config", "hidden_size and num_attention_heads", type(config).__name__)
        if config.hidden_size % config.num_attention_heads != 0:
            raise ValueError(
                f"The hidden size ({config.hidden_size}) is not a multiple of the number of attention heads"
                f" ({config.num_attention_heads})"
            )
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.all_head_size = config.hidden_size
        self.query = nn.Linear(config.hidden_size, self.all_head_size)
        self.key = nn.Linear(config.hidden_size, self.all_head_size)
        self.value = nn.Linear(config.hidden_size, self.all_head_size)
        pattern = FixedSparsityConfig(num_heads=4) if sparsity_config is None else sparsity_config
        self.sparse_self_attention = SparseSelfAttention(pattern)

    def transpose_for_scores(self, x: Tensor) -> Tensor:
        """Split hidden states [B, S, hidden] into heads: [B, H, S, D]."""
        return x.unflatten(-1, (self.num_attention_heads, self.attention_head_size)).transpose(1, 2)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Compute attention; `attention_mask` is added to the scores.

        Args:
            hidden_states: [B, S, hidden].
            attention_mask: one value for each key, [B, S] or [B, 1, 1, S]: 0 for visible keys, large and negative for
                masked ones; or None.

        Returns:
            The attention output [B, S, hidden].

        Raises:
            ArgumentError: the states or the mask are not tensors.
            ValueError: a wrong shape, or a bool mask.
        """
        check_tensors(hidden_states=hidden_states)
        check_rank("hidden_states", hidden_states, "B, S, hidden")
        check_shape("hidden_states", hidden_states, (*hidden_states.shape[:2], self.all_head_size), "B, S, hidden")
        if attention_mask is not None:
            check_tensors(attention_mask=attention_mask)
            if attention_mask.dtype == torch.bool:
                refuse_value("attention_mask", "numbers to add to the scores", "a bool mask")
        query, key, value = (
            self.transpose_for_scores(layer(hidden_states)) for layer in (self.query, self.key, self.value)
        )
        context: Tensor = self.sparse_self_attention(query, key, value, key_padding_mask=attention_mask)
        return context.transpose(1, 2).flatten(2)
