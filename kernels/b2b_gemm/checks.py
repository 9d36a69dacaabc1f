"""Validation of the operands of ``b2b_gemm``."""

from __future__ import annotations

from nojit.kernels.b2b_gemm.launch import Operands
from nojit.kernels.calls.arguments import check_counted, check_dtype, check_like, check_rank, check_shape, check_tensor

__all__ = ["check_operands"]


def check_operands(operands: Operands) -> None:
    """Require operands [M, K], [K, L], [L, N] of one dtype and device."""
    a, b, c = operands
    check_tensor("a", a)
    check_dtype("a", a)
    for name, value, dims in (("a", a, "M, K"), ("b", b, "K, L"), ("c", c, "L, N")):
        check_like(name, value, "a", a)
        check_rank(name, value, dims)
        check_counted(name, value)
    check_shape("b", b, (a.shape[1], b.shape[1]), "K, L")
    check_shape("c", c, (b.shape[1], c.shape[1]), "L, N")
