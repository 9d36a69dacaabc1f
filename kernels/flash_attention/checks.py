"""Validation of attention operands."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels import library
from nojit.kernels.attention.checks import FP8, MAX_LEN, WIDEST, check_rows
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_choice,
    check_dtype,
    check_like,
    check_rank,
    check_shape,
    check_tensor,
    refuse_value,
)
from torch import Tensor

__all__ = ["ALIGNMENTS", "check_operands"]

ALIGNMENTS: Final = ("top_left", "bottom_right")
_DTYPES: Final = (*FLOATS, FP8)


def _fit(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether operands are valid: a fast check, before `check_operands` looks for the error to raise."""
    try:
        strided = q.layout is k.layout is v.layout is torch.strided
        batch, heads, q_len, dim = q.shape
        k_batch, kv_heads, kv_len, k_dim = k.shape
        v_batch, v_heads, v_len, v_dim = v.shape
    # nested tensors have no shape
    except (AttributeError, ValueError, RuntimeError):
        return False
    dtype, device = q.dtype, q.device
    widest = WIDEST.get(dtype, 0)
    return (
        strided
        and (batch, batch, kv_heads, kv_len, dim) == (k_batch, v_batch, v_heads, v_len, k_dim)
        and 1 <= dim <= widest
        and 1 <= v_dim <= widest
        and q_len <= MAX_LEN
        and kv_len <= MAX_LEN
        and kv_heads > 0
        and heads % kv_heads == 0
        and q.stride(3) == k.stride(3) == v.stride(3) == 1
        and k.dtype is dtype
        and v.dtype is dtype
        and k.device == device
        and v.device == device
        and device.type in library.devices()
    )


def check_operands(q: Tensor, k: Tensor, v: Tensor, causal_alignment: str) -> None:
    """Require q [B, H, M, D], k [B, Hkv, N, D] and v [B, Hkv, N, Dv] of matching shapes, dtypes and devices.

    Raises:
        ArgumentError: a wrong dtype or device.
        ValueError: a wrong shape, stride or string.
    """
    if _fit(q, k, v) and type(causal_alignment) is str and causal_alignment in ALIGNMENTS:
        return
    check_tensor("q", q)
    check_dtype("q", q, _DTYPES)
    check_like("k", k, "q", q)
    check_like("v", v, "q", q)
    check_choice("causal_alignment", causal_alignment, ALIGNMENTS)
    check_rank("q", q, "B, H, M, D")
    check_rank("k", k, "B, Hkv, N, D")
    check_rank("v", v, "B, Hkv, N, Dv")
    batch, heads, _, dim = q.shape
    kv_heads = k.shape[1]
    check_shape("k", k, (batch, kv_heads, k.shape[2], dim), "B, Hkv, N, D")
    check_shape("v", v, (batch, kv_heads, k.shape[2], v.shape[3]), "B, Hkv, N, Dv")
    if heads and (not kv_heads or heads % kv_heads):
        refuse_value("k", f"a number of heads that divides the {heads} of q", kv_heads)
    check_rows(q=q, k=k, v=v)
