"""Torch operator ``gated_mm``, a matrix product whose one half gates the other: the first layer of a gated feed-forward block.

If a gradient is required, a product and a pointwise operator compute the result: their gradients need the product.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import torch
from nojit.kernels import library
from nojit.kernels.bmm import mm
from nojit.kernels.calls.arguments import (
    check_apart,
    check_choice,
    check_result,
    check_tensors,
    refuse_value,
)
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import (
    autocasts,
    differentiates,
    is_plain,
    lowered,
    may_differentiate,
    switch_of,
    written,
)
from nojit.kernels.gated_mm.checks import check_operands, check_out
from nojit.kernels.gated_mm.launch import GATES, prepare
from nojit.kernels.pointwise.op import OPERATORS
from torch import Tensor

__all__ = ["gated_mm"]

_MEMO: Final = new_memo(operands=3, limit=1024, in_place=(), under_autocast=True)
_WORDS: Final = tuple(GATES)


def gated_mm(
    input: Tensor,  # noqa: A002 - torch's name
    mat2: Tensor,
    *,
    activation: str = "silu",
    out: Tensor | None = None,
) -> Tensor:
    """Multiply by two weights side by side, and gate: ``activation(gate) * up`` with ``gate, up = (input @ mat2).chunk(2, -1)``.

    This is the first layer of a gated feed-forward block (Shazeer 2020, https://arxiv.org/abs/2002.05202).

    Args:
        input: [M, K], any strides; fp16, bf16 or fp32. Autocast casts both operands, unless `out` is given.
        mat2: [K, 2 * N], of the same dtype and device: the columns of the gate, then those of the other factor.
        activation: ``"silu"`` as in `swiglu`, ``"gelu"`` as in `geglu`, or ``"relu"`` as in `reglu`.
        out: where to write the result, any strides; it must not require a gradient or overlap an operand.

    Returns:
        [M, N], contiguous, or `out`. Sums are fp32; both factors are rounded to the operands' dtype before the activation,
        as a separate product would be. Precision of fp32 operands as for `mm`. Differentiable twice.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or string, or an `out` that requires a gradient or overlaps an operand.
    """
    if not torch.compiler.is_dynamo_compiling() and not autocasts():
        known: Tensor | None = _MEMO(input, mat2, out, library.CURRENT.source, activation, switch_of(input))
        if known is not None:
            return known
    a, b = input, mat2
    if autocasts() and out is None:
        a, b = lowered(a), lowered(b)
    check_choice("activation", activation, _WORDS)
    check_tensors(input=a, mat2=b)
    if out is not None:
        check_result(out)
    if is_plain(a, b, out):
        return _run(a, b, activation, out)
    check_operands(a, b)
    if out is None:
        return _traced(a, b, activation)
    check_out(out, a, b)
    if differentiates(a, b, out):
        refuse_value("out", "operands and an out that require no grad", "one that does: use torch.no_grad()")
    _into_op(a, b, activation, out)
    return written(out)


def _traced(a: Tensor, b: Tensor, activation: str) -> Tensor:
    """Run a call through torch's dispatcher; if a gradient is required, by two operators."""
    if may_differentiate(a, b):
        return OPERATORS[GATES[activation]].call(mm(a, b).chunk(2, -1))
    traced: Tensor = _op(a, b, activation)
    return traced


def _run(a: Tensor, b: Tensor, activation: str, out: Tensor | None) -> Tensor:
    """Replay a cached call; if there is none, validate the call, run it and cache it."""
    words = (activation, switch_of(a))
    known: Tensor | None = _MEMO(a, b, out, library.CURRENT.source, *words)
    if known is not None:
        return known

    def make(own: list[Any], target: Tensor | None, writer: RecipeWriter) -> Tensor:
        own_a, own_b = own
        check_operands(own_a, own_b)
        if target is not None:
            check_out(target, own_a, own_b)
            for name, value in zip(("input", "mat2"), own, strict=True):
                check_apart("out", target, name, value)
        return prepare(own_a, own_b, target, activation)(own_a, own_b, target, writer)

    return made_and_remembered(_MEMO, (a, b), out, words, make)


def _run_new(a: Tensor, b: Tensor, activation: str) -> Tensor:
    check_choice("activation", activation, _WORDS)
    return _run(a, b, activation, None)


def _run_into(a: Tensor, b: Tensor, activation: str, out: Tensor) -> None:
    check_choice("activation", activation, _WORDS)
    _run(a, b, activation, out)


def _allocate(a: Tensor, b: Tensor, activation: str) -> Tensor:
    """Return an empty tensor with the result's shape and dtype, for torch's tracing."""
    del activation
    return a.new_empty(a.shape[0], b.shape[1] // 2)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del ctx, inputs, output


def _backward(ctx: Any, grad: Tensor) -> NoReturn:
    del ctx, grad
    raise NotImplementedError("expected operands of nojit::gated_mm that require no grad: call gated_mm")


_ARGUMENTS: Final = "Tensor a, Tensor b, str activation"
_op = define(f"gated_mm({_ARGUMENTS}) -> Tensor", _run_new, _allocate, backward=_backward, save=_save)
_into_op = define(f"gated_mm_out({_ARGUMENTS}, Tensor(a!) out) -> ()", _run_into)
