"""Validation of the arguments of ``mm``, ``bmm`` and ``baddbmm``, also used by other matrix products."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_counted,
    check_dtype,
    check_like,
    check_rank,
    check_shape,
    check_strided,
    check_tensor,
    refuse_type,
    refuse_value,
)
from torch import Tensor

__all__ = ["Names", "check_input", "check_operands", "check_out", "check_out_dtype", "result_dtype"]

DTYPES: Final = (*FLOATS, torch.int8)
Names = tuple[str, str]
"""Names of the left and the right operand in errors."""


def check_operands(a: Tensor, b: Tensor, names: Names, *, batched: bool) -> None:
    """Require matrices a [M, K] and b [K, N], or if `batched` [B, M, K] and [B, K, N], of one dtype and device."""
    left, right = names
    check_tensor(left, a)
    check_dtype(left, a, DTYPES)
    check_like(right, b, left, a)
    check_rank(left, a, "B, M, K" if batched else "M, K")
    check_rank(right, b, "B, K, N" if batched else "K, N")
    check_counted(left, a)
    check_counted(right, b)
    if batched and a.shape[0] != b.shape[0]:
        refuse_value(right, f"{a.shape[0]} matrices as {left} has", b.shape[0])
    if a.shape[-1] != b.shape[-2]:
        refuse_value(right, f"{a.shape[-1]} rows, as many as {left} has columns", b.shape[-2])


def check_input(value: Tensor, a: Tensor, b: Tensor, name: str) -> None:
    """Require that `value`, added to the product, has the product's dtype and broadcasts to its shape."""
    check_like("input", value, name, a)
    if a.dtype not in FLOATS:
        refuse_type(name, " or ".join(map(str, FLOATS)), a.dtype)
    shape = (a.shape[0], a.shape[1], b.shape[2])
    known = value.shape
    fits = len(known) <= len(shape) and all(
        mine in {1, full} for mine, full in zip(reversed(known), reversed(shape), strict=False)
    )
    if not fits:
        refuse_value("input", f"a shape that broadcasts to {shape} [B, M, N]", tuple(known))


def check_out(out: Tensor, a: Tensor, b: Tensor, name: str = "a") -> None:
    """Require that `out` has the shape, dtype and device of ``a @ b``."""
    check_strided("out", out)
    if out.dtype != result_dtype(a.dtype):
        refuse_type("out", str(result_dtype(a.dtype)), out.dtype)
    if out.device != a.device:
        refuse_type("out", f"a tensor on {a.device} as {name} is", out.device)
    shape = (*a.shape[:-1], b.shape[-1])
    check_shape("out", out, shape, "B, M, N" if len(shape) > 2 else "M, N")
    if any(size > 1 and stride == 0 for size, stride in zip(out.shape, out.stride(), strict=True)):
        refuse_value("out", "a tensor without repeated elements", f"strides {out.stride()}")


def check_out_dtype(out_dtype: torch.dtype, a: Tensor) -> None:
    """Require that `out_dtype` is the dtype that products of `a` have by default: int32 for int8, else that of `a`."""
    # a value of another type may not support comparison
    if not isinstance(out_dtype, torch.dtype) or out_dtype != result_dtype(a.dtype):
        refuse_type("out_dtype", f"None or {result_dtype(a.dtype)}, the only dtype of products of {a.dtype}", out_dtype)


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a product of operands of `dtype`: int32 for int8, otherwise `dtype` itself."""
    return torch.int32 if dtype == torch.int8 else dtype
