"""Torch operators of root mean square norms, with their gradients.

    rms_norm(x) = x * (mean(x**2) + eps) ** -0.5 * weight           over the last dimension

See Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467.
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_like_device,
    check_number,
    check_shape,
    check_tensors,
)
from nojit.kernels.calls.memos import RecipeWriter, new_memo
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import is_plain
from nojit.kernels.norm.checks import check_operands
from nojit.kernels.norm.launch import normalize, run_backward
from torch import Tensor

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_bwd"]

_EPS: Final = torch.finfo(torch.float32).eps
"""Torch's default eps for every dtype: that of fp32, since it computes in fp32."""
MOST_REMEMBERED: Final = 1024
_MEMO: Final = new_memo(operands=3, limit=MOST_REMEMBERED)


def rms_norm(input: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Divide each row by its root mean square, and multiply it by a weight.

    Args:
        input: [..., N], fp16, bf16 or fp32. Rows that are not contiguous or not evenly spaced are copied first.
        weight: [N], on the same device; None skips the product. If dtypes differ, both are converted to the wider one.
        eps: added to the mean of the squares; None means 2**-23, the eps of fp32, as in torch.

    Returns:
        [..., N], contiguous and of the input's dtype; computed in fp32 and rounded once. Differentiable once.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape.
    """
    if not torch.compiler.is_dynamo_compiling():
        known: Tensor | None = _MEMO(input, None, weight, library.CURRENT.source, eps)
        if known is not None:
            return known
    own = _EPS if eps is None else check_number("eps", eps)
    check_tensors(input=input, **({} if weight is None else {"weight": weight}))
    if weight is not None and _differ(input, weight):
        kind = torch.promote_types(input.dtype, weight.dtype)
        return rms_norm(input.to(kind), weight.to(kind), eps).to(input.dtype)
    if is_plain(input, weight):
        (result,) = _remember(input, None, weight, eps, own)
        return result
    check_operands(input, None, weight)
    traced: Tensor = _op(input, weight, own)
    return traced


def add_rms_norm(
    input: Tensor,  # noqa: A002 - torch's name
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Add a residual and normalize the sum in one pass: return ``rms_norm(input + residual)``, and the sum.

    Args:
        input: [..., N], fp16, bf16 or fp32. Rows that are not contiguous or not evenly spaced are copied first.
        residual: the tensor to add, of the input's shape and device. If its dtype or the weight's differs from the
            input's, torch computes the addition in a separate pass.
        weight: [N], on the same device; None skips the product.
        eps: added to the mean of the squares; None means 2**-23, the eps of fp32, as in torch.

    Returns:
        The norm, and the sum, which is rounded before it is normalized; both [..., N], contiguous and of the dtype of
        torch's sum. Differentiable once.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape.
    """
    if not torch.compiler.is_dynamo_compiling():
        known: tuple[Tensor, Tensor] | None = _MEMO(input, residual, weight, library.CURRENT.source, eps)
        if known is not None:
            return known
    own = _EPS if eps is None else check_number("eps", eps)
    check_tensors(input=input, residual=residual, **({} if weight is None else {"weight": weight}))
    if _differ(input, residual) or (weight is not None and _differ(input, weight)):
        check_shape("residual", residual, input.shape, "as input")
        check_like_device("residual", residual, "input", input)
        mixed = (input + residual).contiguous()
        return rms_norm(mixed, weight, eps), mixed
    if is_plain(input, residual, weight):
        result, total = _remember(input, residual, weight, eps, own)
        return result, total
    check_operands(input, residual, weight)
    traced: tuple[Tensor, Tensor] = _add_op(input, residual, weight, own)
    return traced


def _remember(
    input: Tensor,  # noqa: A002 - torch's name
    residual: Tensor | None,
    weight: Tensor | None,
    eps: float | None,
    own: float,
) -> tuple[Tensor, ...]:
    """Run a new call without torch's dispatcher, and cache its launch arguments for replays.

    `eps` is the caller's argument, `own` the number to use.
    """
    check_operands(input, residual, weight)
    writer = RecipeWriter(input, residual, weight)
    own_input, own_residual, own_weight = writer.operands
    assert own_input is not None  # noqa: S101 - the input is never None
    out, total = normalize(own_input, own_residual, own_weight, own, writer)
    results = (out,) if total is None else (out, total)
    _MEMO.remember(writer.recipe(*results), input, residual, weight, writer.source, eps)
    return results


def _differ(one: Tensor, other: Tensor) -> bool:
    """Return whether both are tensors of floats, of different dtypes."""
    return one.dtype != other.dtype and one.dtype in FLOATS and other.dtype in FLOATS


def _run(input: Tensor, weight: Tensor | None, eps: float) -> Tensor:  # noqa: A002 - torch's name
    check_operands(input, None, weight)
    return normalize(input, None, weight, eps)[0]


def _run_sum(
    input: Tensor,  # noqa: A002 - torch's name
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    check_operands(input, residual, weight)
    out, total = normalize(input, residual, weight, eps)
    assert total is not None  # noqa: S101 - there is a residual
    return out, total


def _fake(input: Tensor, *_: object) -> Tensor:  # noqa: A002 - torch's name
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def _fake_sum(input: Tensor, *_: object) -> tuple[Tensor, Tensor]:  # noqa: A002 - torch's name
    return _fake(input), _fake(input)


def _fake_backward(
    grad: Tensor, grad_total: Tensor | None, total: Tensor, weight: Tensor | None, eps: float, weighs: bool
) -> tuple[Tensor, Tensor]:
    del grad, grad_total, weight, eps
    return _fake(total), total.new_empty(total.shape[-1] if weighs else 0)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    input, weight, ctx.eps = inputs  # noqa: A001 - torch's name
    ctx.save_for_backward(input, weight)


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, weight, ctx.eps = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    input, weight = ctx.saved_tensors  # noqa: A001 - torch's name
    weighs = ctx.needs_input_grad[1]
    found, of_weight = rms_norm_bwd(grad, None, input, weight, ctx.eps, weighs)
    return found, of_weight if weighs else None, None


def _backward_sum(ctx: Any, grad: Tensor | None, grad_total: Tensor | None) -> tuple[Tensor | None, ...]:
    total, weight = ctx.saved_tensors
    if grad is None:
        return grad_total, grad_total, None, None
    weighs = ctx.needs_input_grad[2]
    found, of_weight = rms_norm_bwd(grad, grad_total, total, weight, ctx.eps, weighs)
    return found, found, of_weight if weighs else None, None


def _refuse_double_backward(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("rms_norm and add_rms_norm have no second derivative: do not pass create_graph=True")


_op = define("rms_norm(Tensor input, Tensor? weight, float eps) -> Tensor", _run, _fake, backward=_backward, save=_save)
_add_op = define(
    "add_rms_norm(Tensor input, Tensor residual, Tensor? weight, float eps) -> (Tensor, Tensor)",
    _run_sum,
    _fake_sum,
    backward=_backward_sum,
    save=_save_sum,
)
rms_norm_bwd = define(
    "rms_norm_bwd(Tensor grad, Tensor? grad_sum, Tensor sum, Tensor? weight, float eps, bool weighs) -> (Tensor, Tensor)",
    run_backward,
    _fake_backward,
    backward=_refuse_double_backward,
)
