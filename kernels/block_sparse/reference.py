"""The block-sparse operators in plain torch, through dense matrices, computed in the operands' dtype (fp64 works as well)."""

from __future__ import annotations

import torch
from nojit.kernels.block_sparse.layout import BlockLayout
from torch import Tensor

__all__ = ["block_sparse_matmul", "block_sparse_softmax", "to_dense", "to_sparse"]


def to_dense(sparse: Tensor, layout: BlockLayout, fill: float = 0.0) -> Tensor:
    """Scatter blocks [Z, nnz, block, block] into a dense tensor [Z, H, M, N], with `fill` outside the blocks.

    `layout`: the positions of active blocks.
    """
    active, block = layout.active, layout.block
    dense = sparse.new_full((sparse.shape[0], active.shape[0], layout.rows, block, layout.cols, block), fill)
    head, row, col = active.nonzero().unbind(1)
    dense[:, head, row, :, col, :] = sparse.transpose(0, 1)
    return dense.reshape(sparse.shape[0], active.shape[0], *layout.shape)


def to_sparse(dense: Tensor, layout: BlockLayout) -> Tensor:
    """Gather the active blocks of a dense tensor [Z, H, M, N] into [Z, nnz, block, block].

    `layout`: the positions of active blocks.
    """
    active, block = layout.active, layout.block
    blocks = dense.reshape(dense.shape[0], active.shape[0], layout.rows, block, layout.cols, block)
    head, row, col = active.nonzero().unbind(1)
    return blocks[:, head, row, :, col, :].transpose(0, 1)


def _term(mask: Tensor, mode: str, like: Tensor) -> Tensor:
    if mode == "mul":
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask == 0, float("-inf"))
    return mask.to(like.dtype)


def block_sparse_softmax(
    x: Tensor,
    layout: BlockLayout,
    *,
    scale: float = 1.0,
    relative_position: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    key_padding_mask_mode: str = "add",
    attention_mask_mode: str = "add",
    is_causal: bool = False,
) -> Tensor:
    """Return what `nojit.kernels.block_sparse.block_sparse_softmax` returns, computed densely; `layout` must have heads."""
    scores = to_dense(x * scale, layout)
    if relative_position is not None:
        scores = scores + relative_position
    if key_padding_mask is not None:
        scores = scores + _term(key_padding_mask, key_padding_mask_mode, x)[:, None, None, :]
    if attention_mask is not None:
        scores = scores + _term(attention_mask, attention_mask_mode, x)
    seen = to_dense(torch.ones_like(x), layout) > 0
    if is_causal:
        seen = seen & torch.ones(layout.shape, dtype=torch.bool, device=x.device).tril()
    scores = scores.masked_fill(~seen, float("-inf"))
    lost = (scores == float("-inf")).all(-1, keepdim=True)
    y = torch.softmax(scores.masked_fill(lost, 0.0), -1).masked_fill(lost, 0.0)
    return to_sparse(y, layout)


def block_sparse_matmul(
    a: Tensor,
    b: Tensor,
    layout: BlockLayout,
    mode: str,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    trans_c: bool = False,
) -> Tensor:
    """Return what `nojit.kernels.block_sparse.block_sparse_matmul` returns, computed densely.

    `layout` must have heads, and operands four dimensions.

    `mode`: which of result, a and b is sparse: ``"sdd"``, ``"dsd"`` or ``"dds"``.
    """
    left = to_dense(a, layout) if mode == "dsd" else a
    right = to_dense(b, layout) if mode == "dds" else b
    product = (left.mT if trans_a else left) @ (right.mT if trans_b else right)
    product = product.mT if trans_c else product
    return to_sparse(product, layout) if mode == "sdd" else product
