"""Launches of validated norms and their gradients: allocation of results, copies of uneven rows."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.strides import merged_stride
from nojit.kernels.calls.tensor_maps import processors
from torch import Tensor

__all__ = ["RUNS", "normalize", "run_backward"]

RUNS: Final = 4
"""Programs of the backward kernel per SM; each writes a row of sums for the weight's gradient."""


def _rows_of(value: Tensor, caller: Caller) -> tuple[Tensor, int]:
    """Return `value`, or a copy if its rows are not contiguous or not evenly spaced; and the row stride in elements.

    `caller`: allocates and launches, or also records both for replays.
    """
    *outer, width = value.shape
    stride = merged_stride(outer, value.stride()[:-1])
    if stride is None or (width != 1 and value.stride(-1) != 1):
        return caller.make(Tensor.contiguous, value), width
    return value, stride


def _weights_of(weight: Tensor | None, other: Tensor, caller: Caller) -> tuple[Tensor, int]:
    """Return contiguous weights and 1; without weights, `other` as a pointer that is not read, and 0.

    `caller`: allocates and launches, or also records both for replays.
    """
    if weight is None:
        return other, 0
    return weight if weight.stride(0) == 1 else caller.make(Tensor.contiguous, weight), 1


def normalize(
    input: Tensor,  # noqa: A002 - torch's name
    residual: Tensor | None,
    weight: Tensor | None,
    eps: float,
    caller: Caller = DIRECT,
) -> tuple[Tensor, Tensor | None]:
    """Return the norm and, if there is a residual, the sum; operands are already validated.

    `caller`: allocates and launches, or also records both for replays.
    """
    width = input.shape[-1]
    out = caller.make(torch.empty_like, input, memory_format=torch.contiguous_format)
    total = None
    if residual is not None:
        total = caller.make(torch.empty_like, input, memory_format=torch.contiguous_format)
    if out.numel():
        source, stride = _rows_of(input, caller)
        added, added_stride = (None, 0) if residual is None else _rows_of(residual, caller)
        weights, weighs = _weights_of(weight, source, caller)
        caller.launch(
            "rms_norm_fwd",
            input_ptr=source,
            residual_ptr=added,
            weight_ptr=weights,
            out_ptr=out,
            sum_ptr=total,
            rows=out.numel() // width,
            width=width,
            weighs=weighs,
            eps=eps,
            stride_input=stride,
            stride_residual=added_stride,
        )
    return out, total


def run_backward(
    grad: Tensor, grad_total: Tensor | None, total: Tensor, weight: Tensor | None, eps: float, weighs: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients by the normalized tensor and by the weight; the latter is empty unless `weighs`.

    Args:
        grad: gradient by the norm, [..., N].
        grad_total: gradient by the sum, or None.
        total: the tensor that was normalized.
        weight: weight of the forward pass, or None.
        eps: eps of the forward pass.
        weighs: whether the gradient by the weight is requested.
    """
    width = total.shape[-1]
    found = torch.empty_like(total, memory_format=torch.contiguous_format)
    if not found.numel():
        return found, total.new_zeros(width if weighs else 0)
    rows = found.numel() // width
    programs = min(rows, RUNS * processors(total))
    partial = total.new_empty((programs, width) if weighs else (1, 1), dtype=torch.float32)
    source, stride = _rows_of(total, DIRECT)
    dense, grad_stride = _rows_of(grad, DIRECT)
    added, added_stride = (None, 0) if grad_total is None else _rows_of(grad_total, DIRECT)
    weights, scales = _weights_of(weight, source, DIRECT)
    library.get("rms_norm_bwd")(
        grad_ptr=dense,
        grad_sum_ptr=added,
        input_ptr=source,
        weight_ptr=weights,
        grad_input_ptr=found,
        partial_ptr=partial,
        rows=rows,
        width=width,
        weighs=scales,
        shares=int(weighs),
        programs=programs,
        eps=eps,
        stride_grad=grad_stride,
        stride_grad_sum=added_stride,
        stride_input=stride,
    )
    return found, partial.sum(0).to(total.dtype) if weighs else total.new_empty(0)
