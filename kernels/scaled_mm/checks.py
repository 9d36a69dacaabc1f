"""Validation of the arguments of ``scaled_mm``."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_counted,
    check_dtype,
    check_like_device,
    check_rank,
    check_shape,
    check_tensor,
    refuse_type,
    refuse_value,
)
from nojit.kernels.products.fp8 import check_order
from torch import Tensor

__all__ = [
    "FORMATS",
    "check_bias",
    "check_operands",
    "check_out_dtype",
]

FORMATS: Final = (torch.float8_e4m3fn, torch.float8_e5m2)
MATRIX: Final = 2


def check_out_dtype(out_dtype: object) -> None:
    """Require one of the dtypes that results can have: fp16, bf16 or fp32."""
    # a value of another type may not support comparison
    if not isinstance(out_dtype, torch.dtype) or out_dtype not in FLOATS:
        refuse_type("out_dtype", " or ".join(map(str, FLOATS)), out_dtype)


def check_operands(a: Tensor, b: Tensor) -> None:
    """Require two fp8 matrices a [M, K], row-major, and b [K, N], column-major."""
    check_tensor("a", a)
    check_tensor("b", b)
    check_dtype("a", a, FORMATS)
    check_dtype("b", b, FORMATS)
    if a.dtype == b.dtype == torch.float8_e5m2:
        refuse_type("b", f"{torch.float8_e4m3fn} where a is {a.dtype}", b.dtype)
    check_like_device("b", b, "a", a)
    check_rank("a", a, "M, K")
    check_rank("b", b, "K, N")
    check_counted("a", a)
    check_counted("b", b)
    if a.shape[1] != b.shape[0]:
        refuse_value("b", f"{a.shape[1]} rows, as many as a has columns", b.shape[0])
    check_order(a=a, b=b)


def check_bias(bias: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype) -> None:
    """Require a bias [N] of the result's dtype, which must not be fp32."""
    if out_dtype == torch.float32:
        refuse_type("bias", f"None where out_dtype is {torch.float32}", "a tensor")
    if bias.dtype != out_dtype:
        refuse_type("bias", f"{out_dtype} as the result has", bias.dtype)
    check_like_device("bias", bias, "a", a)
    shape = (b.shape[1],) if bias.dim() != MATRIX else (1, b.shape[1])
    check_shape("bias", bias, shape, "N" if bias.dim() != MATRIX else "1, N")
