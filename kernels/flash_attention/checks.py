"""Validation of attention operands."""

# ruff: noqa: PLR0917 - the operator has as many operands

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels import library
from nojit.kernels.arguments import (
    FLOATS,
    check_choice,
    check_dtype,
    check_like,
    check_rank,
    check_shape,
    check_tensor,
    refuse_type,
    refuse_value,
)
from torch import Tensor

__all__ = ["ALIGNMENTS", "FP8", "Window", "check_differentiable", "check_gradients", "check_operands", "window_sides"]

ALIGNMENTS: Final = ("top_left", "bottom_right")
FP8: Final = torch.float8_e4m3fn
"""The 8-bit dtype of the forward pass; the output is then bf16."""
DTYPES: Final = (*FLOATS, FP8)
MAX_HEAD_DIM: Final = 256
MAX_HEAD_DIM_FP32: Final = 128
"""The largest head dimension for fp32: wider tiles do not fit into registers."""
_WIDEST: Final = dict.fromkeys(DTYPES, MAX_HEAD_DIM) | {torch.float32: MAX_HEAD_DIM_FP32}
MAX_LEN: Final = 2**30 - 512
"""The largest sequence length: sums of positions of queries, keys and tiles must fit 32 bits."""

Window = int | tuple[int | None, int | None] | None
"""Number of keys that a query sees to the left and to the right of its position; None is unlimited, one int is both."""


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
    widest = _WIDEST.get(dtype, 0)
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
    check_dtype("q", q, DTYPES)
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


def check_rows(**operands: Tensor) -> None:
    """Require operands whose rows are contiguous, not too long for a tile, and not too many.

    Raises:
        ValueError: an operand's rows are too long, too many or not contiguous.
    """
    for argument, operand in operands.items():
        length, dim = operand.shape[2:]
        widest = _WIDEST[operand.dtype]
        if not 1 <= dim <= widest:
            refuse_value(argument, f"1 to {widest} elements in a row of {operand.dtype}", dim)
        if length > MAX_LEN:
            refuse_value(argument, f"at most {MAX_LEN} rows", length)
        if operand.stride(3) != 1 and dim != 1:
            refuse_value(argument, "a last stride of 1 (try .contiguous())", operand.stride(3))


def check_differentiable(q: Tensor) -> None:
    """Require a dtype of `q` that has gradients, so not e4m3.

    Raises:
        ArgumentError: the dtype has no gradients.
    """
    if q.dtype not in FLOATS:
        refuse_type("q", f"{' or '.join(map(str, FLOATS))} where gradients are required", q.dtype)


def check_gradients(q: Tensor, v: Tensor, dout: Tensor, dlse: Tensor | None, out: Tensor, lse: Tensor) -> None:
    """Require the output and log-sums of the forward pass, and gradients of the same shapes.

    `dlse`: gradient by the log-sums, or None for zero.

    Raises:
        ArgumentError: a wrong dtype or device.
        ValueError: a wrong shape.
    """
    check_differentiable(q)
    shape = (*q.shape[:3], v.shape[3])
    for name, value in (("out", out), ("dout", dout)):
        check_like(name, value, "q", q)
        check_shape(name, value, shape, "B, H, M, Dv")
    for name, sums in (("lse", lse), ("dlse", dlse)):
        if sums is not None:
            check_dtype(name, sums, (torch.float32,))
            check_shape(name, sums, shape[:3], "B, H, M")


def window_sides(window: Window) -> tuple[int | None, int | None]:
    """Return (left, right): how many keys a query sees to the left and to the right; None is unlimited.

    Raises:
        ArgumentError: not an int, and not a tuple of two ints or None.
        ValueError: an int below 0.
    """
    if window is None:
        return None, None
    sides: tuple[int | None, ...] = window if isinstance(window, tuple) else (window, window)
    if len(sides) != 2 or not all(map(_is_side, sides)):
        refuse_type("window", "an int, or a tuple of two ints or None", repr(window))
    if any(side is not None and side < 0 for side in sides):
        refuse_value("window", "distances of at least 0", repr(window))
    left, right = sides
    return left, right


def _is_side(side: object) -> bool:
    return side is None or (isinstance(side, int) and not isinstance(side, bool))
