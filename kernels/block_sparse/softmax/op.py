"""``block_sparse_softmax`` and its gradient: validation, and conversion of masks.

The torch operators of the namespace ``nojit`` take a layout as look-up tables and sizes, so that torch can trace them;
the functions of this module take the `BlockLayout` itself.
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.block_sparse.checks import check_bias, check_mask, check_sparse, check_writable
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.softmax.launch import (
    allocate_gradients,
    launch_forward,
    softmax_backward,
    softmax_forward,
)
from nojit.kernels.calls.arguments import check_flags, check_like, check_number
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import autocasts, is_plain, shown
from torch import Tensor

__all__ = ["block_sparse_softmax", "softmax_bwd"]


def block_sparse_softmax(
    x: Tensor,
    layout: BlockLayout,
    *,
    scale: float = 1.0,
    relative_position: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    key_padding_mask_mode: str = "add",
    attention_mask_mode: str = "add",
    is_causal: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Apply softmax to ``x * scale + relative_position + masks`` over the active columns of each row.

    Args:
        x: scores [Z, nnz, block, block] in the layout's order of blocks; fp16, bf16 or fp32, any strides.
        layout: the active blocks.
        scale: factor of x.
        relative_position: a dense bias that broadcasts to [Z, H, M, N], in x's dtype. Autocast casts it and the masks.
        key_padding_mask: [Z, N], in x's dtype or bool.
        attention_mask: [M, N], in x's dtype or bool.
        key_padding_mask_mode: ``"add"`` adds the mask to the scores. ``"mul"`` masks the positions where it is 0 and
            leaves the others unchanged (it never multiplies). A bool mask, True for visible positions, needs ``"mul"``.
        attention_mask_mode: ``"add"`` or ``"mul"`` in the same way, for `attention_mask`.
        is_causal: mask column n of row m if n > m.
        inplace: overwrite x with the result, and return x.

    Returns:
        The probabilities, with x's shape and dtype, contiguous; or x itself if `inplace`. A fully masked row gives 0.
        Differentiable in x and in `relative_position`.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or mode.
    """
    words = (scale, key_padding_mask_mode, attention_mask_mode, is_causal)
    if inplace is False and type(layout) is BlockLayout and not torch.compiler.is_dynamo_compiling():
        terms = (relative_position, key_padding_mask, attention_mask)
        known: Tensor | None = layout.softmaxes(x, *terms, library.CURRENT.source, *words)
        if known is not None:
            return known
    if not bool is type(is_causal) is type(inplace):
        check_flags(is_causal=is_causal, inplace=inplace)  # type: ignore[unreachable]  # untyped callers
    factor = check_number("scale", scale)
    heads = check_sparse(x, layout, bias=relative_position)
    size = (x.shape[0], heads, *layout.shape)
    rpe = check_bias(relative_position, x, size)
    kpm = check_mask("key_padding_mask", key_padding_mask, key_padding_mask_mode, x, (size[0], size[3]), "Z, N")
    am = check_mask("attention_mask", attention_mask, attention_mask_mode, x, size[2:], "M, N")
    tables = layout.for_heads(heads).tables(x.device)
    spans, columns = shown((tables.spans, tables.columns), x)
    multiplies = key_padding_mask_mode == "mul", attention_mask_mode == "mul"
    arguments = (spans, columns, tables.sizes, factor, rpe, kpm, am, *multiplies, is_causal)
    if inplace:
        check_writable(x)
        in_place: Tensor = _InPlace.apply(x, *arguments)
        return in_place
    if not is_plain(x, rpe, kpm, am):
        result: Tensor = _softmax_op(x, *arguments)
        return result
    if autocasts() or kpm is not key_padding_mask or am is not attention_mask:
        return softmax_forward(x, *arguments)
    writer = RecipeWriter(x, relative_position, kpm, am)
    out = _record(writer, rpe, arguments)
    layout.softmaxes.remember(writer.recipe(out), x, relative_position, kpm, am, writer.source, *words)
    return out


