"""Validation of the arguments of ``grouped_mm``."""

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_apart,
    check_counted,
    check_dtype,
    check_like,
    check_like_device,
    check_rank,
    check_shape,
    check_strided,
    check_tensor,
    ranges_meet,
    refuse_type,
    refuse_value,
)
from torch import Tensor

__all__ = ["check_apart_from", "check_offs", "check_operands", "check_out", "cuts_depth", "shape_of"]

MATRIX: Final = 2


def cuts_depth(mat_b: Tensor) -> bool:
    """Return whether the groups are ranges of K, as they are if `mat_b` is a matrix, and not ranges of rows."""
    return bool(mat_b.dim() == MATRIX)


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


def check_offs(offs: Tensor, mat_a: Tensor, mat_b: Tensor) -> None:
    """Require the ends of groups, as many as there are matrices."""
    check_strided("offs", offs)
    if offs.dtype != torch.int32:
        refuse_type("offs", str(torch.int32), offs.dtype)
    check_like_device("offs", offs, "mat_a", mat_a)
    check_rank("offs", offs, "groups")
    check_counted("offs", offs)
    if not offs.is_contiguous():
        refuse_value("offs", "contiguous elements: call offs.contiguous()", f"strides {offs.stride()}")
    if not cuts_depth(mat_b) and offs.shape[0] != mat_b.shape[0]:
        refuse_value("offs", f"{mat_b.shape[0]} elements, as many as mat_b has matrices", offs.shape[0])


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
    if any(size > 1 and stride == 0 for size, stride in zip(out.shape, out.stride(), strict=True)):
        refuse_value("out", "a tensor without repeated elements", f"strides {out.stride()}")


def check_apart_from(out: Tensor, offs: Tensor, **operands: Tensor | None) -> None:
    """Require that `out` overlaps neither the ends of groups nor another operand."""
    for argument, operand in operands.items():
        if operand is not None:
            check_apart("out", out, argument, operand)
    if ranges_meet(out, offs):
        refuse_value("out", "memory of its own, as the kernel reads offs while it writes out", "an overlap with offs")
