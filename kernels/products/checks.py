"""Validation of results that several dense products share."""

from __future__ import annotations

import torch
from nojit.kernels.calls.arguments import (
    check_shape,
    check_strided,
    check_unrepeated,
    refuse_type,
)
from torch import Tensor

__all__ = ["check_out", "check_out_dtype", "result_dtype"]


def check_out(out: Tensor, a: Tensor, b: Tensor, name: str = "a") -> None:
    """Require that `out` has the shape, dtype and device of ``a @ b``."""
    check_strided("out", out)
    if out.dtype != result_dtype(a.dtype):
        refuse_type("out", str(result_dtype(a.dtype)), out.dtype)
    if out.device != a.device:
        refuse_type("out", f"a tensor on {a.device} as {name} is", out.device)
    shape = (*a.shape[:-1], b.shape[-1])
    check_shape("out", out, shape, "B, M, N" if len(shape) > 2 else "M, N")
    check_unrepeated("out", out)


def check_out_dtype(out_dtype: torch.dtype, a: Tensor) -> None:
    """Require that `out_dtype` is the dtype that products of `a` have by default: int32 for int8, else that of `a`."""
    # a value of another type may not support comparison
    if not isinstance(out_dtype, torch.dtype) or out_dtype != result_dtype(a.dtype):
        refuse_type("out_dtype", f"None or {result_dtype(a.dtype)}, the only dtype of products of {a.dtype}", out_dtype)


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a product of operands of `dtype`: int32 for int8, otherwise `dtype` itself."""
    return torch.int32 if dtype == torch.int8 else dtype
