"""Validation of the operands of flex decoding."""

# ruff: noqa: PLR0917 - the operator has as many operands

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.attention.checks import MAX_LEN, check_heads, check_rows
from nojit.kernels.calls.arguments import (
    check_dtype,
    check_like,
    check_rank,
    check_shape,
    check_strided,
    check_tensor,
    refuse_type,
    refuse_value,
)
from nojit.kernels.flex_decoding.mask_operands import MaskOperands
from torch import Tensor

__all__ = ["MOST_QUERIES", "Sizes", "check_mask", "check_operands"]

MOST_QUERIES: Final = 127


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a validated call."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    """Capacity of keys of each batch; a call with `kv_lens` may use fewer."""
    head_dim: int
    v_dim: int
    page_bits: int
    """log2 of the number of keys in a page; 0 without pages."""

    @property
    def group(self) -> int:
        """The number of query heads per key head."""
        return self.heads // max(self.kv_heads, 1)


def check_operands(
    query: Tensor, key: Tensor, value: Tensor, kv_lens: Tensor | None, page_table: Tensor | None, enable_gqa: bool
) -> Sizes:
    """Require operands with matching shapes, dtypes and devices that kernels support; return their sizes.

    `kv_lens`: number of keys of each batch, or None for all; `page_table`: index of each sequence's pages, or None if
    keys are not paged.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or stride.
    """
    check_tensor("query", query)
    check_dtype("query", query)
    check_like("key", key, "query", query)
    check_like("value", value, "query", query)
    check_rank("query", query, "B, H, M, D")
    first, rows = ("pages", "page size") if page_table is not None else ("B", "N")
    check_rank("key", key, f"{first}, Hkv, {rows}, D")
    check_rank("value", value, f"{first}, Hkv, {rows}, Dv")
    batch, heads, q_len, dim = query.shape
    lead, kv_heads, length, _ = key.shape
    check_shape("key", key, (lead, kv_heads, length, dim), f"{first}, Hkv, {rows}, D")
    check_shape("value", value, (lead, kv_heads, length, value.shape[3]), f"{first}, Hkv, {rows}, Dv")
    check_heads(heads, kv_heads, enable_gqa)
    if q_len > MOST_QUERIES:
        refuse_value("query", f"at most {MOST_QUERIES} queries (flex_attention takes more)", q_len)
    check_rows(query=query, key=key, value=value)
    page_bits = 0
    if page_table is None:
        if lead not in {1, batch}:
            refuse_value("key", f"a batch of 1 or of {batch} as query has", lead)
    else:
        page_bits = _check_table(page_table, query, batch, length)
        length = page_table.shape[1] << page_bits
    if length > MAX_LEN:
        refuse_value("key", f"room for at most {MAX_LEN} keys", length)
    if kv_lens is not None:
        _check_ints("kv_lens", kv_lens, query)
        check_shape("kv_lens", kv_lens, (batch,), "B")
    return Sizes(batch, heads, kv_heads, q_len, length, dim, value.shape[3], page_bits)


def _check_table(page_table: Tensor, query: Tensor, batch: int, page_size: int) -> int:
    """Require a page table int32 [batch, pages]; return log2 of the page size."""
    _check_ints("page_table", page_table, query)
    check_rank("page_table", page_table, "B, pages")
    check_shape("page_table", page_table, (batch, page_table.shape[1]), "B, pages")
    if page_size < 1 or page_size & (page_size - 1):
        refuse_value("key", "pages of a power of two of rows", page_size)
    return page_size.bit_length() - 1


def _check_ints(argument: str, value: Tensor, query: Tensor) -> None:
    check_strided(argument, value)
    check_dtype(argument, value, (torch.int32,))
    if value.device != query.device:
        refuse_type(argument, f"a tensor on {query.device} as query is", value.device)
    if value.dim() and value.shape[-1] > 1 and value.stride(-1) != 1:
        refuse_value(argument, "a last stride of 1 (try .contiguous())", value.stride(-1))


def check_mask(mask: MaskOperands, sizes: Sizes) -> None:
    """Require a mask for as many batches and heads as the operands have, or one for all of them.

    Raises:
        ValueError: other numbers of batches or heads.
    """
    if mask.spans is None:
        return
    for name, count, own in zip(("batches", "heads"), (sizes.batch, sizes.heads), mask.spans.shape[:2], strict=True):
        if own not in {1, count}:
            refuse_value("block_mask", f"a mask for 1 or {count} {name}", own)
