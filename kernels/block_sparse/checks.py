"""Validation of the arguments of the block-sparse softmax and of block-sparse attention."""

# ruff: noqa: PLR0917 - the operator has as many arguments

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.calls.arguments import (
    check_choice,
    check_dtype,
    check_like,
    check_rank,
    check_shape,
    check_tensor,
    check_tensors,
    refuse_type,
    refuse_value,
)
from nojit.kernels.calls.torch_state import autocasts, lowered
from torch import Tensor

__all__ = ["MODES", "check_attention", "check_bias", "check_mask", "check_sparse", "check_writable"]

MODES: Final = ("add", "mul")
_BIAS_DIMS_WITH_HEADS: Final = 3


def check_sparse(x: Tensor, layout: BlockLayout, name: str = "x", bias: Tensor | None = None) -> int:
    """Validate a sparse tensor [Z, nnz, block, block] against its layout; return its number of heads.

    If all heads share a layout without active blocks, `x` has no blocks for any number of heads; the heads of `bias`
    then determine it.
    """
    if not isinstance(layout, BlockLayout):
        refuse_type("layout", "a BlockLayout", type(layout).__name__)
    check_tensor(name, x)
    check_dtype(name, x)
    check_rank(name, x, "Z, nnz, block, block")
    check_shape(name, x, (*x.shape[:2], layout.block, layout.block), "Z, nnz, block, block")
    heads = layout.heads_of(x.shape[1])
    if layout.heads is None and not layout.nnz and isinstance(bias, Tensor) and bias.dim() >= _BIAS_DIMS_WITH_HEADS:
        return int(bias.shape[-3])
    return heads


def check_bias(bias: Tensor | None, x: Tensor, size: tuple[int, ...], name: str = "relative_position") -> Tensor | None:
    """Return an optional bias expanded to `size`, [Z, H, M, N]; require the dtype and device of `x`."""
    if bias is None:
        return None
    if autocasts():
        bias = lowered(bias, x.dtype)
    check_like(name, bias, "x", x)
    try:
        return bias.expand(size)
    except RuntimeError:
        refuse_value(name, f"a shape that broadcasts to {size} [Z, H, M, N]", tuple(bias.shape))


def check_mask(
    name: str, mask: Tensor | None, mode: str, x: Tensor, shape: tuple[int, ...], dims: str
) -> Tensor | None:
    """Return an optional mask in the dtype of `x`; require the given shape, and mode ``"mul"`` for a bool mask."""
    check_choice(f"{name}_mode", mode, MODES)
    if mask is None:
        return None
    if autocasts():
        mask = lowered(mask, x.dtype)
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        if mode != "mul":
            refuse_value(f"{name}_mode", "'mul' with a bool mask", repr(mode))
        mask = mask.to(x.dtype)
    check_like(name, mask, "x", x)
    check_shape(name, mask, shape, dims)
    if mask.requires_grad:
        refuse_value(name, "a mask that requires no grad", "one that does: masks have no gradient")
    return mask


def check_writable(x: Tensor) -> None:
    """Require a tensor that an in-place operator can overwrite."""
    if any(size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride(), strict=True)):
        refuse_value("x", "a tensor without repeated elements, as it is overwritten", f"strides {x.stride()}")
    if torch.is_grad_enabled() and x.requires_grad and x.is_leaf:
        refuse_value("x", "no leaf that requires grad, as it is overwritten", "one")


def check_attention(q: Tensor, k: Tensor, v: Tensor, layout: BlockLayout) -> None:
    """Require q [B, H, M, D], k and v whose shapes, dtypes and devices match each other, and M and N those of `layout`."""
    check_tensor("q", q)
    check_tensors(k=k, v=v)
    for name, value in (("k", k), ("v", v)):
        if not autocasts():
            check_like(name, value, "q", q)
        check_rank(name, value, "B, H, N, D" if name == "k" else "B, H, N, Dv")
    check_rank("q", q, "B, H, M, D")
    (batch, heads, _, dim), (rows, cols) = q.shape, layout.shape
    heads = heads if layout.heads is None else layout.heads
    check_shape("q", q, (batch, heads, rows, dim), "B, H, M, D")
    check_shape("k", k, (batch, heads, cols, dim), "B, H, N, D")
    check_shape("v", v, (batch, heads, cols, v.shape[3]), "B, H, N, Dv")
