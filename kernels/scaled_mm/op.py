"""Torch operator ``scaled_mm``, the product of fp8 matrices with scales, with the contract of ``torch._scaled_mm``.

y = (scale_a * a) @ (scale_b * b) + bias
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.arguments import check_flags, check_result, check_tensors
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import is_plain, written
from nojit.kernels.products.fp8 import check_apart_from, check_no_gradient, check_out
from nojit.kernels.scaled_mm.checks import (
    check_bias,
    check_operands,
    check_out_dtype,
)
from nojit.kernels.scaled_mm.launch import prepare
from nojit.kernels.scaled_mm.operands import Operands
from nojit.kernels.scaled_mm.scales import scales_of
from torch import Tensor

__all__ = ["scaled_mm"]

_MEMO: Final = new_memo(operands=6, limit=1024, in_place=(), under_autocast=True)
_NAMES: Final[Mapping[object, str]] = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
"""Dtypes of results as strings, for cache keys."""


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply two fp8 matrices and scale the product: ``(scale_a * a) @ (scale_b * b) + bias``.

    Args:
        a: [M, K], e4m3 or e5m2, row-major. K is a multiple of 16.
        b: [K, N], e4m3 or e5m2, not both e5m2; column-major, as ``weight.t()``. N is a multiple of 16.
        scale_a: fp32, any strides: one element; or [M, 1], one per row; or [M, K / 128] or [M / 128, K / 128], rounded
            up, one per block of 128 along K and 1 or 128 rows.
        scale_b: fp32, any strides, of the same granularity: one element; or [1, N]; or [K / 128, N] or [K / 128, N /
            128], rounded up.
        bias: [N] or [1, N], of the result's dtype, one per column, any stride; None for fp32 results.
        out_dtype: bf16, fp16 or fp32. None means the dtype of `out`, or else bf16; torch's operator returns fp8 then.
        use_fast_accum: let the tensor cores of ``sm_90`` accumulate with their 14-bit precision. False adds to fp32
            sums after each 128 of K; for bf16 results, after at most 256. Other devices, block scales, and matrices
            that TMA descriptors cannot hold always add up in fp32.
        out: where to write the result, any strides; it must not overlap an operand.

    Returns:
        [M, N], contiguous; or `out`. Rounded once. Not differentiable.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or stride, or a tensor that requires a gradient.
    """
    if out is not None:
        check_result(out)
    if out_dtype is None:
        out_dtype = torch.bfloat16 if out is None else out.dtype
    if isinstance(out_dtype, torch.dtype) and not torch.compiler.is_dynamo_compiling():
        words = (_NAMES.get(out_dtype), use_fast_accum)
        known: Tensor | None = _MEMO(a, b, scale_a, scale_b, bias, out, library.CURRENT.source, *words)
        if known is not None:
            return known
    check_tensors(a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    if bias is not None:
        check_tensors(bias=bias)
    check_flags(use_fast_accum=use_fast_accum)
    check_out_dtype(out_dtype)
    operands, fast = Operands(a, b, scale_a, scale_b, bias), bool(use_fast_accum)
    if is_plain(*operands, out):
        return _run(*operands, out_dtype, use_fast_accum, out)
    check_no_gradient(a=a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias, out=out)
    _check(operands, out, out_dtype)
    if out is None:
        result: Tensor = _op(*operands, out_dtype, fast)
        return result
    _into_op(*operands, out_dtype, fast, out)
    return written(out)


def _run(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    out_dtype: torch.dtype,
    use_fast_accum: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Replay a cached call; if there is none, validate the call, run it and cache it."""
    operands, words = Operands(a, b, scale_a, scale_b, bias), (_NAMES.get(out_dtype), use_fast_accum)
    known: Tensor | None = _MEMO(*operands, out, library.CURRENT.source, *words)
    if known is not None:
        return known

    def make(own: list[Any], target: Tensor | None, writer: RecipeWriter) -> Tensor:
        given = Operands(*own)
        _check(given, target, out_dtype)
        if target is not None:
            check_apart_from(target, **given._asdict())
        return prepare(given, target, out_dtype, bool(use_fast_accum))(given, target, writer)

    return made_and_remembered(_MEMO, operands, out, words, make)


def _check(operands: Operands, out: Tensor | None, dtype: torch.dtype) -> None:
    a, b, scale_a, scale_b, bias = operands
    check_operands(a, b)
    scales_of(scale_a, scale_b, a, b)
    if bias is not None:
        check_bias(bias, a, b, dtype)
    if out is not None:
        check_out(out, a, b, dtype)


def _run_into(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    out_dtype: torch.dtype,
    use_fast_accum: bool,
    out: Tensor,
) -> None:
    _run(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum, out)


def _allocate(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    out_dtype: torch.dtype,
    use_fast_accum: bool,
) -> Tensor:
    """Return an empty tensor with the result's shape and dtype, for torch's tracing."""
    del scale_a, scale_b, bias, use_fast_accum
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


_ARGUMENTS: Final = (
    "Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias, ScalarType out_dtype, bool use_fast_accum"
)
_op = define(f"scaled_mm({_ARGUMENTS}) -> Tensor", _run, _allocate)
_into_op = define(f"scaled_mm_out({_ARGUMENTS}, Tensor(a!) out) -> ()", _run_into)
