"""Validation of the arguments of ``grouped_mm``."""

from __future__ import annotations

from nojit.kernels.calls.arguments import (
    FLOATS,
    check_apart,
    check_counted,
    check_dtype,
    check_like,
    check_shape,
    check_tensor,
    check_unrepeated,
    ranges_meet,
    refuse_value,
)
from nojit.kernels.products.groups import MATRIX, check_offs, cuts_depth
from torch import Tensor

__all__ = ["check_apart_from", "check_operands", "check_out", "shape_of"]


def shape_of(mat_a: Tensor, mat_b: Tensor, offs: Tensor) -> tuple[int, ...]:
    """Return the shape of the result: [M, N], or [groups, M, N] if K is cut."""
    rows, cols = mat_a.shape[0], mat_b.shape[-1]
    return (offs.shape[0], rows, cols) if cuts_depth(mat_b) else (rows, cols)


def check_operands(mat_a: Tensor, mat_b: Tensor, offs: Tensor, bias: Tensor | None) -> None:
    """Require operands, ends and bias of one device whose sizes fit together."""
    check_tensor("mat_a", mat_a)
    check_dtype("mat_a", mat_a, FLOATS)
    check_like("mat_b", mat_b, "mat_a", mat_a)
    if mat_a.dim() != MATRIX:
        refuse_value("mat_a", "2 dimensions [M, K] (bmm takes batches)", f"shape {tuple(mat_a.shape)}")
    if mat_b.dim() not in {MATRIX, MATRIX + 1}:
        refuse_value("mat_b", "3 dimensions [groups, K, N], or 2 [K, N] to cut K", f"shape {tuple(mat_b.shape)}")
    check_counted("mat_a", mat_a)
    check_counted("mat_b", mat_b)
    if mat_a.shape[1] != mat_b.shape[-2]:
        refuse_value("mat_b", f"{mat_a.shape[1]} rows, as many as mat_a has columns", mat_b.shape[-2])
    check_offs(offs, mat_a, mat_b)
    if bias is not None:
        _check_bias(bias, mat_a, mat_b, offs)


def _check_bias(bias: Tensor, mat_a: Tensor, mat_b: Tensor, offs: Tensor) -> None:
    if cuts_depth(mat_b):
        refuse_value("bias", "None where K is cut, as mat_b has 2 dimensions", "a tensor")
    check_like("bias", bias, "mat_a", mat_a)
    cols = mat_b.shape[2]
    shape = (cols,) if bias.dim() == 1 else (offs.shape[0], cols)
    check_shape("bias", bias, shape, "N" if bias.dim() == 1 else "groups, N")


def check_out(out: Tensor, mat_a: Tensor, mat_b: Tensor, offs: Tensor) -> None:
    """Require that `out` has the result's shape and dtype, and no repeated elements."""
    check_like("out", out, "mat_a", mat_a)
    shape = shape_of(mat_a, mat_b, offs)
    check_shape("out", out, shape, "M, N" if len(shape) == MATRIX else "groups, M, N")
    check_unrepeated("out", out)


def check_apart_from(out: Tensor, offs: Tensor, **operands: Tensor | None) -> None:
    """Require that `out` overlaps neither the ends of groups nor another operand."""
    for argument, operand in operands.items():
        if operand is not None:
            check_apart("out", out, argument, operand)
    if ranges_meet(out, offs):
        refuse_value("out", "memory of its own, as the kernel reads offs while it writes out", "an overlap with offs")
