"""Torch operator ``b2b_gemm``, ``f(alpha * a @ b) @ c`` in one launch, and its gradients."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.b2b_gemm.checks import check_operands
from nojit.kernels.b2b_gemm.functions import CustomActivation, apply, differentiate, name_of
from nojit.kernels.b2b_gemm.launch import Operands, Words, chosen, prepare
from nojit.kernels.bmm import mm
from nojit.kernels.calls.arguments import (
    check_apart,
    check_choice,
    check_number,
    check_result,
    check_tensors,
    refuse_value,
)
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define, dense
from nojit.kernels.calls.torch_state import autocasts, differentiates, is_plain, lowered, switch_of, written
from nojit.kernels.products.checks import check_out
from torch import Tensor

__all__ = ["b2b_gemm"]

_MEMO: Final = new_memo(operands=4, limit=1024, in_place=(), under_autocast=True)
_ORDERS: Final = ("left", "right", "auto")


def b2b_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    activation: str | CustomActivation = "none",
    alpha: float = 1.0,
    assoc: str = "left",
    out: Tensor | None = None,
) -> Tensor:
    """Multiply three matrices with an activation in between, without storing the intermediate product.

    The result is ``f(alpha * a @ b) @ c``, or ``a @ f(alpha * b @ c)`` if `assoc` is ``"right"``. The result of f is
    rounded once, to the operands' dtype.

    Args:
        a: [M, K], any strides; fp16, bf16 or fp32. Autocast casts all operands, unless `out` is given.
        b: [K, L], of the dtype and device of `a`.
        c: [L, N], of the dtype and device of `a`.
        activation: ``"none"``, ``"relu"``, ``"square"``, ``"gelu"``, ``"gelu_tanh"``, ``"silu"``, ``"sigmoid"`` or
            ``"tanh"``; or a `CustomActivation` that was built.
        alpha: factor of the first product, in fp32.
        assoc: which product is first: ``"left"``, a and b; ``"right"``, b and c; ``"auto"``, the one that loads less.
            ``"auto"`` excludes an activation, since the two results would differ.
        out: [M, N], where to write the result, any strides; it must not require a gradient or overlap an operand.

    Returns:
        [M, N], contiguous, or `out`. Sums are fp32. fp32 operands are multiplied in full precision unless torch's
        switch for matmuls allows TF32. Differentiable twice; gradients recompute the intermediate product.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or string.
    """
    name = activation.source if isinstance(activation, CustomActivation) else activation
    if not torch.compiler.is_dynamo_compiling() and not autocasts():
        known: Tensor | None = _MEMO(a, b, c, out, library.CURRENT.source, name, alpha, assoc, switch_of(a))
        if known is not None:
            return known
    words = _check_words(activation, alpha, assoc)
    operands = (a, b, c)
    if autocasts() and out is None:
        operands = (lowered(a), lowered(b), lowered(c))
    check_tensors(a=a, b=b, c=c)
    if out is not None:
        check_result(out)
    if is_plain(*operands, out):
        return _run(operands, words, alpha, out)
    check_operands(operands)
    if out is None:
        traced: Tensor = _op(*operands, words[0], words[1], chosen(operands, assoc))
        return traced
    check_out(out, operands[0], operands[2])
    if differentiates(*operands, out):
        refuse_value("out", "operands and an out that require no grad", "one that does: use torch.no_grad()")
    _into_op(*operands, *words, out)
    return written(out)


def _check_words(activation: object, alpha: object, assoc: object) -> Words:
    """Validate activation, alpha and association; return them as `Words`."""
    check_choice("assoc", assoc, _ORDERS)
    name = name_of(activation)
    if assoc == "auto" and name != "none":
        refuse_value("assoc", "'left' or 'right' with an activation, as their results differ", "'auto'")
    return name, check_number("alpha", alpha), str(assoc)


def _run(operands: Operands, words: Words, alpha: float, out: Tensor | None) -> Tensor:
    """Replay a cached call; if there is none, validate the call, run it and cache it.

    `alpha` is the caller's, before its conversion for `words`.

    `operands`: the matrices a [M, K], b [K, L] and c [L, N].
    """
    name, _, assoc = words
    facts = (name, alpha, assoc, switch_of(operands[0]))
    known: Tensor | None = _MEMO(*operands, out, library.CURRENT.source, *facts)
    if known is not None:
        return known

    def make(own: list[Any], target: Tensor | None, writer: RecipeWriter) -> Tensor:
        a, b, c = own
        given = (a, b, c)
        check_operands(given)
        if target is not None:
            check_out(target, a, c)
            for place, value in zip("abc", given, strict=True):
                check_apart("out", target, place, value)
        return prepare(given, target, words)(given, target, writer)

    return made_and_remembered(_MEMO, operands, out, facts, make)


def _run_new(a: Tensor, b: Tensor, c: Tensor, activation: str, alpha: float, assoc: str) -> Tensor:
    return _run((a, b, c), (activation, alpha, assoc), alpha, None)


def _run_into(a: Tensor, b: Tensor, c: Tensor, activation: str, alpha: float, assoc: str, out: Tensor) -> None:
    _run((a, b, c), (activation, alpha, assoc), alpha, out)


def _allocate(a: Tensor, b: Tensor, c: Tensor, *_: object) -> Tensor:
    """Return an empty tensor with the result's shape and dtype, for torch's tracing."""
    del b
    return a.new_empty(a.shape[0], c.shape[1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    a, b, c, ctx.activation, ctx.alpha, ctx.assoc = inputs
    ctx.save_for_backward(*(one if read else None for one, read in zip((a, b, c), _reads(ctx), strict=True)))


def _reads(ctx: Any) -> tuple[bool, bool, bool]:
    """Return for a, b and c whether the requested gradients depend on its values."""
    of_a, of_b, of_c, *_ = ctx.needs_input_grad
    if ctx.activation == "none":
        return of_b or of_c, of_a or of_c, of_a or of_b
    # the derivative of the activation needs the intermediate product, which is recomputed
    return (of_b or of_c, True, True) if ctx.assoc == "right" else (True, True, of_a or of_b)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    a, b, c = ctx.saved_tensors
    grad = dense(grad)
    wanted = ctx.needs_input_grad
    if ctx.assoc == "right":
        # a @ f(b @ c) is the transpose of f(c^T @ b^T) @ a^T
        is_transposed = [None if one is None else one.mT for one in (c, b, a)]
        to_c, to_b, to_a = _gradients(ctx, is_transposed, grad.mT, (wanted[2], wanted[1], wanted[0]))
        found = tuple(None if one is None else one.mT for one in (to_a, to_b, to_c))
    else:
        found = _gradients(ctx, [a, b, c], grad, wanted)
    return *found, None, None, None


def _gradients(ctx: Any, factors: Sequence[Any], grad: Tensor, wanted: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """Return the gradients by a, b and c of ``f(alpha * a @ b) @ c``.

    Args:
        ctx: torch's autograd context, with the activation, alpha, and the operands that need a gradient.
        factors: a, b and c; None for those that no gradient reads.
        grad: gradient by the result, [M, N].
        wanted: for a, b and c, whether its gradient is requested; the other gradients are None.
    """
    a, b, c = factors
    scaled = None
    if wanted[2] or ctx.activation != "none":
        scaled = mm(a, b) * ctx.alpha if ctx.alpha != 1.0 else mm(a, b)
    to_a = to_b = None
    if wanted[0] or wanted[1]:
        inner = mm(grad, c.mT)
        if scaled is not None:
            inner = differentiate(ctx.activation, inner, scaled)
        inner = inner * ctx.alpha if ctx.alpha != 1.0 else inner
        to_a = mm(inner, b.mT) if wanted[0] else None
        to_b = mm(a.mT, inner) if wanted[1] else None
    return to_a, to_b, mm(apply(ctx.activation, scaled).mT, grad) if wanted[2] else None


_ARGUMENTS: Final = "Tensor a, Tensor b, Tensor c, str activation, float alpha, str assoc"
_op = define(f"b2b_gemm({_ARGUMENTS}) -> Tensor", _run_new, _allocate, backward=_backward, save=_save)
_into_op = define(f"b2b_gemm_out({_ARGUMENTS}, Tensor(a!) out) -> ()", _run_into)
