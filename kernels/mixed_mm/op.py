"""Torch operator ``uint4x2_mixed_mm``, and its gradient by the operand that is not packed."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.bmm import mm
from nojit.kernels.calls.arguments import check_apart, check_int, check_result, check_tensors, ranges_meet, refuse_value
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define, dense
from nojit.kernels.calls.torch_state import autocasts, differentiates, is_plain, lowered, written
from nojit.kernels.mixed_mm.checks import Operands, check_operands
from nojit.kernels.mixed_mm.launch import prepare
from nojit.kernels.mixed_mm.reference import unpack
from nojit.kernels.products.checks import check_out
from torch import Tensor

__all__ = ["uint4x2_mixed_mm"]

_MEMO: Final = new_memo(operands=5, limit=1024, in_place=(), under_autocast=True)
_NAMES: Final = ("a", "b", "scales", "zeros")


def uint4x2_mixed_mm(
    a: Tensor,
    b: Tensor,
    *,
    scales: Tensor | None = None,
    zeros: Tensor | None = None,
    group_size: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply a matrix by packed 4-bit weights: ``a @ w``, rounded once.

    Each byte of b holds two weights of a column: the low nibble is that of an even row of w, the high nibble that of
    the next row. A nibble q is the weight ``q - 8``, with scales ``(q - 8) * scale``, and with zeros as well ``(q -
    zero) * scale``, in the dtype of a.

    Args:
        a: [M, K], any strides; fp16 or bf16, and K even. Autocast casts it, the scales and the zeros, unless `out` is
            given.
        b: [K / 2, N], any strides: uint8, or bytes in int32 or int64 whose upper bits are ignored.
        scales: [ceil(K / group_size), N], of the dtype of a; None for unscaled weights.
        zeros: the zero point of each quantization group, of the shape and dtype of scales; 8 if None.
        group_size: the number of rows of w that share a scale, even; None for all rows.
        out: where to write the result, any strides; it must not require a gradient or overlap an operand.

    Returns:
        [M, N] of the dtype of a, contiguous, or `out`. Sums are fp32. Differentiable in a.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or size, or scales or zeros that require a gradient.
    """
    if not torch.compiler.is_dynamo_compiling() and not autocasts():
        known: Tensor | None = _MEMO(a, b, scales, zeros, out, library.CURRENT.source, group_size)
        if known is not None:
            return known
    if autocasts() and out is None:
        a, scales, zeros = _lowered(a, scales, zeros)
    operands = (a, b, scales, zeros)
    check_tensors(a=a, b=b)
    optional = {"scales": scales, "zeros": zeros}
    check_tensors(**{name: value for name, value in optional.items() if value is not None})
    if out is not None:
        check_result(out)
    if group_size is not None:
        check_int("group_size", group_size)
    if is_plain(*operands, out):
        return _run(operands, group_size, out)
    check_operands(operands, group_size)
    return _traced(operands, group_size, out)


def _lowered(a: Tensor, *groups: Tensor | None) -> tuple[Any, ...]:
    """Cast the operands to autocast's dtype, which has 16 bits, the only size that 4-bit weights support."""
    return lowered(a), *(lowered(value) for value in groups)


def _traced(operands: Operands, group_size: int | None, out: Tensor | None) -> Tensor:
    """Run the operator through torch's dispatcher.

    `group_size`: number of rows of a weight that share a scale.
    """
    for name, value in zip(_NAMES[2:], operands[2:], strict=True):
        if differentiates(value):
            refuse_value(name, "a tensor that requires no grad: only a is differentiated", "one that does")
    if out is None:
        result: Tensor = _op(*operands, group_size)
        return result
    check_out(out, operands[0], operands[1])
    if differentiates(operands[0], out):
        refuse_value("out", "operands and an out that require no grad", "one that does: use torch.no_grad()")
    _into_op(*operands, group_size, out)
    return written(out)


def _run(operands: Operands, group_size: int | None, out: Tensor | None) -> Tensor:
    """Replay a cached call; if there is none, validate the call, run it and cache it.

    `operands`: a, packed weights, and the scales and zero points of quantization groups; `group_size`: number of
    rows of a weight that share a scale.
    """
    known: Tensor | None = _MEMO(*operands, out, library.CURRENT.source, group_size)
    if known is not None:
        return known

    def make(own: list[Any], target: Tensor | None, writer: RecipeWriter) -> Tensor:
        a, b, scales, zeros = own
        given = (a, b, scales, zeros)
        check_operands(given, group_size)
        if target is not None:
            check_out(target, a, b)
            _check_apart(given, target)
        return prepare(given, target, group_size)(given, target, writer)

    return made_and_remembered(_MEMO, operands, out, (group_size,), make)


def _check_apart(operands: Operands, out: Tensor) -> None:
    """Require that `out` overlaps no operand; operands of another dtype must not lie in the gaps between its elements either."""
    for name, value in zip(_NAMES, operands, strict=True):
        if value is None:
            continue
        if value.dtype == out.dtype:
            check_apart("out", out, name, value)
        elif ranges_meet(out, value):
            refuse_value("out", f"memory that does not overlap {name}", "an overlap")


def _run_new(a: Tensor, b: Tensor, scales: Tensor | None, zeros: Tensor | None, group_size: int | None) -> Tensor:
    return _run((a, b, scales, zeros), group_size, None)


def _run_into(
    a: Tensor, b: Tensor, scales: Tensor | None, zeros: Tensor | None, group_size: int | None, out: Tensor
) -> None:
    _run((a, b, scales, zeros), group_size, out)


def _allocate(a: Tensor, b: Tensor, *_: object) -> Tensor:
    """Return an empty tensor with the result's shape and dtype, for torch's tracing."""
    return a.new_empty(a.shape[0], b.shape[1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    a, b, scales, zeros, ctx.group_size = inputs
    ctx.dtype = a.dtype
    ctx.save_for_backward(b, scales, zeros)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    b, scales, zeros = ctx.saved_tensors
    to_a = None
    if ctx.needs_input_grad[0]:
        to_a = mm(dense(grad), unpack(b, ctx.dtype, scales, zeros, ctx.group_size).mT)
    return to_a, None, None, None, None


_ARGUMENTS: Final = "Tensor a, Tensor b, Tensor? scales, Tensor? zeros, int? group_size"
_op = define(f"uint4x2_mixed_mm({_ARGUMENTS}) -> Tensor", _run_new, _allocate, backward=_backward, save=_save)
_into_op = define(f"uint4x2_mixed_mm_out({_ARGUMENTS}, Tensor(a!) out) -> ()", _run_into)
