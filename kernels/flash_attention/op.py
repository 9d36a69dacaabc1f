"""Public operator `flash_attention`, and its registration with torch's dispatcher."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

import math
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.attention.band_masks import band_mask_of
from nojit.kernels.attention.checks import Window, check_differentiable, check_gradients, check_scale, window_sides
from nojit.kernels.attention.outputs import Gradients, allocate_gradients, allocate_output, allocate_sums, with_sums
from nojit.kernels.calls.arguments import check_flags, check_number
from nojit.kernels.calls.memos import RecipeWriter, new_memo
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import autocasts, is_plain, lowered, may_differentiate
from nojit.kernels.flash_attention.checks import check_operands
from nojit.kernels.flash_attention.launch import launch_forward
from nojit.kernels.flash_attention.launch_bwd import launch_backward
from torch import Tensor

__all__ = ["flash_attention"]

MOST_REMEMBERED: Final = 4096
"""The most calls that are cached for replays: a server that batches sequences of any length makes thousands."""
_MEMO: Final = new_memo(operands=3, limit=MOST_REMEMBERED)


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
    window: Window = None,
    return_lse: bool = False,
    deterministic: bool = True,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute ``softmax(q @ k^T * scale) @ v`` without storing the scores.

    Args:
        q: queries [B, H, M, D], fp16, bf16, fp32 or e4m3 (forward only, `sm_90` or newer), D up to 256 (fp32: 128); any
            strides, the last 1. Autocast casts operands other than e4m3; the output then has autocast's dtype.
        k: keys [B, Hkv, N, D]; H is a multiple of Hkv, and query head h reads key head ``h // (H // Hkv)``.
        v: values [B, Hkv, N, Dv], Dv up to 256 (fp32: 128).
        scale: factor of the scores; ``1 / sqrt(D)`` if None. For e4m3, include the scales of queries and keys here, and
            multiply the output by the scale of the values.
        is_causal: mask all keys to the right of a query's position.
        causal_alignment: ``"top_left"`` puts query m at the position of key m; ``"bottom_right"`` puts the last query
            at the position of the last key, query m at ``m + N - M``.
        window: ``(left, right)``: the query at position p sees the keys from ``p - left`` to ``p + right``; None means
            no bound, and one int sets both.
        return_lse: also return the log-sum-exp of each row of scores.
        deterministic: return bit-identical gradients every time. With False the sm_90 kernel adds up the gradient of q
            in any order, which is faster; all other kernels are always deterministic.

    Returns:
        The output [B, H, M, Dv] in the dtype of `q` (e4m3: bf16), and, if requested, the log-sum-exp (natural
        logarithm), fp32 [B, H, M]. A query that sees no key gives output 0 and log-sum-exp -inf. If Dv equals D, the
        output has the memory order of q. Both are differentiable once, in q, k and v, except for e4m3.

    Raises:
        ArgumentError: a wrong type, dtype or device, or required gradients of e4m3.
        ValueError: a wrong shape, stride or string, or a scale that is not finite.
    """
    if window is None and not torch.compiler.is_dynamo_compiling():
        source = library.CURRENT.source
        if isinstance(scale, int):
            scale = check_number("scale", scale)  # type: ignore[unreachable]  # untyped callers
        known = _MEMO(
            q, k, v, source, scale, is_causal, causal_alignment, None, None, return_lse, deterministic
        )  # fmt: skip
        if known is not None:
            result: Tensor | tuple[Tensor, Tensor] = known
            return result
    left, right = (None, None) if window is None else window_sides(window)
    if scale is not None:
        scale = check_scale("scale", scale)
    if not bool is type(is_causal) is type(return_lse) is type(deterministic):
        # callers without a type checker may pass other types
        check_flags(is_causal=is_causal, return_lse=return_lse, deterministic=deterministic)  # type: ignore[unreachable]
    if autocasts():
        q, k, v = lowered(q), lowered(k), lowered(v)
    if is_plain(q, k, v):
        return _attend(q, k, v, scale, is_causal, causal_alignment, left, right, return_lse, deterministic)
    # validate first: with tensors on several devices, the dispatcher would pick one of the devices
    check_operands(q, k, v, causal_alignment)
    # gradients need the log-sums
    with_lse = return_lse or may_differentiate(q, k, v)
    words = (scale, bool(is_causal), causal_alignment, left, right, bool(with_lse), bool(deterministic))
    out, lse = _flash_attention_op(q, k, v, *words)
    return (out, lse) if return_lse else out


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    is_causal: bool,
    causal_alignment: str,
    left: int | None,
    right: int | None,
    return_lse: bool,
    deterministic: bool,
) -> Tensor | tuple[Tensor, Tensor]:
    """Run a call without torch's dispatcher: replay a cached call, or validate and run a new one and cache it."""
    words = (scale, is_causal, causal_alignment, left, right, return_lse, deterministic)
    known: Tensor | tuple[Tensor, Tensor] | None = _MEMO(q, k, v, library.CURRENT.source, *words)
    if known is not None:
        return known
    check_operands(q, k, v, causal_alignment)
    writer = RecipeWriter(q, k, v)
    own_q, own_k, own_v = writer.operands
    out = allocate_output(own_q, own_v, writer)
    lse = allocate_sums(own_q, writer) if return_lse else None
    if out.numel():
        mask = band_mask_of(q.shape[2], k.shape[2], is_causal, causal_alignment, left, right)
        launch_forward(own_q, own_k, own_v, out, lse, _factor(q, scale), mask, writer)
    results = (out,) if lse is None else (out, lse)
    _MEMO.remember(writer.recipe(*results), q, k, v, writer.source, *words)
    return out if lse is None else (out, lse)


