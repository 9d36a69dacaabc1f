"""Launches of the block-sparse softmax and its gradient, for validated arguments."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.arguments import check_like, check_shape
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.strides import named
from torch import Tensor

__all__ = ["allocate_gradients", "launch_forward", "softmax_backward", "softmax_forward"]

APART_BYTES: Final = 1 << 24
"""Sparse tensors of at least this many bytes get a separate launch for their long rows."""


def _strides(value: Tensor | None, count: int) -> tuple[int, ...]:
    """Return the strides of an optional tensor with `count` dimensions.

    For None they are 0, and 1 for the last: values that satisfy every hint of a variant.
    """
    return (*(0,) * (count - 1), 1) if value is None else tuple(value.stride())


def _listed(x: Tensor, spans: Tensor, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the launches for a sparse tensor: one, or two if its long block rows get a launch of their own.

    They get one if the tensor has at least `APART_BYTES` bytes and the best tile for them differs from that for other
    rows.

    Yields:
        By the names of the kernels' params: block rows to process (rows of `spans`), the number of long ones among
            them, and sizes.
    """
    block, rows, _, longest, long, blocks, next_longest = sizes
    is_large = library.is_batch_invariant() or x.numel() * x.element_size() >= APART_BYTES
    if long and is_large and (longest - 1).bit_length() > (next_longest - 1).bit_length():
        yield _numbers(spans[:long], 0, rows, block, blocks, longest)
        yield _numbers(spans[long:], 0, rows, block, x.shape[1] - blocks, next_longest)
    else:
        yield _numbers(spans, long, rows, block, x.shape[1], longest)


def _numbers(spans: Tensor, long: int, rows: int, block: int, blocks: int, longest: int) -> dict[str, Any]:
    sizes = {"listed": len(spans), "rows": rows, "block": block, "blocks": blocks, "max_row_blocks": longest}
    return {"spans_ptr": spans, "long_rows": long, **sizes}


def launch_forward(
    x: Tensor,
    out: Tensor,
    spans: Tensor,
    columns: Tensor,
    sizes: Sequence[int],
    scale: float,
    rpe: Tensor | None,
    kpm: Tensor | None,
    am: Tensor | None,
    kpm_multiplies: bool,
    am_multiplies: bool,
    is_causal: bool,
    *,
    caller: Caller = DIRECT,
) -> None:
    """Launch the softmax of validated arguments, from x into `out`.

    `caller`: allocates and launches, or also records both for replays; `spans`: int32 [heads * rows, 3]: block row,
    first block, number of blocks; `kpm_multiplies`: whether the key padding mask multiplies the scores, instead of
    adding to them; `am_multiplies`: whether the attention mask does.
    """
    if not x.numel():
        return
    for numbers in _listed(x, spans, sizes):
        caller.constant(numbers["spans_ptr"])
        caller.launch(
            "block_sparse_softmax_fwd",
            x_ptr=x,
            out_ptr=out,
            columns_ptr=columns,
            rpe_ptr=rpe,
            kpm_ptr=kpm,
            am_ptr=am,
            scale=scale,
            kpm_multiplies=int(kpm_multiplies),
            am_multiplies=int(am_multiplies),
            batch=x.shape[0],
            **numbers,
            **named("stride_x", "zbrc", x.stride()),
            **named("stride_o", "zbrc", out.stride()),
            **named("stride_r", "zhmn", _strides(rpe, 4)),
            **named("stride_k", "zn", _strides(kpm, 2)),
            **named("stride_a", "mn", _strides(am, 2)),
            CAUSAL=bool(is_causal),
        )


def softmax_forward(
    x: Tensor,
    spans: Tensor,
    columns: Tensor,
    sizes: Sequence[int],
    scale: float,
    *terms: Any,
    caller: Caller = DIRECT,
) -> Tensor:
    """Compute the softmax of validated arguments into a new tensor.

    Args:
        x: scores [Z, nnz, block, block].
        spans: table `Tables.spans`.
        columns: table `Tables.columns`.
        sizes: the fields of `RowSizes`.
        scale: factor of x.
        terms: bias, masks, their modes, and whether the call is causal.
        caller: launches the kernels.
    """
    out = caller.make(Tensor.new_empty, x, *x.shape)
    launch_forward(x, out, spans, columns, sizes, scale, *terms, caller=caller)
    return out


def softmax_backward(
    y: Tensor,
    dy: Tensor,
    spans: Tensor,
    columns: Tensor,
    sizes: Sequence[int],
    scale: float,
    wants_bias: bool,
) -> tuple[Tensor, Tensor]:
    """Compute the gradient by the scores, and that by the bias if `wants_bias`; `sizes` are the fields of `RowSizes`.

    `spans`: int32 [heads * rows, 3]: block row, first block, number of blocks.
    """
    check_like("dy", dy, "y", y)
    check_shape("dy", dy, y.shape, "Z, nnz, block, block")
    dx, drpe = allocate_gradients(y, spans, sizes, wants_bias)
    bias = drpe if wants_bias else None
    if y.numel():
        for numbers in _listed(y, spans, sizes):
            library.get("block_sparse_softmax_bwd")(
                y_ptr=y,
                dy_ptr=dy,
                dx_ptr=dx,
                drpe_ptr=bias,
                columns_ptr=columns,
                scale=scale,
                batch=y.shape[0],
                **numbers,
                **named("stride_y", "zbrc", y.stride()),
                **named("stride_g", "zbrc", dy.stride()),
                **named("stride_d", "zbrc", dx.stride()),
                **named("stride_r", "zhmn", _strides(bias, 4)),
            )
    return dx, drpe


def allocate_gradients(y: Tensor, spans: Tensor, sizes: Sequence[int], wants_bias: bool) -> tuple[Tensor, Tensor]:
    """Allocate dx and, if `wants_bias`, a zeroed gradient of the dense bias [Z, H, M, N], or else an empty tensor.

    `spans`: int32 [heads * rows, 3]: block row, first block, number of blocks.
    """
    block, rows, cols, *_ = sizes
    heads = spans.shape[0] // rows if rows else 0
    dense = (y.shape[0], heads, rows * block, cols * block)
    return torch.empty_like(y, memory_format=torch.contiguous_format), y.new_zeros(dense if wants_bias else (0,))
