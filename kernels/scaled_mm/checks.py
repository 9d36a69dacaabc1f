"""Validation of the arguments of ``scaled_mm``."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_apart,
    check_counted,
    check_dtype,
    check_like_device,
    check_rank,
    check_shape,
    check_tensor,
    ranges_meet,
    refuse_type,
    refuse_value,
)
from nojit.kernels.calls.torch_state import differentiates
from torch import Tensor

__all__ = [
    "FORMATS",
    "check_apart_from",
    "check_bias",
    "check_no_gradient",
    "check_operands",
    "check_order",
    "check_out",
    "check_out_dtype",
]

FORMATS: Final = (torch.float8_e4m3fn, torch.float8_e5m2)
UNIT: Final = 16
"""K and N of a product must be multiples of this."""
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


def check_order(**factors: Tensor) -> None:
    """Require that K is contiguous in both factors, the left and the right one, and that K and N are multiples of 16.

    `factors`: by argument name, for the error. The right one may be a batch of matrices.
    """
    (left, a), (right, b) = factors.items()
    for argument, value in factors.items():
        if value.shape[-1] % UNIT:
            refuse_value(argument, f"a multiple of {UNIT} columns", value.shape[-1])
    if a.numel() and a.stride(-1) != 1:
        refuse_value(left, "contiguous rows (row-major)", f"strides {a.stride()}")
    if b.numel() and b.stride(-2) != 1:
        refuse_value(right, "contiguous columns (column-major), as those of weight.mT", f"strides {b.stride()}")


def check_bias(bias: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype) -> None:
    """Require a bias [N] of the result's dtype, which must not be fp32."""
    if out_dtype == torch.float32:
        refuse_type("bias", f"None where out_dtype is {torch.float32}", "a tensor")
    if bias.dtype != out_dtype:
        refuse_type("bias", f"{out_dtype} as the result has", bias.dtype)
    check_like_device("bias", bias, "a", a)
    shape = (b.shape[1],) if bias.dim() != MATRIX else (1, b.shape[1])
    check_shape("bias", bias, shape, "N" if bias.dim() != MATRIX else "1, N")


def check_out(out: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, first: str = "a") -> None:
    """Require that `out` has the result's shape and dtype. `first`: the argument's name of `a`, for the error."""
    if out.dtype != out_dtype:
        refuse_type("out", f"{out_dtype} as out_dtype says", out.dtype)
    check_like_device("out", out, first, a)
    check_shape("out", out, (a.shape[0], b.shape[-1]), "M, N")
    if any(size > 1 and stride == 0 for size, stride in zip(out.shape, out.stride(), strict=True)):
        refuse_value("out", "a tensor without repeated elements", f"strides {out.stride()}")


def check_apart_from(out: Tensor, **operands: Tensor | None) -> None:
    """Require that `out` overlaps no operand.

    Operands of another dtype must not even lie in the gaps between its elements.
    """
    for argument, operand in operands.items():
        if operand is None:
            continue
        if operand.dtype == out.dtype:
            check_apart("out", out, argument, operand)
        elif ranges_meet(out, operand):
            refuse_value(
                "out",
                f"memory of its own, as the kernel reads {argument} while it writes out",
                f"an overlap with {argument}",
            )


def check_no_gradient(**values: Tensor | None) -> None:
    """Require tensors that need no gradient: fp8 products have no derivative, like torch's."""
    for argument, value in values.items():
        if differentiates(value):
            refuse_value(
                argument, "a tensor that requires no grad, as fp8 products have no derivative", "one that does"
            )