def _flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    is_causal: bool,
    causal_alignment: str,
    window_left: int | None,
    window_right: int | None,
    return_lse: bool,
    deterministic: bool = True,
) -> tuple[Tensor, Tensor]:
    words = (scale, is_causal, causal_alignment, window_left, window_right, return_lse, deterministic)
    return with_sums(_attend(q, k, v, *words))


def _factor(q: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(q.shape[3]) if scale is None else scale


def _flash_attention_backward(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float | None,
    is_causal: bool,
    causal_alignment: str,
    window_left: int | None,
    window_right: int | None,
    wanted: list[bool],
    deterministic: bool = True,
) -> Gradients:
    check_operands(q, k, v, causal_alignment)
    check_gradients(q, v, dout, dlse, out, lse)
    gradients = allocate_gradients(q, k, v, wanted)
    mask = band_mask_of(q.shape[2], k.shape[2], bool(is_causal), causal_alignment, window_left, window_right)
    launch_backward((dout, dlse), (q, k, v), (out, lse), gradients, _factor(q, scale), mask, deterministic)
    return gradients


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    check_differentiable(inputs[0])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:3], *output)
    *ctx.words, ctx.has_lse, ctx.deterministic = inputs[3:]


def _backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    if not ctx.has_lse:
        raise NotImplementedError("expected return_lse=True for gradients of nojit::flash_attention, got False")
    q, k, v, out, lse = ctx.saved_tensors
    if dout is None:
        dout = torch.zeros_like(out)
    wanted = ctx.needs_input_grad[:3]
    gradients = _flash_attention_backward_op(dout, dlse, q, k, v, out, lse, *ctx.words, wanted, ctx.deterministic)
    given = [gradient if wants else None for gradient, wants in zip(gradients, wanted, strict=True)]
    return (*given, *(None,) * 7)


def _refuse_double_backward(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("flash_attention has no second derivative: do not pass create_graph=True")


_WORDS: Final = "float? scale, bool is_causal, str causal_alignment, SymInt? window_left, SymInt? window_right"


def _fake(q: Tensor, k: Tensor, v: Tensor, *words: Any) -> tuple[Tensor, Tensor]:
    check_operands(q, k, v, words[2])  # causal_alignment
    out, return_lse = allocate_output(q, v), words[5]
    return (out, allocate_sums(q)) if return_lse else with_sums(out)


def _fake_backward(dout: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Gradients:
    check_operands(q, k, v, rest[4])  # causal_alignment
    check_gradients(q, v, dout, dlse, *rest[:2])  # out, lse
    return allocate_gradients(q, k, v, rest[7])  # wanted


_flash_attention_op = define(
    f"flash_attention(Tensor q, Tensor k, Tensor v, {_WORDS}, bool return_lse, bool deterministic=True) -> "
    "(Tensor, Tensor)",
    _flash_attention,
    _fake,
    backward=_backward,
    save=_save,
)
_flash_attention_backward_op = define(
    "flash_attention_backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_WORDS}, bool[3] wanted, bool deterministic=True) -> (Tensor, Tensor, Tensor)",
    _flash_attention_backward,
    _fake_backward,
    backward=_refuse_double_backward,
)
