"""The torch operator ``scaled_grouped_mm``, grouped products of fp8 operands, with the contract of ``torch._scaled_grouped_mm``."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.arguments import check_flags, check_result, check_tensors
from nojit.kernels.calls.memos import RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import is_plain, written
from nojit.kernels.products.fp8 import check_apart_from, check_no_gradient, check_out
from nojit.kernels.scaled_grouped_mm.checks import RESULT, check_operands, check_out_dtype
from nojit.kernels.scaled_grouped_mm.launch import Operands, prepare
from nojit.kernels.scaled_grouped_mm.scales import scales_of
from torch import Tensor

__all__ = ["scaled_grouped_mm"]

_MEMO: Final = new_memo(operands=6, limit=1024, in_place=(), under_autocast=True)


def scaled_grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply the fp8 rows of each group by the group's own fp8 matrix: ``(scale_a * mat_a) @ (scale_b[g] * mat_b[g])``.

    Group g has the rows from ``offs[g - 1]`` (0 for the first group) up to ``offs[g]``. No call waits for the device.

    Args:
        mat_a: [M, K], e4m3, row-major. K is a multiple of 16.
        mat_b: [groups, K, N], e4m3; matrices column-major, as ``weight.mT``. N is a multiple of 16.
        scale_a: fp32, any strides: [M] or [M, 1], one per row; or [M, K / 128], rounded up, one per block of 128 along K.
        scale_b: fp32, any strides, of the same granularity: [groups, N] or [groups, 1, N], one per column of each
            matrix; or [groups, K / 128, N / 128], rounded up, one per 128 by 128 block.
        offs: [groups], int32, contiguous: the end of each group, in rising order. Equal ends are empty groups. Ends past
            the last row are taken as that.
        out_dtype: None or bf16.
        use_fast_accum: let the tensor cores of ``sm_90`` accumulate with their 14-bit precision. False adds to fp32
            sums after each 256 of K, and after 128 with scales of blocks. Other devices, scales of blocks, and matrices
            that TMA descriptors cannot hold always add up in fp32.
        out: bf16, where to write the result, any strides; it must not overlap an operand.

    Returns:
        [M, N], bf16, contiguous; or `out`. Rounded once. Rows past the last end are not written: they are undefined in a
        new tensor, as in torch. Not differentiable.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or stride, or a tensor that requires a gradient.
    """
    if out_dtype is None and not torch.compiler.is_dynamo_compiling():
        known: Tensor | None = _MEMO(mat_a, mat_b, scale_a, scale_b, offs, out, library.CURRENT.source, use_fast_accum)
        if known is not None:
            return known
    check_tensors(mat_a=mat_a, mat_b=mat_b, scale_a=scale_a, scale_b=scale_b, offs=offs)
    if out is not None:
        check_result(out)
    check_flags(use_fast_accum=use_fast_accum)
    check_out_dtype(out_dtype)
    operands, fast = Operands(mat_a, mat_b, scale_a, scale_b, offs), bool(use_fast_accum)
    if is_plain(*operands, out):
        return _run(*operands, use_fast_accum, out)
    check_no_gradient(mat_a=mat_a, mat_b=mat_b, scale_a=scale_a, scale_b=scale_b, out=out)
    _check(operands, out)
    if out is None:
        result: Tensor = _op(*operands, fast)
        return result
    _into_op(*operands, fast, out)
    return written(out)


def _run(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor,
    use_fast_accum: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Replay a cached call; if there is none, validate the call, run it and cache it."""
    operands = Operands(mat_a, mat_b, scale_a, scale_b, offs)
    known: Tensor | None = _MEMO(*operands, out, library.CURRENT.source, use_fast_accum)
    if known is not None:
        return known

    def make(own: list[Any], target: Tensor | None, writer: RecipeWriter) -> Tensor:
        given = Operands(*own)
        _check(given, target)
        if target is not None:
            check_apart_from(target, **given._asdict())
        return prepare(given, target, bool(use_fast_accum))(given, target, writer)

    return made_and_remembered(_MEMO, operands, out, (use_fast_accum,), make)


def _check(operands: Operands, out: Tensor | None) -> None:
    mat_a, mat_b, scale_a, scale_b, offs = operands
    check_operands(mat_a, mat_b, offs)
    scales_of(scale_a, scale_b, mat_a, mat_b)
    if out is not None:
        check_out(out, mat_a, mat_b, RESULT, "mat_a")


def _run_into(
    mat_a: Tensor, mat_b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor, use_fast_accum: bool, out: Tensor
) -> None:
    _run(mat_a, mat_b, scale_a, scale_b, offs, use_fast_accum, out)


def _allocate(
    mat_a: Tensor, mat_b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor, use_fast_accum: bool
) -> Tensor:
    """Return an empty tensor with the result's shape and dtype, for torch's tracing."""
    del scale_a, scale_b, offs, use_fast_accum
    return mat_a.new_empty((mat_a.shape[0], mat_b.shape[2]), dtype=RESULT)


_ARGUMENTS: Final = "Tensor mat_a, Tensor mat_b, Tensor scale_a, Tensor scale_b, Tensor offs, bool use_fast_accum"
_op = define(f"scaled_grouped_mm({_ARGUMENTS}) -> Tensor", _run, _allocate)
_into_op = define(f"scaled_grouped_mm_out({_ARGUMENTS}, Tensor(a!) out) -> ()", _run_into)
