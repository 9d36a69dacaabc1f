"""Torch operators of flex attention and its gradients, which take mask and modification as tensors and numbers."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from nojit.kernels.attention.checks import check_gradients
from nojit.kernels.attention.options import OPTIONS
from nojit.kernels.attention.outputs import allocate_gradients, allocate_output, allocate_sums
from nojit.kernels.block_mask.tables import rebuilt_tables
from nojit.kernels.calls.registration import define
from nojit.kernels.flex.launch import launch_forward
from nojit.kernels.flex.launch_bwd import allocate_captured, launch_backward
from nojit.kernels.score_mod.modification import rebuilt
from torch import Tensor

__all__ = ["backward_op", "forward_op"]


def _flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_spans: Tensor,
    query_blocks: Tensor,
    key_spans: Tensor,
    key_blocks: Tensor,
    bits: Tensor,
    visits: Tensor,
    first: Tensor | None,
    second: Tensor | None,
    bias: Tensor | None,
    mode: str,
    sizes: list[int],
    function: str | None,
    numbers: list[int],
    values: list[float],
    scale: float,
    deterministic: bool,
    options: Sequence[int],
) -> tuple[Tensor, Tensor]:
    del deterministic  # only the backward pass uses it
    out, lse = allocate_output(query, value), allocate_sums(query)
    if out.numel():
        tables = rebuilt_tables(mode, sizes, (query_spans, query_blocks, key_spans, key_blocks, bits, visits))
        mod = rebuilt(function, numbers, values, (first, second, bias))
        chosen = {name: choice for name, choice in zip(OPTIONS, options, strict=True) if choice}
        launch_forward(query, key, value, out, lse, scale, tables, mod, chosen)
    return out, lse


def _flex_attention_backward(
    dout: Tensor,
    dlse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    query_spans: Tensor,
    query_blocks: Tensor,
    key_spans: Tensor,
    key_blocks: Tensor,
    bits: Tensor,
    visits: Tensor,
    first: Tensor | None,
    second: Tensor | None,
    bias: Tensor | None,
    mode: str,
    sizes: list[int],
    function: str | None,
    numbers: list[int],
    values: list[float],
    scale: float,
    deterministic: bool,
    wanted: list[bool],
) -> tuple[Tensor, ...]:
    check_gradients(query, value, dout, dlse, out, lse)
    gradients = allocate_gradients(query, key, value, wanted[:3])
    of_captured = allocate_captured(query, (first, second, bias), wanted[3:])
    tables = rebuilt_tables(mode, sizes, (query_spans, query_blocks, key_spans, key_blocks, bits, visits))
    mod = rebuilt(function, numbers, values, (first, second, bias))
    given = (dout, dlse), (query, key, value), (out, lse)
    launch_backward(*given, gradients, of_captured, scale, tables, mod, deterministic)
    return (*gradients, *of_captured)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:12])
    *ctx.words, _ = inputs[12:]


def _backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    if dout is None:
        dout = torch.zeros_like(ctx.saved_tensors[3])
    wanted = [*ctx.needs_input_grad[:3], *ctx.needs_input_grad[9:12]]
    gradients = backward_op(dout, dlse, *ctx.saved_tensors, *ctx.words, wanted)
    given = [gradient if wants else None for gradient, wants in zip(gradients, wanted, strict=True)]
    if given[5] is not None:
        # sums are fp32, but the gradient of a bias has the queries' dtype
        given[5] = given[5].to(ctx.saved_tensors[0].dtype)
    return (*given[:3], *(None,) * 6, *given[3:], *(None,) * 8)


def _refuse_double_backward(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("flex_attention has no second derivative: do not pass create_graph=True")


_WORDS: Final = (
    "Tensor query_spans, Tensor query_blocks, Tensor key_spans, Tensor key_blocks, Tensor bits, Tensor visits, "
    "Tensor? first, Tensor? second, Tensor? bias, str mode, SymInt[] sizes, str? function, SymInt[] numbers, float[] values, "
    "float scale, bool deterministic"
)


def _fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    del key, rest
    return allocate_output(query, value), allocate_sums(query)


def _fake_backward(
    dout: Tensor, dlse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    del dout, dlse
    wanted = rest[-1]
    of_captured = allocate_captured(query, rest[8:11], wanted[3:])
    return (*allocate_gradients(query, key, value, wanted[:3]), *of_captured)


forward_op = define(
    f"flex_attention(Tensor query, Tensor key, Tensor value, {_WORDS}, int[] options) -> (Tensor, Tensor)",
    _flex_attention,
    _fake,
    backward=_backward,
    save=_save,
)
backward_op = define(
    "flex_attention_backward(Tensor dout, Tensor? dlse, Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse, "
    f"{_WORDS}, bool[6] wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _flex_attention_backward,
    _fake_backward,
    backward=_refuse_double_backward,
)
