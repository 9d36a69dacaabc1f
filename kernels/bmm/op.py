"""Torch operators ``mm``, ``bmm`` and ``baddbmm``, with their gradients.

    y = activation(alpha * a @ b + beta * input)

All three call one operator of the namespace ``nojit``, whose gradients are products, too. If a gradient is required and
there is an activation, the product runs without it, and torch's own activation follows.
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.bmm.checks import Names, check_input, check_operands
from nojit.kernels.bmm.launch import prepare
from nojit.kernels.calls.arguments import (
    check_apart,
    check_choice,
    check_number,
    check_result,
    check_tensors,
    ranges_meet,
    refuse_type,
    refuse_value,
)
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define, dense
from nojit.kernels.calls.torch_state import (
    autocasts,
    differentiates,
    is_plain,
    lowered,
    may_differentiate,
    switch_of,
    written,
)
from nojit.kernels.products.activations import ACTIVATIONS, FUNCTIONS
from nojit.kernels.products.checks import check_out, check_out_dtype, result_dtype
from nojit.kernels.products.matrices import BATCHED
from torch import Tensor

__all__ = ["baddbmm", "bmm", "mm"]

# the output may be the tensor that is added
_MEMO: Final = new_memo(operands=4, limit=1024, in_place=(0,), under_autocast=True)
_WORDS: Final = tuple(ACTIVATIONS)
_OPERATOR: Final = "operator"
"""Name of a call through torch's dispatcher."""
_NAMES: Final[dict[str, Names]] = {
    "mm": ("input", "mat2"),
    "bmm": ("input", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    _OPERATOR: ("a", "b"),
}


def mm(
    input: Tensor,  # noqa: A002 - torch's name
    mat2: Tensor,
    *,
    activation: str = "none",
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply two matrices: ``activation(input @ mat2)``.

    Args:
        input: [M, K], any strides; fp16, bf16, fp32 or int8. Autocast casts both operands, unless `out` is given.
        mat2: [K, N], of the same dtype and device.
        activation: ``"none"``, ``"relu"``, ``"square"``, ``"gelu"``, ``"gelu_tanh"``, ``"silu"``, ``"sigmoid"`` or
            ``"tanh"``; only ``"none"`` for integers.
        out_dtype: None, or the dtype that the result has by default; others are refused, torch's fp32 results for fp16 and
            bf16 included.
        out: where to write the result, any strides; it must not require a gradient or overlap an operand.

    Returns:
        [M, N], contiguous, of the operands' dtype (int8: int32); or `out`. Sums are fp32, or int32. fp32 operands are
        multiplied in full precision unless torch's switch for matmuls allows TF32. Differentiable twice.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or string, or an `out` that requires a gradient or overlaps an operand.
    """
    return _product("mm", None, input, mat2, 0.0, 1.0, activation, out_dtype, out)


def bmm(
    input: Tensor,  # noqa: A002 - torch's name
    mat2: Tensor,
    *,
    activation: str = "none",
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply two batches of matrices: ``activation(input @ mat2)`` for each pair.

    To share an operand among all products, expand it: its batch stride is then 0.

    Args:
        input: [B, M, K], any strides; fp16, bf16, fp32 or int8. Autocast casts both operands, unless `out` is given.
        mat2: [B, K, N], of the same dtype and device.
        activation: the same choices as in `mm`.
        out_dtype: None, or the dtype that the result has by default; other dtypes are refused.
        out: where to write the result, any strides; it must not require a gradient or overlap an operand.

    Returns:
        [B, M, N], contiguous, of the operands' dtype (int8: int32); or `out`. Precision and gradients as for `mm`.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or string, or an `out` that requires a gradient or overlaps an operand.
    """
    return _product("bmm", None, input, mat2, 0.0, 1.0, activation, out_dtype, out)


def baddbmm(
    input: Tensor,  # noqa: A002 - torch's name
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: str = "none",
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply two batches of matrices and add a tensor: ``activation(beta * input + alpha * batch1 @ batch2)``.

    Args:
        input: the tensor to add; it broadcasts to [B, M, N] and has the operands' dtype. If `beta` is 0, it is not
            read.
        batch1: [B, M, K], any strides; fp16, bf16 or fp32. Autocast casts all operands, unless `out` is given.
        batch2: [B, K, N], of the same dtype and device.
        beta: factor of `input`, in fp32.
        alpha: factor of the product, in fp32.
        activation: the same choices as in `mm`.
        out_dtype: None, or the dtype that the result has by default; other dtypes are refused.
        out: where to write the result, any strides; it must not require a gradient. It may be `input` itself, but must
            not overlap another operand.

    Returns:
        [B, M, N], contiguous, of the operands' dtype, rounded once; or `out`.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or string, or an `out` that requires a gradient or overlaps an operand.
    """
    return _product("baddbmm", input, batch1, batch2, beta, alpha, activation, out_dtype, out)


def _product(
    name: str,
    source: Tensor | None,
    a: Tensor,
    b: Tensor,
    beta: float,
    alpha: float,
    activation: str,
    out_dtype: torch.dtype | None,
    out: Tensor | None,
) -> Tensor:
    """Run a product: directly if the call needs no autograd or tracing, otherwise through torch's dispatcher.

    Args:
        name: the public function: ``"mm"``, ``"bmm"`` or ``"baddbmm"``.
        source: the tensor to add, or None.
        a: left operand.
        b: right operand.
        beta: factor of `source`.
        alpha: factor of the product.
        activation: name of the activation.
        out_dtype: None or the default dtype.
        out: where to write the result; None for a new tensor.
    """
    if out_dtype is None and not torch.compiler.is_dynamo_compiling() and not autocasts():
        known: Tensor | None = _MEMO(
            source, a, b, out, library.CURRENT.source, name, beta, alpha, activation, switch_of(a)
        )  # fmt: skip
        if known is not None:
            return known
    if autocasts() and out is None:
        source, a, b = lowered(source), lowered(a), lowered(b)
    check_choice("activation", activation, _WORDS)
    _check_types(name, source, a, b, out)
    if out_dtype is not None:
        check_out_dtype(out_dtype, a)
    scales = check_number("beta", beta), check_number("alpha", alpha)
    if is_plain(source, a, b, out):
        # a cached call has the numbers as the caller gave them: 1 and 1.0 differ
        return _run(name, source, a, b, beta, alpha, activation, out)
    names = _NAMES[name]
    check_operands(a, b, names, batched=name != "mm")
    if source is not None:
        check_input(source, a, b, names[0])
    if out is not None:
        check_out(out, a, b, names[0])
    if out is None:
        return _traced(source, a, b, *scales, activation)
    if differentiates(source, a, b, out):
        refuse_value("out", "operands and an out that require no grad", "one that does: use torch.no_grad()")
    _into_op(source, a, b, *scales, activation, out)
    return written(out)


def _check_types(name: str, source: Tensor | None, a: Tensor, b: Tensor, out: Tensor | None) -> None:
    """Require tensors of the rank that the function `name` takes; all other checks run once for each cached call."""
    if name == "baddbmm":
        check_tensors(input=source)
    names = _NAMES[name]
    check_tensors(**dict(zip(names, (a, b), strict=True)))
    if out is not None:
        check_result(out)
    if a.dim() != (BATCHED - 1 if name == "mm" else BATCHED):
        check_operands(a, b, names, batched=name != "mm")


def _traced(source: Tensor | None, a: Tensor, b: Tensor, beta: float, alpha: float, activation: str) -> Tensor:
    """Run a product through torch's dispatcher; if a gradient is required, apply the activation with a torch function."""
    apart = may_differentiate(source, a, b)
    result: Tensor = _op(source, a, b, beta, alpha, "none" if apart else activation)
    return FUNCTIONS[activation](result) if apart else result


def _run(
    name: str,
    source: Tensor | None,
    a: Tensor,
    b: Tensor,
    beta: float,
    alpha: float,
    activation: str,
    out: Tensor | None = None,
) -> Tensor:
    """Replay a cached call of the function `name`; if there is none, validate the call, run it and cache it."""
    words = (name, beta, alpha, activation, switch_of(a))
    known: Tensor | None = _MEMO(source, a, b, out, library.CURRENT.source, *words)
    if known is not None:
        return known
    names = _NAMES[name]

    def make(own: list[Any], target: Tensor | None, writer: RecipeWriter) -> Tensor:
        own_source, own_a, own_b = own
        factors = check_number("beta", beta), check_number("alpha", alpha)
        number, added, has_epilogue = _finish(own_source, own_a, own_b, *factors, activation, names)
        _check(added, own_a, own_b, target, has_epilogue, names)
        if target is not None:
            _check_apart(added, own_a, own_b, target, names)
        call = prepare(own_a, own_b, added, target, has_epilogue)
        return call(own_a, own_b, added, target, (number, factors[1], factors[0]), writer)

    return made_and_remembered(_MEMO, (source, a, b), out, words, make)


def _finish(
    source: Tensor | None, a: Tensor, b: Tensor, beta: float, alpha: float, activation: str, names: Names
) -> tuple[int, Tensor | None, bool]:
    """Validate activation, alpha, beta and the tensor to add.

    Returns:
        The activation's number; the tensor to add, or None; whether the product has an epilogue.
    """
    if beta == 0.0 and source is not None:
        check_input(source, a, b, names[0])
        source = None
    number = ACTIVATIONS[activation]
    return number, source, source is not None or alpha != 1.0 or number != 0


def _check(source: Tensor | None, a: Tensor, b: Tensor, out: Tensor | None, has_epilogue: bool, names: Names) -> None:
    check_operands(a, b, names, batched=a.dim() == BATCHED)
    if source is not None:
        check_input(source, a, b, names[0])
    if has_epilogue and a.dtype == torch.int8:
        refuse_type("activation", "'none' for int8", "another")
    if out is not None:
        check_out(out, a, b, names[0])


def _check_apart(source: Tensor | None, a: Tensor, b: Tensor, out: Tensor, names: Names) -> None:
    """Require that `out` overlaps no operand; it may have exactly the elements of `source`, the tensor that is added."""
    for name, value in zip(names, (a, b), strict=True):
        if value.dtype == out.dtype:
            check_apart("out", out, name, value)
        elif ranges_meet(out, value):
            refuse_value("out", "memory that overlaps no int8 operand", "an overlap")
    if source is None:
        return
    same = source.data_ptr() == out.data_ptr() and source.shape == out.shape and source.stride() == out.stride()
    if not same:
        check_apart("out", out, "input", source)


def _run_into(
    source: Tensor | None, a: Tensor, b: Tensor, beta: float, alpha: float, activation: str, out: Tensor
) -> None:
    _run(_OPERATOR, source, a, b, beta, alpha, activation, out)


def _run_new(source: Tensor | None, a: Tensor, b: Tensor, beta: float, alpha: float, activation: str) -> Tensor:
    return _run(_OPERATOR, source, a, b, beta, alpha, activation)


def _allocate(source: Tensor | None, a: Tensor, b: Tensor, *_: object) -> Tensor:
    """Return an empty tensor with the result's shape and dtype, for torch's tracing."""
    del source
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=result_dtype(a.dtype))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    source, a, b, ctx.beta, ctx.alpha, ctx.activation = inputs
    ctx.source_shape = None if source is None else source.shape
    _, of_a, of_b, *_ = ctx.needs_input_grad
    ctx.save_for_backward(a if of_b else None, b if of_a else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    if ctx.activation != "none":
        raise NotImplementedError("expected no activation where gradients are wanted: call mm, bmm or baddbmm")
    a, b = ctx.saved_tensors
    to_source = to_a = to_b = None
    if ctx.needs_input_grad[0]:
        to_source = (grad * ctx.beta if ctx.beta != 1.0 else grad).sum_to_size(ctx.source_shape)
    grad = dense(grad)
    if ctx.needs_input_grad[1]:
        to_a = _op(None, grad, b.mT, 0.0, ctx.alpha, "none")
    if ctx.needs_input_grad[2]:
        to_b = _op(None, a.mT, grad, 0.0, ctx.alpha, "none")
    return to_source, to_a, to_b, None, None, None


_ARGUMENTS: Final = "Tensor? input, Tensor a, Tensor b, float beta, float alpha, str activation"
_op = define(f"bmm({_ARGUMENTS}) -> Tensor", _run_new, _allocate, backward=_backward, save=_save)
_into_op = define(f"bmm_out({_ARGUMENTS}, Tensor(a!) out) -> ()", _run_into)
