"""Expected results of problems of attention: one head at a time in plain torch, with the allowed error.

Rows are compared with the expected ones in groups, because under a causal mask later rows average more values and are
smaller. The allowed error is a multiple of the error of torch's own operators in the same precision, plus one unit in
the last place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.attention.problem_shapes import AttentionShape
from nojit.kernels.problem import RequestedLaunch, Work, rounding
from torch import Tensor

__all__ = ["Part", "RowSums", "gradient_parts", "output_parts", "work"]

# row numbers at which the groups of rows end
_GROUP_ENDS: Final = (16, 64, 256, 1024, 4096)
# queries that the reference computes at a time
_CHUNK: Final = 2048
_OUTPUT_FACTOR: Final = 2
_GRADIENT_FACTOR: Final = 3


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that a launch writes, with their expected values and the allowed error."""

    written: Tensor
    expected: Tensor
    tolerance: float
    gradient: int = 0
    """Number of the operand that these rows are the gradient of: 0 for q, 1 for k, 2 for v."""


@dataclass(frozen=True, slots=True)
class RowSums:
    """Log-sum and delta of each query, inputs of the gradient kernels: fp32 [B, H, M] each."""

    lse: Tensor
    delta: Tensor

    @classmethod
    def guessed(cls, problem: AttentionShape, device: str) -> RowSums:
        """Return plausible values for all heads; the caller overwrites those of the heads to be checked."""
        shape = (problem.batch, problem.heads, problem.q_len)
        return cls(torch.full(shape, math.log(problem.kv_len) + 0.5, device=device), torch.zeros(shape, device=device))


@dataclass(frozen=True, slots=True)
class _Head:
    """The gradients of one query head, and its log-sums and delta."""

    lse: Tensor
    delta: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


def work(launch: RequestedLaunch, parts: Sequence[Part], tensors: Sequence[Tensor], flops: int) -> Work:
    """Combine a launch with its expected results; `tensors` are all that it reads or writes, to count bytes."""
    return launch.work(
        outputs=tuple(part.written for part in parts),
        expected=tuple(part.expected for part in parts),
        tolerances=tuple(part.tolerance for part in parts),
        moved_bytes=sum(value.numel() * value.element_size() for value in tensors),
        flops=flops,
    )


def output_parts(head: tuple[Tensor, Tensor, Tensor], out: Tensor, shape: AttentionShape) -> Iterator[Part]:
    """Yield the groups of rows of one head's output `out` [M, Dv]; `head` is its q, k and v."""
    q, k, v = head
    # torch cannot multiply e4m3: use the same values in the output's dtype
    exact, torchs = (_output(q.to(dtype), k.to(dtype), v.to(dtype), shape) for dtype in (torch.float32, out.dtype))
    yield from _groups(out, exact, torchs, _OUTPUT_FACTOR)


def gradient_parts(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    written: tuple[Tensor, ...],
    sums: RowSums,
    place: tuple[int, int],
    shape: AttentionShape,
) -> Iterator[Part]:
    """Yield the groups of gradient rows that depend on one key head of one batch; write their `sums`.

    Args:
        tensors: q, k, v and dout.
        written: the gradients that the kernel writes.
        sums: log-sums and delta, which this function writes for these heads.
        place: (batch, key head).
        shape: the problem.
    """
    q, k, v, dout = tensors
    (batch, kv_head), group = place, shape.heads // shape.kv_heads
    exact, torchs = [], []
    for head in range(kv_head * group, (kv_head + 1) * group):
        own = (q[batch, head], k[batch, kv_head], v[batch, kv_head], dout[batch, head])
        exact.append(_gradients(*(value.float() for value in own), shape=shape))
        torchs.append(_gradients(*own, shape=shape))
        sums.lse[batch, head], sums.delta[batch, head] = exact[-1].lse, exact[-1].delta
        yield from _groups(written[0][batch, head], exact[-1].dq, torchs[-1].dq, _GRADIENT_FACTOR)
    for number, name in ((1, "dk"), (2, "dv")):
        right, own_error = (torch.stack([getattr(head, name) for head in heads]).sum(0) for heads in (exact, torchs))
        yield from _groups(written[number][batch, kv_head], right, own_error, _GRADIENT_FACTOR, number)


def _groups(written: Tensor, exact: Tensor, torchs: Tensor, factor: int, gradient: int = 0) -> Iterator[Part]:
    ends = [end for end in _GROUP_ENDS if end < len(written)]
    for first, end in zip([0, *ends], [*ends, len(written)], strict=True):
        apart = float((torchs[first:end].float() - exact[first:end]).abs().max())
        tolerance = factor * apart + rounding(exact[first:end], written.dtype)
        yield Part(written[first:end], exact[first:end], tolerance, gradient)


def _scores(q: Tensor, k: Tensor, first: int, shape: AttentionShape) -> Tensor:
    """Return the masked scores of the queries `q`, which start at index `first`."""
    scores = (q @ k.T).float() * shape.head_dim**-0.5
    if shape.is_causal:
        rows = torch.arange(first, first + len(q), device=q.device)[:, None] + shape.offset
        scores = scores.masked_fill(torch.arange(len(k), device=q.device) > rows, float("-inf"))
    return scores


def _output(q: Tensor, k: Tensor, v: Tensor, shape: AttentionShape) -> Tensor:
    """Compute attention for one head, `_CHUNK` queries at a time, in the dtype of the operands."""
    starts = range(0, len(q), _CHUNK)
    return torch.cat([torch.softmax(_scores(q[at : at + _CHUNK], k, at, shape), -1).to(q.dtype) @ v for at in starts])


def _gradients(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, *, shape: AttentionShape) -> _Head:
    """Compute the gradients of one head, `_CHUNK` queries at a time; sums over chunks are fp32."""
    dk, dv = (torch.zeros(value.shape, device=q.device) for value in (k, v))
    lse, delta, dq = [], [], []
    for at in range(0, len(q), _CHUNK):
        queries, grad = q[at : at + _CHUNK], dout[at : at + _CHUNK]
        scores = _scores(queries, k, at, shape)
        weights = torch.softmax(scores, -1)
        rounded = weights.to(q.dtype)
        lse.append(torch.logsumexp(scores, -1))
        delta.append(((rounded @ v).float() * grad.float()).sum(-1))
        dscores = (weights * ((grad @ v.T).float() - delta[-1][:, None])).to(q.dtype)
        dv += (rounded.T @ grad).float()
        dk += (dscores.T @ queries).float() * shape.head_dim**-0.5
        dq.append((dscores @ k).float() * shape.head_dim**-0.5)
    return _Head(torch.cat(lse), torch.cat(delta), torch.cat(dq), dk, dv)
