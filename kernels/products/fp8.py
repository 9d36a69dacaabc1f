"""Validation and scales that several products of fp8 matrices share."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    check_apart,
    check_like_device,
    check_shape,
    check_unrepeated,
    ranges_meet,
    refuse_type,
    refuse_value,
)
from nojit.kernels.calls.torch_state import differentiates
from nojit.kernels.products.agreed_sizes import SCALE_BLOCK
from torch import Tensor

__all__ = ["check_apart_from", "check_no_gradient", "check_order", "check_out", "spread"]

UNIT: Final = 16
"""K and N of a product must be multiples of this."""


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


def check_out(out: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, first: str = "a") -> None:
    """Require that `out` has the result's shape and dtype. `first`: the argument's name of `a`, for the error."""
    if out.dtype != out_dtype:
        refuse_type("out", f"{out_dtype} as out_dtype says", out.dtype)
    check_like_device("out", out, first, a)
    check_shape("out", out, (a.shape[0], b.shape[-1]), "M, N")
    check_unrepeated("out", out)


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


def spread(scale: Tensor, of: Tensor) -> Tensor:
    """Return `scale` as one number for each element of the matrix `of`, or unchanged if it is one number for all."""
    if scale.numel() == 1:
        return scale.reshape(())
    for dim in range(2):
        size, full = scale.shape[dim], of.shape[dim]
        if size not in {1, full}:
            scale = scale.repeat_interleave(SCALE_BLOCK, dim).narrow(dim, 0, full)
    return scale
