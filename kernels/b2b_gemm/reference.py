"""``b2b_gemm`` in plain torch, computed in the dtype of the operands (fp64 works as well)."""

from __future__ import annotations

from nojit.kernels.b2b_gemm.functions import CustomActivation, apply, name_of
from torch import Tensor

__all__ = ["b2b_gemm"]


def b2b_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    activation: str | CustomActivation = "none",
    alpha: float = 1.0,
    assoc: str = "left",
) -> Tensor:
    """Return ``f(alpha * a @ b) @ c``, or, if `assoc` is ``"right"``, ``a @ f(alpha * b @ c)``."""
    name = name_of(activation)
    if assoc == "right":
        return a @ apply(name, alpha * (b @ c))
    return apply(name, alpha * (a @ b)) @ c
