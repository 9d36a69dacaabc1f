"""Validation of the arguments of ``gated_mm``."""

from __future__ import annotations

from nojit.kernels.calls.arguments import (
    check_counted,
    check_dtype,
    check_like,
    check_rank,
    check_shape,
    check_strided,
    check_tensor,
    check_unrepeated,
    refuse_value,
)
from torch import Tensor

__all__ = ["check_operands", "check_out"]


def check_operands(a: Tensor, b: Tensor) -> None:
    """Require matrices a [M, K] and b [K, 2 * N], of one float dtype and device."""
    check_tensor("input", a)
    check_dtype("input", a)
    check_like("mat2", b, "input", a)
    check_rank("input", a, "M, K")
    check_rank("mat2", b, "K, 2 * N")
    check_counted("input", a)
    check_counted("mat2", b)
    if a.shape[1] != b.shape[0]:
        refuse_value("mat2", f"{a.shape[1]} rows, as many as input has columns", b.shape[0])
    if b.shape[1] % 2:
        refuse_value("mat2", "an even number of columns, those of the gate and as many more", b.shape[1])


def check_out(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Require that `out` has the result's shape, and the dtype and device of the operands."""
    check_strided("out", out)
    check_like("out", out, "input", a)
    check_shape("out", out, (a.shape[0], b.shape[1] // 2), "M, N")
    check_unrepeated("out", out)
