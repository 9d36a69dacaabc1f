"""Torch operators for the two basic block-sparse products, with gradients.

    sdd   C = A @ B, only in the layout's blocks      A, B dense, C sparse
    dsd   C = S @ D, or S^T @ D if transposed        S sparse, D and C dense

Their gradients are products of these two forms as well:

    sdd   dA = dC @ B^T (dsd)                            dB = (dC^T @ A)^T (dsd, transposed)
    dsd   dS = dC @ D^T (sdd)                            dD = S^T @ dC (dsd, transposed)

If S is transposed, dS is D @ dC^T and dD is S @ dC, not transposed.

The operators of the namespace ``nojit`` take a layout as packed tables and sizes, so that torch can trace them.
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from nojit.kernels.block_sparse.matmul.launch import run_dsd, run_sdd
from nojit.kernels.block_sparse.packing import Packing, Sizes
from nojit.kernels.calls.memos import DIRECT
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import is_plain, shown
from torch import Tensor

__all__ = ["dsd", "dsd_into", "sdd", "sdd_into"]


def sdd(a: Tensor, b: Tensor, packing: Packing, deterministic: bool) -> Tensor:
    """Multiply a [Z, H, M, K] by b [Z, H, K, N] into new blocks [Z, nnz, block, block].

    `deterministic` makes the gradients sum up in a fixed order.

    `packing`: the layout's tables for products, and their sizes.
    """
    if is_plain(a, b):
        return _sdd(a, b, packing.tables, packing.sizes, deterministic)
    result: Tensor = _sdd_op(a, b, shown(packing.tables, a), packing.sizes, deterministic)
    return result


def sdd_into(a: Tensor, b: Tensor, packing: Packing, out: Tensor) -> None:
    """Multiply a [Z, H, M, K] by b [Z, H, K, N] into the blocks `out`; autograd does not record it.

    `packing`: the layout's tables for products, and their sizes.
    """
    if is_plain(a, b, out):
        _sdd_into(a, b, packing.tables, packing.sizes, out)
    else:
        _sdd_out_op(a, b, shown(packing.tables, a), packing.sizes, out)


def dsd(s: Tensor, d: Tensor, packing: Packing, is_transposed: bool, flip: bool, deterministic: bool) -> Tensor:
    """Multiply blocks s [Z, nnz, block, block] by d [Z, H, K, N]; return [Z, H, M, N].

    Args:
        s: the blocks.
        d: the dense operand.
        packing: the tables of the layout.
        is_transposed: multiply by the transpose of s.
        flip: return a result whose transpose is contiguous.
        deterministic: sum up in a fixed order.
    """
    if is_plain(s, d):
        return _dsd(s, d, packing.tables, packing.sizes, is_transposed, flip, deterministic)
    result: Tensor = _dsd_op(s, d, shown(packing.tables, s), packing.sizes, is_transposed, flip, deterministic)
    return result


def dsd_into(s: Tensor, d: Tensor, packing: Packing, is_transposed: bool, deterministic: bool, out: Tensor) -> None:
    """Multiply blocks s, or their transpose if `is_transposed`, by d into `out` [Z, H, M, N]; autograd does not record it.

    `packing`: the layout's tables for products, and their sizes.
    """
    if is_plain(s, d, out):
        _dsd_into(s, d, packing.tables, packing.sizes, is_transposed, deterministic, out)
    else:
        _dsd_out_op(s, d, shown(packing.tables, s), packing.sizes, is_transposed, deterministic, out)


def _sdd(a: Tensor, b: Tensor, tables: Sequence[Tensor], sizes: Sequence[int], deterministic: bool) -> Tensor:
    out = _allocate_sdd(a, b, tables, sizes, deterministic)
    _sdd_into(a, b, tables, sizes, out)
    return out


def _allocate_sdd(
    a: Tensor,
    b: Tensor,  # noqa: ARG001 - the operator's signature
    tables: Sequence[Tensor],  # noqa: ARG001 - as above
    sizes: Sequence[int],
    deterministic: bool,  # noqa: ARG001 - its gradient is
) -> Tensor:
    own = Sizes(*sizes)
    return a.new_empty(a.shape[0], own.nnz, own.block, own.block)


def _sdd_into(a: Tensor, b: Tensor, tables: Sequence[Tensor], sizes: Sequence[int], out: Tensor) -> None:
    run_sdd(a, b, tables, sizes, out, DIRECT)


def _dsd(
    s: Tensor,
    d: Tensor,
    tables: Sequence[Tensor],
    sizes: Sequence[int],
    is_transposed: bool,
    flip: bool,
    deterministic: bool,
) -> Tensor:
    out = _allocate_dsd(s, d, tables, sizes, is_transposed, flip, deterministic)
    _dsd_into(s, d, tables, sizes, is_transposed, deterministic, out)
    return out


def _allocate_dsd(
    s: Tensor,  # noqa: ARG001 - the operator's signature
    d: Tensor,
    tables: Sequence[Tensor],  # noqa: ARG001 - as above
    sizes: Sequence[int],
    is_transposed: bool,
    flip: bool,
    deterministic: bool,  # noqa: ARG001 - as above
) -> Tensor:
    """Allocate the result of a product of blocks by a dense matrix; with `flip`, so that its transpose is contiguous.

    `tables`: the layout's tables for this product.
    """
    batch, heads, _, cols = d.shape
    rows = Sizes(*sizes).rows_of(is_transposed)
    # no view: autograd lets nobody write to one that it recorded
    strides = (1, rows) if flip else (cols, 1)
    return d.new_empty_strided((batch, heads, rows, cols), (heads * rows * cols, rows * cols, *strides))


def _dsd_into(
    s: Tensor,
    d: Tensor,
    tables: Sequence[Tensor],
    sizes: Sequence[int],
    is_transposed: bool,
    deterministic: bool,
    out: Tensor,
) -> None:
    run_dsd(s, d, tables, sizes, is_transposed, deterministic, out, DIRECT)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    left, right, tables, *ctx.rest = inputs
    ctx.save_for_backward(left, right, *tables)


def _sdd_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    a, b, *tables = ctx.saved_tensors
    sizes, deterministic = ctx.rest
    da = db = None
    if ctx.needs_input_grad[0]:
        da = _dsd_op(grad, b.mT, tables, sizes, False, _has_columns(a), deterministic)
    if ctx.needs_input_grad[1]:
        db = _dsd_op(grad, a, tables, sizes, True, not _has_columns(b), deterministic).mT
    return da, db, [None] * len(tables), None, None


def _dsd_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    s, d, *tables = ctx.saved_tensors
    sizes, is_transposed, _, deterministic = ctx.rest
    ds = dd = None
    if ctx.needs_input_grad[0]:
        left, right = (d, grad.mT) if is_transposed else (grad, d.mT)
        ds = _sdd_op(left, right, tables, sizes, deterministic)
    if ctx.needs_input_grad[1]:
        dd = _dsd_op(s, grad, tables, sizes, not is_transposed, _has_columns(d), deterministic)
    return ds, dd, [None] * len(tables), None, None, None, None


def _has_columns(value: Tensor) -> bool:
    """Return whether a dense operand is column-major; its gradient is then column-major as well."""
    return bool(value.stride(2) == 1 and value.stride(3) != 1)


def _over_batches(product: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, int]]:
    """Return the ``vmap`` rule of a product: the mapped dimension of its two operands becomes part of the batch."""

    def rule(info: Any, in_dims: Sequence[Any], left: Tensor, right: Tensor, *rest: Any) -> tuple[Tensor, int]:
        operands = [_in_front(value, dim, info.batch_size) for value, dim in zip((left, right), in_dims, strict=False)]
        result = product(*(operand.flatten(0, 1) for operand in operands), *rest)
        return result.unflatten(0, operands[0].shape[:2]), 0

    return rule


def _in_front(operand: Tensor, dim: int | None, count: int) -> Tensor:
    """Return `operand` as [count, Z, ...]: dimension `dim` moves to the front; for None the operand is repeated."""
    return operand.expand(count, *operand.shape) if dim is None else operand.movedim(dim, 0)


_LAYOUT: Final = "Tensor[] tables, int[] sizes"
_sdd_op = define(
    f"block_sparse_sdd(Tensor a, Tensor b, {_LAYOUT}, bool deterministic) -> Tensor",
    _sdd,
    _allocate_sdd,
    backward=_sdd_backward,
    save=_save,
)
_sdd_out_op = define(f"block_sparse_sdd_out(Tensor a, Tensor b, {_LAYOUT}, Tensor(a!) out) -> ()", _sdd_into)
_dsd_op = define(
    f"block_sparse_dsd(Tensor s, Tensor d, {_LAYOUT}, bool is_transposed, bool flip, bool deterministic) -> Tensor",
    _dsd,
    _allocate_dsd,
    backward=_dsd_backward,
    save=_save,
)
_dsd_out_op = define(
    f"block_sparse_dsd_out(Tensor s, Tensor d, {_LAYOUT}, bool is_transposed, bool deterministic, Tensor(a!) out) -> ()",
    _dsd_into,
)
torch.library.register_vmap("nojit::block_sparse_sdd", _over_batches(_sdd_op))
torch.library.register_vmap("nojit::block_sparse_dsd", _over_batches(_dsd_op))
