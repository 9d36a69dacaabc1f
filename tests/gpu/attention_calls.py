"""Calls of flash attention and of its gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from nojit.kernels.attention.band_masks import band_mask_of
from nojit.kernels.calls.memos import new_memo
from nojit.kernels.flash_attention import flash_attention, launch_bwd, launch_sm90, launch_sm90_fp8, op, reference
from nojit.kernels.flash_attention import launch as flash_launch
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, as_tuple, view

# what else a call can ask for, each of which is a mask of its own
MASKS: tuple[dict[str, Any], ...] = ({}, {"is_causal": True}, {"window": (37, 20)})
# each tile width full and not, in steps of 16 elements and not
WIDTHS = [(d, d) for d in (16, 32, 64, 128, 256, 8, 24, 40, 48, 80, 96, 111, 160, 200)]
WIDTHS += [(16, 32), (256, 128), (192, 192), (192, 128), (200, 100)]
FP8 = torch.float8_e4m3fn
FP8_WIDTHS = [(d, d) for d in (64, 128, 256, 8, 40, 48, 80, 111, 160, 200)] + [(64, 24), (64, 128), (192, 128)]
GRADIENT_WIDTHS = [(d, d) for d in (32, 64, 128, 256, 16, 40, 48, 80, 88, 96, 111, 160)]
GRADIENT_WIDTHS += [(256, 128), (192, 128), (192, 136), (200, 100), (64, 24)]
LENGTHS = ((1, 1), (1, 799), (113, 3), (799, 799), (512, 512), (3, 1024))


@dataclass(frozen=True)
class _Attention:
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    dim: int
    v_dim: int
    offset: int
    mask: dict[str, Any]
    alignment: str
    lse: bool
    maps: bool = True
    """Whether the kernels over tensor maps may run where they can."""
    deterministic: bool = True

    @property
    def words(self) -> dict[str, Any]:
        return {**self.mask, "causal_alignment": self.alignment}

    @property
    def rounds_weights(self) -> bool:
        """Whether the kernel over maps takes a call over e4m3: that rounds the weights to e4m3, too."""
        fits = max(self.dim, self.v_dim) <= 128 and self.dim % 16 == 0 and self.v_dim % 16 == 0
        left, right = self.mask.get("window", (None, None))
        causal = self.mask.get("is_causal", False)
        mask = band_mask_of(self.q_len, self.kv_len, causal, self.alignment, left, right)
        return self.maps and fits and not self.offset and mask.mode != "window"

    @contextmanager
    def steered(self, dtype: torch.dtype) -> Iterator[None]:
        """Keep to pointers if maps are not to be; else have e4m3 over maps for few queries, too."""
        with ExitStack() as stack:
            if not self.maps or dtype is FP8:
                # what others remembered may be over the others
                stack.enter_context(mock.patch.object(op, "_MEMO", new_memo(operands=3, limit=8)))
            if self.maps:
                stack.enter_context(mock.patch.object(launch_sm90_fp8, "MIN_QUERIES", {64: 0, 128: 0}))
            else:
                stack.enter_context(mock.patch.object(flash_launch, "maps_of", return_value=None))
                stack.enter_context(mock.patch.object(flash_launch, "fp8_maps_of", return_value=None))
                stack.enter_context(mock.patch.object(launch_bwd, "gradient_maps_of", return_value=None))
            yield

    def inputs(self, dtype: torch.dtype) -> list[Tensor]:
        q = _view((self.batch, self.heads, self.q_len, self.dim), dtype, 1, self.offset)
        k = _view((self.batch, self.kv_heads, self.kv_len, self.dim), dtype, 2, self.offset)
        # heads in the inner place: strides that are not those of a contiguous tensor
        v = _view((self.batch, self.kv_len, self.kv_heads, self.v_dim), dtype, 3, self.offset).transpose(1, 2)
        return [q, k, v]

    def gradients(self, dtype: torch.dtype) -> list[Tensor]:
        """Make those of the output and, if they are asked for, of the log-sums."""
        dout = view((self.batch, self.heads, self.q_len, self.v_dim), dtype, 4, offset=self.offset)
        return [dout, view((self.batch, self.heads, self.q_len), torch.float32, 5)][: 2 if self.lse else 1]


def _view(shape: tuple[int, ...], dtype: torch.dtype, seed: int, offset: int) -> Tensor:
    """Make a random tensor as `view` does, of e4m3 too, which torch draws none of."""
    if dtype is not FP8:
        return view(shape, dtype, seed, offset=offset)
    count = math.prod(shape)
    return view((count + offset,), torch.bfloat16, seed).to(FP8)[offset:].view(shape)


def _ways(dtype: torch.dtype, widths: tuple[int, int], mask: dict[str, Any]) -> Iterator[tuple[int, bool]]:
    """List offsets of operands, and whether maps may be; where there can be none, once is enough."""
    yield 0, True
    yield 1, True
    if dtype.itemsize == 2 and max(widths) <= launch_sm90.MAX_MAPPED_DIM and "window" not in mask:
        yield 0, False


def _fits(dtype: torch.dtype, widths: tuple[int, int]) -> bool:
    return dtype is not torch.float32 or max(widths) <= 128


def attention_calls() -> Iterator[Call]:
    for dtype, widths, mask, lse in itertools.product(DTYPES, WIDTHS, MASKS, (False, True)):
        if not _fits(dtype, widths):
            continue
        for offset, maps in _ways(dtype, widths, mask):
            yield _call(dtype, _Attention(2, 4, 2, 203, 257, *widths, offset, mask, "bottom_right", lse, maps))
    for dtype, lengths, mask in itertools.product(DTYPES, LENGTHS, MASKS[1:]):
        for alignment in ("top_left", "bottom_right"):
            # enough heads that torch's largest error is one of many, also where a head has one row
            yield _call(dtype, _Attention(8, 32, 4, *lengths, 64, 64, 0, mask, alignment, True))
    yield from _fp8_calls()


def _fp8_calls() -> Iterator[Call]:
    """Ask for each variant over e4m3, on devices that multiply it."""
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0):
        return
    for widths, mask, lse, offset in itertools.product(FP8_WIDTHS, MASKS, (False, True), (0, 1)):
        case = _Attention(2, 4, 2, 203, 257, *widths, offset, mask, "bottom_right", lse)
        yield _call(FP8, case)
        if case.rounds_weights:
            yield _call(FP8, replace(case, maps=False))
    for lengths, mask, dim in itertools.product(LENGTHS, MASKS, (64, 128)):
        yield _call(FP8, _Attention(8, 32, 4, *lengths, dim, dim, 0, mask, "bottom_right", True))
    for mask, dim in itertools.product(MASKS, (64, 128)):
        yield _call(FP8, _Attention(1, 4, 2, 1900, 4100, dim, dim, 0, mask, "bottom_right", False))


def attention_gradient_calls() -> Iterator[Call]:
    for dtype, widths, mask in itertools.product(DTYPES, GRADIENT_WIDTHS, MASKS):
        for offset, maps in _ways(dtype, widths, mask) if _fits(dtype, widths) else ():
            lse = "is_causal" in mask
            yield _gradient_call(dtype, _Attention(2, 4, 2, 203, 257, *widths, offset, mask, "bottom_right", lse, maps))
    for dim in (64, 128):
        # the profile core has no gradients of log-sums, which the causal calls above ask for
        for offset, maps in _ways(torch.bfloat16, (dim, dim), MASKS[1]):
            case = _Attention(2, 4, 2, 203, 257, dim, dim, offset, MASKS[1], "bottom_right", False, maps)
            yield _gradient_call(torch.bfloat16, case)
    for dtype, dim, mask in itertools.product(DTYPES[:2], (64, 128, 40, 88), MASKS[:2]):
        # two tiles of keys: what both add to zeros is the same bits whoever comes first
        case = _Attention(
            2, 4, 2, 203, 250, dim, dim, 0, mask, "bottom_right", "is_causal" in mask, deterministic=False
        )
        yield _gradient_call(dtype, case)
    for dtype, dim, mask in itertools.product(DTYPES[:2], (64, 128, 40, 88), MASKS[:2]):
        # so few keys that the query heads that share them are in parts
        yield _gradient_call(dtype, _Attention(1, 16, 2, 403, 250, dim, dim, 0, mask, "bottom_right", False))
    for dtype, lengths, mask in itertools.product(DTYPES, (*LENGTHS, (4096, 4096)), MASKS):
        for alignment in ("top_left", "bottom_right"):
            case = _Attention(8, 32, 4, *lengths, 64, 64, 0, mask, alignment, True)
            yield _gradient_call(dtype, case if lengths[0] < 4096 else replace(case, batch=1, heads=4, kv_heads=2))


def _torchs(case: _Attention, q: Tensor, k: Tensor, v: Tensor) -> Outputs:
    """Attend by eager operators in the same precision (e4m3: bf16): products, softmax in fp32, products."""
    rounds = q.dtype is FP8 and case.rounds_weights
    q, k, v = (x.to(torch.bfloat16) if x.dtype is FP8 else x for x in (q, k, v))
    k, v = (x.repeat_interleave(case.heads // case.kv_heads, 1) for x in (k, v))
    scores = (q @ k.transpose(2, 3)).float() * case.dim**-0.5
    seen = reference.visible(case.q_len, case.kv_len, q.device, **case.words)
    blind = ~seen.any(-1)[:, None]
    scores = scores.masked_fill(~seen, float("-inf")).masked_fill(blind, 0.0)
    weights = torch.softmax(scores, -1).masked_fill(blind, 0.0)
    if rounds:
        # as large as e4m3 holds, as in the kernel
        largest = weights.amax(-1, keepdim=True).clamp_min(1e-30) / 256
        weights = (weights / largest).to(FP8).float() * largest
    out = weights.to(q.dtype) @ v
    lse = torch.logsumexp(scores, -1).masked_fill(blind[:, 0], float("-inf"))
    return (out, lse) if case.lse else (out,)


def _call(dtype: torch.dtype, case: _Attention) -> Call:
    def attend() -> Outputs:
        with case.steered(dtype):
            return as_tuple(flash_attention(*case.inputs(dtype), return_lse=case.lse, **case.words))

    def exact() -> Outputs:
        return reference.flash_attention(*(x.double() for x in case.inputs(dtype)), **case.words)[: 1 + case.lse]

    return Call(
        f"flash_attention {str(dtype)[6:]} {case}",
        attend,
        exact,
        lambda: _torchs(case, *case.inputs(dtype)),
        (2.0, 2.0) if case.lse else (2.0,),
    )


def _gradient_call(dtype: torch.dtype, case: _Attention) -> Call:
    def differentiate(function: Any, to: torch.dtype | None = None) -> Outputs:
        inputs = [x if to is None else x.to(to) for x in case.inputs(dtype)]
        grads = [x if to is None else x.to(to) for x in case.gradients(dtype)]
        results = as_tuple(function(*(x.requires_grad_() for x in inputs)))[: len(grads)]
        return torch.autograd.grad(results, inputs, grads)

    def ours() -> Outputs:
        with case.steered(dtype):
            words = {"return_lse": case.lse, "deterministic": case.deterministic, **case.words}
            return differentiate(lambda *x: flash_attention(*x, **words))

    return Call(
        f"flash_attention backward {str(dtype)[6:]} {case}",
        ours,
        lambda: differentiate(lambda *x: reference.flash_attention(*x, **case.words), torch.float64),
        lambda: differentiate(lambda *x: _torchs(case, *x)),
        (3.0, 3.0, 3.0),
        # weights are recomputed from log-sums in fp32, as in every fused kernel: those here are 10 at most
        lambda exact: 20 * torch.finfo(torch.float32).eps * max(float(value.abs().max()) for value in exact),
    )
