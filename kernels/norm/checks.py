"""Validation of the operands of norms."""

from __future__ import annotations

from nojit.kernels.calls.arguments import check_dtype, check_like, check_shape, check_tensor, refuse_value
from torch import Tensor

__all__ = ["check_operands"]


def check_operands(input: Tensor, residual: Tensor | None, weight: Tensor | None) -> None:  # noqa: A002 - torch's name
    """Require an input [..., N], a residual of its shape or None, and a weight [N] or None, of one dtype and device."""
    check_tensor("input", input)
    check_dtype("input", input)
    if not input.dim():
        refuse_value("input", "at least one dimension", "none")
    if residual is not None:
        check_like("residual", residual, "input", input)
        check_shape("residual", residual, input.shape, "as input")
    if weight is not None:
        check_like("weight", weight, "input", input)
        check_shape("weight", weight, input.shape[-1:], "N")
