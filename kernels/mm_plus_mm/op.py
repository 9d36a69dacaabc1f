"""Torch operator ``mm_plus_mm``, ``a @ b + c @ d`` rounded once, and its gradients."""

from __future__ import annotations

from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.bmm import mm
from nojit.kernels.calls.arguments import (
    check_apart,
    check_result,
    check_tensors,
    refuse_value,
)
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define, dense
from nojit.kernels.calls.torch_state import autocasts, differentiates, is_plain, lowered, switch_of, written
from nojit.kernels.mm_plus_mm.checks import check_operands
from nojit.kernels.mm_plus_mm.launch import Operands, prepare
from nojit.kernels.products.checks import check_out
from torch import Tensor

__all__ = ["mm_plus_mm"]

_MEMO: Final = new_memo(operands=5, limit=1024, in_place=(), under_autocast=True)


def mm_plus_mm(a: Tensor, b: Tensor, c: Tensor, d: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply two pairs of matrices and add the products: ``a @ b + c @ d``, rounded once.

    Args:
        a: [M, K], any strides; fp16, bf16 or fp32. Autocast casts all operands, unless `out` is given.
        b: [K, N], of the dtype and device of `a`.
        c: [M, L], of the dtype and device of `a`; L may differ from K.
        d: [L, N], of the dtype and device of `a`.
        out: where to write the result, any strides; it must not require a gradient or overlap an operand.

    Returns:
        [M, N], contiguous, or `out`. Sums are fp32. fp32 operands are multiplied in full precision unless torch's
        switch for matmuls allows TF32. Differentiable twice.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape, or an `out` that requires a gradient or overlaps an operand.
    """
    if not torch.compiler.is_dynamo_compiling() and not autocasts():
        known: Tensor | None = _MEMO(a, b, c, d, out, library.CURRENT.source, switch_of(a))
        if known is not None:
            return known
    operands = (a, b, c, d)
    if autocasts() and out is None:
        a, b, c, d = operands = (lowered(a), lowered(b), lowered(c), lowered(d))
    check_tensors(a=a, b=b, c=c, d=d)
    if out is not None:
        check_result(out)
    if is_plain(*operands, out):
        return _run(operands, out)
    check_operands(operands)
    if out is None:
        traced: Tensor = _op(*operands)
        return traced
    check_out(out, operands[0], operands[1])
    if differentiates(*operands, out):
        refuse_value("out", "operands and an out that require no grad", "one that does: use torch.no_grad()")
    _into_op(*operands, out)
    return written(out)


def _run(operands: Operands, out: Tensor | None) -> Tensor:
    """Replay a cached call; if there is none, validate the call, run it and cache it.

    `operands`: the matrices a, b, c and d.
    """
    word = switch_of(operands[0])
    known: Tensor | None = _MEMO(*operands, out, library.CURRENT.source, word)
    if known is not None:
        return known

    def make(own: list[Any], target: Tensor | None, writer: RecipeWriter) -> Tensor:
        a, b, c, d = own
        given = (a, b, c, d)
        check_operands(given)
        if target is not None:
            check_out(target, a, b)
            for name, value in zip("abcd", given, strict=True):
                check_apart("out", target, name, value)
        return prepare(given, target)(given, target, writer)

    return made_and_remembered(_MEMO, operands, out, (word,), make)


def _run_new(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return _run((a, b, c, d), None)


def _run_into(a: Tensor, b: Tensor, c: Tensor, d: Tensor, out: Tensor) -> None:
    _run((a, b, c, d), out)


def _allocate(a: Tensor, b: Tensor, *_: object) -> Tensor:
    """Return an empty tensor with the result's shape and dtype, for torch's tracing."""
    return a.new_empty(a.shape[0], b.shape[1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    a, b, c, d = inputs
    of_a, of_b, of_c, of_d, *_ = ctx.needs_input_grad
    ctx.save_for_backward(a if of_b else None, b if of_a else None, c if of_d else None, d if of_c else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b, c, d = ctx.saved_tensors
    grad = dense(grad)
    wanted = ctx.needs_input_grad
    return (
        mm(grad, b.mT) if wanted[0] else None,
        mm(a.mT, grad) if wanted[1] else None,
        mm(grad, d.mT) if wanted[2] else None,
        mm(c.mT, grad) if wanted[3] else None,
    )


_ARGUMENTS: Final = "Tensor a, Tensor b, Tensor c, Tensor d"
_op = define(f"mm_plus_mm({_ARGUMENTS}) -> Tensor", _run_new, _allocate, backward=_backward, save=_save)
_into_op = define(f"mm_plus_mm_out({_ARGUMENTS}, Tensor(a!) out) -> ()", _run_into)
