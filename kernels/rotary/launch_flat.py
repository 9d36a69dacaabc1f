"""Launches of the flat kernel, which rotates query and key whole, as halves of vectors."""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels import library
from nojit.kernels.calls.memos import Caller
from nojit.kernels.calls.strides import merged_stride, named
from nojit.kernels.rotary.rows import Rows, row_stride
from torch import Tensor

__all__ = ["VECTOR", "Pair", "launch_flat"]

KERNEL: Final = "rotary_flat"
VECTOR: Final = 8
"""Elements of a vector: strides and halves are multiples of it."""
_ALIGNMENT: Final = 16
"""The kernel loads and stores as many bytes at a time."""
_MOST: Final = 1 << 30
"""A bound on the pairs of vectors of query or key, whose numbers are int32."""


class Pair(NamedTuple):
    """A call that rotates query and key, and nothing else; without a key, `k` and `k_out` have strides of 0."""

    q: Rows
    k: Rows
    q_out: Rows
    k_out: Rows
    cos: Tensor
    sin: Tensor
    positions: Tensor
    position_strides: tuple[int, int]
    """Of sequences and tokens."""
    has_positions: bool
    k_heads: int
    sign: float
    """1, or -1 to rotate back."""


def launch_flat(pair: Pair, caller: Caller) -> bool:
    """Launch the flat kernel if a bundle has it, tensors are aligned and their tokens evenly spaced; return whether it was launched.

    `caller`: allocates and launches, or also records both for replays.
    """
    query = pair.q.value
    tensors = (query, pair.k.value, pair.q_out.value, pair.k_out.value, pair.cos, pair.sin)
    if any(each.data_ptr() % _ALIGNMENT for each in tensors):
        return False
    tokens, length, q_heads = query.shape[:-2].numel(), query.shape[-3], query.shape[-2]
    vectors = pair.cos.shape[1] // VECTOR
    # those of sequences and of tokens, as one dimension
    shape = tokens // length, length
    by_position = merged_stride(shape, pair.position_strides)
    strides: dict[str, int] = {}
    for name, rows in (("q", pair.q), ("k", pair.k), ("qo", pair.q_out), ("ko", pair.k_out)):
        step = merged_stride(shape, rows.strides[:2])
        if step is None:
            return False
        strides |= named(f"stride_{name}", "th", (step // VECTOR, rows.strides[2] // VECTOR))
    if by_position is None or tokens * max(q_heads, pair.k_heads) * vectors > _MOST or not library.has(KERNEL):
        return False
    caller.launch(
        KERNEL,
        q_ptr=query,
        k_ptr=pair.k.value,
        q_out_ptr=pair.q_out.value,
        k_out_ptr=pair.k_out.value,
        cos_ptr=pair.cos,
        sin_ptr=pair.sin,
        positions_ptr=pair.positions,
        tokens=tokens,
        length=length,
        q_heads=q_heads,
        k_heads=pair.k_heads,
        vectors=vectors,
        has_positions=int(pair.has_positions),
        sign=pair.sign,
        **strides,
        stride_cos=row_stride(pair.cos) // VECTOR,
        stride_sin=row_stride(pair.sin) // VECTOR,
        stride_p=by_position,
    )
    return True
