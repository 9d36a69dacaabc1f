"""The torch operator ``grouped_mm``, with its gradients.

Its gradients are grouped products, too: if rows are cut, that of `mat_b` cuts K, and the other way round.
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.arguments import check_result, check_tensors, refuse_value
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define, dense
from nojit.kernels.calls.torch_state import autocasts, differentiates, is_plain, lowered, switch_of, written
from nojit.kernels.grouped_mm.checks import check_apart_from, check_operands, check_out, shape_of
from nojit.kernels.grouped_mm.launch import Operands, prepare
from nojit.kernels.products.checks import check_out_dtype
from nojit.kernels.products.groups import cuts_depth
from torch import Tensor

__all__ = ["grouped_mm"]

_MEMO: Final = new_memo(operands=5, limit=1024, in_place=(), under_autocast=True)


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    offs: Tensor,
    *,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply the rows of each group by the group's own matrix, as `torch.nn.functional.grouped_mm` does.

    Group g has the rows from ``offs[g - 1]`` (0 for the first group) up to ``offs[g]``. If `mat_b` is a matrix, the
    groups are ranges of K instead, and the result has a matrix for each. No call waits for the device.

    Args:
        mat_a: [M, K], any strides; fp16, bf16 or fp32. Autocast casts all operands, unless `out` is given.
        mat_b: [groups, K, N], or [K, N] to cut K; any strides, of the same dtype and device.
        offs: [groups], int32, contiguous, on the same device: the end of each group, in rising order. Equal ends are
            empty groups. Ends past the last row (or past K) are taken as that.
        bias: [N] or [groups, N], of the operands' dtype, added to each row of a group; only where rows are cut.
        out_dtype: None, or the operands' dtype; other dtypes are refused, as in torch.
        out: where to write the result, any strides; it must not require a gradient or overlap an operand.

    Returns:
        [M, N], contiguous; or [groups, M, N] if K is cut; or `out`. Sums are fp32, rounded once. Rows past the last end
        are not written: they are undefined in a new tensor, as in torch. Differentiable twice; the gradient of such
        rows is 0.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or stride, or an `out` that requires a gradient or overlaps an operand.
    """
    if out_dtype is None and not torch.compiler.is_dynamo_compiling() and not autocasts():
        known: Tensor | None = _MEMO(mat_a, mat_b, offs, bias, out, library.CURRENT.source, False, switch_of(mat_a))
        if known is not None:
            return known
    if autocasts() and out is None:
        mat_a, mat_b, bias = lowered(mat_a), lowered(mat_b), lowered(bias)
    check_tensors(mat_a=mat_a, mat_b=mat_b, offs=offs)
    if bias is not None:
        check_tensors(bias=bias)
    if out is not None:
        check_result(out)
    if out_dtype is not None:
        check_out_dtype(out_dtype, mat_a)
    operands = Operands(mat_a, mat_b, offs, bias)
    if is_plain(*operands, out):
        return _run(*operands, False, out)
    _check(operands, out)
    if out is None:
        result: Tensor = _op(*operands, False)
        return result
    if differentiates(mat_a, mat_b, bias, out):
        refuse_value("out", "operands and an out that require no grad", "one that does: use torch.no_grad()")
    _into_op(*operands, out)
    return written(out)


def _run(
    mat_a: Tensor, mat_b: Tensor, offs: Tensor, bias: Tensor | None, zeroed: bool, out: Tensor | None = None
) -> Tensor:
    """Replay a cached call; if there is none, validate the call, run it and cache it.

    `zeroed`: whether rows past the last end are 0 in a new tensor.
    """
    operands, words = Operands(mat_a, mat_b, offs, bias), (zeroed, switch_of(mat_a))
    known: Tensor | None = _MEMO(*operands, out, library.CURRENT.source, *words)
    if known is not None:
        return known

    def make(own: list[Any], target: Tensor | None, writer: RecipeWriter) -> Tensor:
        given = Operands(*own)
        _check(given, target)
        if target is not None:
            check_apart_from(target, given.offs, mat_a=given.mat_a, mat_b=given.mat_b, bias=given.bias)
        return prepare(given, target, zeroed)(given, target, writer)

    return made_and_remembered(_MEMO, operands, out, words, make)


def _check(operands: Operands, out: Tensor | None) -> None:
    check_operands(*operands)
    if out is not None:
        check_out(out, *operands[:3])


def _run_into(mat_a: Tensor, mat_b: Tensor, offs: Tensor, bias: Tensor | None, out: Tensor) -> None:
    _run(mat_a, mat_b, offs, bias, False, out)


def _allocate(mat_a: Tensor, mat_b: Tensor, offs: Tensor, bias: Tensor | None, zeroed: bool) -> Tensor:
    """Return an empty tensor with the result's shape and dtype, for torch's tracing."""
    del bias, zeroed
    return mat_a.new_empty(shape_of(mat_a, mat_b, offs))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    mat_a, mat_b, offs, bias, _ = inputs
    ctx.bias_dims = 0 if bias is None else bias.dim()
    of_a, of_b, *_ = ctx.needs_input_grad
    ctx.cuts_depth = cuts_depth(mat_b)
    ctx.save_for_backward(mat_a if of_b else None, mat_b if of_a else None, offs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    mat_a, mat_b, offs = ctx.saved_tensors
    grad = dense(grad)
    to_a = to_b = to_bias = None
    if ctx.needs_input_grad[0]:
        to_a = _op(mat_b, grad.mT, offs, None, True).mT if ctx.cuts_depth else _op(grad, mat_b.mT, offs, None, True)
    if ctx.needs_input_grad[1]:
        to_b = _op(mat_a.mT, grad, offs, None, True)
    if ctx.needs_input_grad[3]:
        sums = _op(grad.new_ones(1, grad.shape[0]), grad, offs, None, True).squeeze(1)
        to_bias = sums if ctx.bias_dims > 1 else sums.sum(0)
    return to_a, to_b, None, to_bias, None


_ARGUMENTS: Final = "Tensor mat_a, Tensor mat_b, Tensor offs, Tensor? bias"
_op = define(f"grouped_mm({_ARGUMENTS}, bool zeroed) -> Tensor", _run, _allocate, backward=_backward, save=_save)
_into_op = define(f"grouped_mm_out({_ARGUMENTS}, Tensor(a!) out) -> ()", _run_into)
