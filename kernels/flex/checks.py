"""Validation of the operands of flex attention."""

from __future__ import annotations

from nojit.kernels.attention.checks import check_heads, check_rows
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_dtype,
    check_like,
    check_rank,
    check_shape,
    check_tensor,
    refuse_value,
)
from torch import Tensor

__all__ = ["check_operands"]


def check_operands(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    """Require query [B, H, M, D], key and value with matching shapes, dtypes and devices that kernels support.

    Raises:
        ArgumentError: a wrong dtype or device.
        ValueError: a wrong shape or stride.
    """
    check_tensor("query", query)
    check_dtype("query", query, FLOATS)
    check_like("key", key, "query", query)
    check_like("value", value, "query", query)
    check_rank("query", query, "B, H, M, D")
    check_rank("key", key, "B, Hkv, N, D")
    check_rank("value", value, "B, Hkv, N, Dv")
    batch, heads, _, dim = query.shape
    kv_batch, kv_heads, kv_len, _ = key.shape
    if kv_batch not in {1, batch}:
        refuse_value("key", f"{batch} batches as query has, or 1", kv_batch)
    check_shape("key", key, (kv_batch, kv_heads, kv_len, dim), "B, Hkv, N, D")
    check_shape("value", value, (kv_batch, kv_heads, kv_len, value.shape[3]), "B, Hkv, N, Dv")
    check_heads(heads, kv_heads, enable_gqa)
    check_rows(query=query, key=key, value=value)
