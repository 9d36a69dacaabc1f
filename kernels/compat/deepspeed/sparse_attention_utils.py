"""DeepSpeed's helpers to put sparse attention into BERT-like models."""

# ruff: noqa: PLR0917 - DeepSpeed's signatures

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from nojit.kernels.compat.deepspeed.bert_sparse_self_attention import BertConfig, BertSparseSelfAttention
from nojit.kernels.compat.deepspeed.sparsity_config import SparsityConfig
from torch import Tensor
from torch.nn import functional

__all__ = ["SparseAttentionUtils"]


class SparseAttentionUtils:
    """Static functions that replace attention layers, and pad batches; those for tokenizers and printing are missing."""

    @staticmethod
    def replace_self_attention_layer_with_sparse_self_attention_layer(
        config: BertConfig, layers: Iterable[Any], sparsity_config: SparsityConfig | None = None
    ) -> Iterable[Any]:
        """Replace ``attention.self`` of each layer with sparse attention that keeps the layer's projections.

        Args:
            config: the model's config.
            layers: the model's encoder layers, modified in place.
            sparsity_config: the sparsity pattern; `FixedSparsityConfig` with 4 heads if None.

        Returns:
            `layers`.
        """
        pattern = SparsityConfig(num_heads=4) if sparsity_config is None else sparsity_config
        for layer in layers:
            sparse, dense = BertSparseSelfAttention(config, pattern), layer.attention.self
            sparse.query, sparse.key, sparse.value = dense.query, dense.key, dense.value
            layer.attention.self = sparse
        return layers

    @staticmethod
    def pad_to_block_size(
        block_size: int,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        pad_token_id: int,
        model_embeddings: Callable[[Tensor], Tensor] | None,
    ) -> tuple[int, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Pad the sequences of a batch to a multiple of the block size; arguments that are None stay None.

        Args:
            block_size: the pattern's block size, in positions.
            input_ids: [B, S], padded with `pad_token_id`.
            attention_mask: [B, S], padded with 0.
            token_type_ids: [B, S], padded with 0.
            position_ids: [B, S], padded with `pad_token_id`.
            inputs_embeds: [B, S, hidden], padded with the embedding of `pad_token_id`.
            pad_token_id: the model's padding token.
            model_embeddings: maps ids to embeddings; required with `inputs_embeds`.

        Returns:
            The number of added positions, then the five tensors in the order of the parameters.

        Raises:
            ValueError: `input_ids` and `inputs_embeds` are both missing, or `inputs_embeds` comes without
                `model_embeddings`.
        """
        batch = input_ids if input_ids is not None else inputs_embeds
        if batch is None:
            raise ValueError("input_ids: expected them or inputs_embeds, got neither")
        size, length = batch.shape[:2]
        count = -length % block_size
        if inputs_embeds is not None and count:
            if model_embeddings is None:
                raise ValueError("model_embeddings: expected a function to pad inputs_embeds with, got None")
            ids = torch.full((size, count), pad_token_id, dtype=torch.long, device=inputs_embeds.device)
            inputs_embeds = torch.cat([inputs_embeds, model_embeddings(ids)], dim=1)
        return (
            count,
            _pad(input_ids, count, pad_token_id),
            _pad(attention_mask, count, 0),
            _pad(token_type_ids, count, 0),
            _pad(position_ids, count, pad_token_id),
            inputs_embeds,
        )

    @staticmethod
    def unpad_sequence_output(pad_len: int, sequence_output: Tensor) -> Tensor:
        """Remove the last `pad_len` positions, which `pad_to_block_size` added, from an output [B, S, hidden]."""
        return sequence_output[:, :-pad_len] if pad_len else sequence_output


def _pad(value: Tensor | None, count: int, filler: int) -> Tensor | None:
    return value if value is None or not count else functional.pad(value, (0, count), value=filler)
