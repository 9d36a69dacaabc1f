"""Validation of the operands of ``mm_plus_mm``."""

from __future__ import annotations

from nojit.kernels.calls.arguments import check_counted, check_dtype, check_like, check_rank, check_shape, check_tensor
from nojit.kernels.mm_plus_mm.launch import Operands

__all__ = ["check_operands"]


def check_operands(operands: Operands) -> None:
    """Require two pairs of matrices, a [M, K] and b [K, N], c [M, L] and d [L, N].

    `operands`: the matrices a, b, c and d.
    """
    a, b, c, d = operands
    check_tensor("a", a)
    check_dtype("a", a)
    for name, value, dims in (("a", a, "M, K"), ("b", b, "K, N"), ("c", c, "M, L"), ("d", d, "L, N")):
        check_like(name, value, "a", a)
        check_rank(name, value, dims)
        check_counted(name, value)
    check_shape("b", b, (a.shape[1], b.shape[1]), "K, N")
    check_shape("c", c, (a.shape[0], c.shape[1]), "M, L")
    check_shape("d", d, (c.shape[1], b.shape[1]), "L, N")
