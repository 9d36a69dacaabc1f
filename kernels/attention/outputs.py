"""Allocation of the tensors that attention kernels write: outputs, log-sums and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from nojit.kernels.attention.checks import FP8
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from torch import Tensor

__all__ = [
    "Gradients",
    "allocate_gradients",
    "allocate_like",
    "allocate_output",
    "allocate_sums",
    "prepared",
    "with_sums",
]

_DTYPES: Final = {FP8: torch.bfloat16}
"""Dtypes of outputs that differ from those of queries."""

Gradients = tuple[Tensor, Tensor, Tensor]
"""Gradients of q, k and v, or of three other operands; those not requested are empty tensors."""


def allocate_output(q: Tensor, v: Tensor, caller: Caller = DIRECT) -> Tensor:
    """Allocate the output [B, H, M, Dv], in the memory order of `q` if it has the shape of `q`.

    `caller`: allocates and launches, or also records both for replays.
    """
    *outer, dim = q.shape
    v_dim = v.shape[3]
    named = {"dtype": _DTYPES[q.dtype]} if q.dtype in _DTYPES else {}
    if v_dim == dim and torch.empty_like(q, device="meta").stride(3) == 1:
        return caller.make(torch.empty_like, q, **named)
    return caller.make(Tensor.new_empty, q, *outer, v_dim, **named)


def allocate_sums(q: Tensor, caller: Caller = DIRECT) -> Tensor:
    """Allocate the log-sums, contiguous fp32 [B, H, M].

    `caller`: allocates and launches, or also records both for replays.
    """
    return new_contiguous(caller, q, q.shape[:3], torch.float32)


def with_sums(result: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sums: an empty tensor if `result` has none, as torch's operators have no optional results."""
    return result if isinstance(result, tuple) else (result, result.new_empty(0, dtype=torch.float32))


def allocate_gradients(q: Tensor, k: Tensor, v: Tensor, wanted: Sequence[bool]) -> Gradients:
    """Allocate the requested gradients of q, k and v, each in the memory order of its operand; the others are empty.

    `wanted` tells for q, k and v whether the gradient is requested.
    """
    dq, dk, dv = (
        allocate_like(value) if wants else value.new_empty(0) for value, wants in zip((q, k, v), wanted, strict=True)
    )
    return dq, dk, dv


def allocate_like(value: Tensor) -> Tensor:
    """Allocate a tensor with the shape and memory order of `value`, and a last stride of 1."""
    made = torch.empty_like(value)
    return made if made.stride(3) == 1 else value.new_empty(value.shape)


def prepared(
    grads: tuple[Tensor, Tensor | None],
    lse: Tensor,
    operands: tuple[Tensor, Tensor, Tensor],
    gradients: Gradients,
) -> tuple[Tensor, Tensor | None, Tensor, Gradients] | None:
    """Return the tensors of a backward pass as kernels take them: dout, dlse, lse, gradients. None if no kernel need run.

    Rows are contiguous, and the gradients of k and v are both there or both empty. Without queries or keys all gradients
    are zeroed instead.

    Args:
        grads: dout [B, H, M, Dv], gradient by the output, any strides; and dlse [B, H, M], gradient by the log-sums, or
            None.
        lse: the log-sums of the forward pass.
        operands: q, k and v.
        gradients: tensors from `allocate_gradients`.
    """
    q, k, v = operands
    dq, dk, dv = gradients
    if not q.numel() or not k.numel():
        for gradient in gradients:
            gradient.zero_()
        return None
    dout, dlse = grads
    # an expanded gradient, for example that of a sum, has a last stride of 0
    dout = dout if dout.stride(3) == 1 else dout.contiguous()
    dlse = None if dlse is None else dlse.contiguous()
    if dk.numel() or dv.numel():
        # one kernel writes both: allocate the gradient that was not requested
        dk, dv = dk if dk.numel() else allocate_like(k), dv if dv.numel() else allocate_like(v)
    return dout, dlse, lse.contiguous(), (dq, dk, dv)