def softmax_bwd(y: Tensor, dy: Tensor, scale: float, layout: BlockLayout) -> Tensor:
    """Compute the gradient by x of `block_sparse_softmax`: ``y * (dy - sum(y * dy)) * scale``.

    Args:
        y: the probabilities [Z, nnz, block, block] that `block_sparse_softmax` returned; any strides.
        dy: the gradient by `y`, of the same shape, dtype and device; any strides, 0 included. It is not overwritten.
        scale: the scale that `block_sparse_softmax` had.
        layout: the active blocks.

    Returns:
        The gradient [Z, nnz, block, block], contiguous.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape.
    """
    factor = check_number("scale", scale)
    heads = check_sparse(y, layout, "y")
    check_like("dy", dy, "y", y)
    tables = layout.for_heads(heads).tables(y.device)
    spans, columns = shown((tables.spans, tables.columns), y)
    run = softmax_backward if is_plain(y, dy) else _softmax_backward_op
    dx, _ = run(y, dy, spans, columns, tables.sizes, factor, False)
    result: Tensor = dx
    return result


def _record(writer: RecipeWriter, rpe: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
    """Compute the softmax of a new call and record its launches for replays; `rpe` is the bias [Z, H, M, N]."""
    x, bias, kpm, am = writer.operands
    spans, columns, *_ = arguments
    writer.constant(spans, columns)
    if bias is not None and rpe is not None:
        rpe = writer.stands(bias.expand(rpe.shape), bias)
    return softmax_forward(x, *arguments[:4], rpe, kpm, am, *arguments[7:], caller=writer)


def _softmax_(x: Tensor, spans: Tensor, columns: Tensor, sizes: Sequence[int], scale: float, *terms: Any) -> None:
    launch_forward(x, x, spans, columns, sizes, scale, *terms)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    spans, columns, sizes, scale, bias = inputs[1:6]
    ctx.bias_shape = None if bias is None else bias.shape
    ctx.save_for_backward(output, spans, columns)
    ctx.numbers = (sizes, scale)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    y, spans, columns = ctx.saved_tensors
    wants_bias = ctx.needs_input_grad[5]
    dx, drpe = _softmax_backward_op(y, grad, spans, columns, *ctx.numbers, wants_bias)
    # the tables of a layout without rows do not contain the number of heads
    dbias = drpe.view(ctx.bias_shape) if wants_bias else None
    return (dx, *(None,) * 4, dbias, *(None,) * 5)


def _refuse_double_backward(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("block_sparse_softmax has no second derivative: do not pass create_graph=True")


class _InPlace(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """Autograd function of the in-place softmax: torch's operators that mutate an input cannot have a gradient formula."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *arguments: Any) -> Tensor:
        _softmax_in_place_op(x, *arguments)
        ctx.mark_dirty(x)
        _save(ctx, (x, *arguments), x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grad)


_LAYOUT: Final = "Tensor spans, Tensor columns, SymInt[] sizes, float scale"
_TERMS: Final = (
    "Tensor? relative_position, Tensor? key_padding_mask, Tensor? attention_mask, bool key_padding_mask_multiplies,"
    " bool attention_mask_multiplies, bool is_causal"
)


def _fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake_backward(
    y: Tensor, dy: Tensor, spans: Tensor, columns: Tensor, sizes: Sequence[int], scale: float, wants_bias: bool
) -> tuple[Tensor, Tensor]:
    del dy, columns, scale
    return allocate_gradients(y, spans, sizes, wants_bias)


_softmax_op = define(
    f"block_sparse_softmax(Tensor x, {_LAYOUT}, {_TERMS}) -> Tensor",
    softmax_forward,
    _fake,
    backward=_backward,
    save=_save,
)
_softmax_in_place_op = define(f"block_sparse_softmax_(Tensor(a!) x, {_LAYOUT}, {_TERMS}) -> ()", _softmax_)
_softmax_backward_op = define(
    f"block_sparse_softmax_backward(Tensor y, Tensor dy, {_LAYOUT}, bool wants_bias) -> (Tensor, Tensor)",
    softmax_backward,
    _fake_backward,
    backward=_refuse_double_backward,
)
