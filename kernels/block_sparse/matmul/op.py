"""``block_sparse_matmul``: validation, and reduction of all modes and transposes to the two products of `op_autograd`.

These are ``sdd`` (dense by dense, sparse result) and ``dsd`` (sparse by dense). Dense tensors are transposed by their
strides. ``dds`` is the transpose of a ``dsd``, ``C^T = S^T @ D^T``. A transposed result swaps the operands.
"""

# ruff: noqa: PLR0917 - an operator has many arguments, and its checks pass them on

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels import library
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.matmul import launch, op_autograd
from nojit.kernels.block_sparse.packing import Packing
from nojit.kernels.calls.arguments import (
    check_apart,
    check_choice,
    check_dtype,
    check_flags,
    check_like,
    check_result,
    check_shape,
    check_tensor,
    check_unrepeated,
    refuse_type,
    refuse_value,
)
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.torch_state import autocasts, differentiates, is_plain, lowered, precision, written
from torch import Tensor

__all__ = ["block_sparse_matmul"]

MODES: Final = ("sdd", "dsd", "dds")
_DIMS: Final = 4


def block_sparse_matmul(
    a: Tensor,
    b: Tensor,
    layout: BlockLayout,
    mode: str,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    trans_c: bool = False,
    out: Tensor | None = None,
    deterministic: bool = True,
) -> Tensor:
    """Compute ``c = op(a) @ op(b)``, where one of a, b and c is block-sparse; op is a transpose or nothing.

    The letters of `mode` stand for c, a and b: s is sparse, d is dense. Dense tensors are [Z, H, rows, columns], sparse
    ones [Z, nnz, block, block] in the layout's order of blocks. Both may have any strides. Operands with fewer than
    four dimensions get leading dimensions of 1. Batches and heads must agree: to share an operand among them, expand
    it.

    Args:
        a: the left operand; fp16, bf16 or fp32. Autocast casts both operands, unless `out` is given.
        b: the right operand, of the same dtype and device.
        layout: the active blocks of the sparse tensor as it is stored; a layout without heads serves any number.
        mode: ``"sdd"``, ``"dsd"`` or ``"dds"``.
        trans_a: use the transpose of a; for a sparse a, `layout` describes a as it is stored.
        trans_b: use the transpose of b; for a sparse b, `layout` describes b as it is stored.
        trans_c: return the transpose of c. ``"sdd"``: `layout` has the active blocks of the transpose, [N, M].
            ``"dsd"`` and ``"dds"``: the result is [Z, H, N, M].
        out: where to write the result; it must not require a gradient or overlap an operand.
        deterministic: return the same bits every time. With False, fp32 atomics sum up rows with many blocks in any
            order, which takes less memory.

    Returns:
        c, contiguous, with four dimensions and the dtype of `a`; or `out`. Sums are fp32. fp32 operands are multiplied
        in full precision unless torch's switch for matmuls allows TF32. Differentiable twice in `a` and `b`.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or mode.
    """
    if out is None and type(layout) is BlockLayout and not torch.compiler.is_dynamo_compiling():
        source = library.CURRENT.source
        known: Tensor | None = layout.products(a, b, source, mode, trans_a, trans_b, trans_c, deterministic)
        if known is not None:
            return known
    if autocasts() and out is None:
        a, b = lowered(a), lowered(b)
    if out is not None or type(layout) is not BlockLayout or not is_plain(a, b):
        return _multiply(a, b, layout, mode, trans_a, trans_b, trans_c, out, deterministic)
    return _multiply_plain(a, b, layout, mode, trans_a, trans_b, trans_c, deterministic)


def _multiply(
    a: Tensor,
    b: Tensor,
    layout: BlockLayout,
    mode: str,
    trans_a: bool,
    trans_b: bool,
    trans_c: bool,
    out: Tensor | None,
    deterministic: bool,
) -> Tensor:
    """Validate and run a product, without torch's dispatcher if the call needs no autograd or tracing.

    `layout`: the positions of active blocks; `mode`: which of result, a and b is sparse: ``"sdd"``, ``"dsd"`` or
    ``"dds"``.
    """
    check_flags(trans_a=trans_a, trans_b=trans_b, trans_c=trans_c, deterministic=deterministic)
    a, b, packing = _check(a, b, layout, mode, trans_a, trans_b, trans_c)
    # traced tensors have no addresses
    if out is not None and is_plain(a, b, out):
        check_apart("out", out, "a", a)
        check_apart("out", out, "b", b)
    if mode == "sdd":
        left, right = _sides(a, b, trans_a, trans_b, trans_c)
        return _run_sdd(left, right, packing, deterministic, out)
    s, d, is_transposed, flip = _blocks_first(a, b, mode, trans_a, trans_b, trans_c)
    return _run_dsd(s, d, packing, is_transposed, flip, deterministic, out)


def _multiply_plain(
    a: Tensor,
    b: Tensor,
    layout: BlockLayout,
    mode: str,
    trans_a: bool,
    trans_b: bool,
    trans_c: bool,
    deterministic: bool,
) -> Tensor:
    """Run a new call without torch's dispatcher, and cache its launch arguments for replays.

    `layout`: the positions of active blocks; `mode`: which of result, a and b is sparse: ``"sdd"``, ``"dsd"`` or
    ``"dds"``.
    """
    words: tuple[object, ...] = (mode, trans_a, trans_b, trans_c, deterministic)
    if getattr(a, "dtype", None) is torch.float32:
        # torch's switch decides the precision of fp32
        words += (precision(a.dtype),)
        known: Tensor | None = layout.products(a, b, library.CURRENT.source, *words)
        if known is not None:
            return known
    check_flags(trans_a=trans_a, trans_b=trans_b, trans_c=trans_c, deterministic=deterministic)
    writer = RecipeWriter(a, b)
    own_a, own_b = writer.operands
    left, right, packing = _check(own_a, own_b, layout, mode, trans_a, trans_b, trans_c)
    writer.stands(left, own_a)
    writer.stands(right, own_b)
    out = _record(writer, left, right, packing, mode, trans_a, trans_b, trans_c, deterministic)
    layout.products.remember(writer.recipe(out), a, b, writer.source, *words)
    return out


def _record(
    writer: RecipeWriter,
    a: Tensor,
    b: Tensor,
    packing: Packing,
    mode: str,
    trans_a: bool,
    trans_b: bool,
    trans_c: bool,
    deterministic: bool,
) -> Tensor:
    if mode == "sdd":
        left, right = _sides(a, b, trans_a, trans_b, trans_c)
        writer.stands(left, b if trans_c else a)
        writer.stands(right, a if trans_c else b)
        return _record_sdd(writer, left, right, packing)
    s, d, is_transposed, flip = _blocks_first(a, b, mode, trans_a, trans_b, trans_c)
    writer.stands(d, a if mode == "dds" else b)
    return _record_dsd(writer, s, d, packing, is_transposed, flip, deterministic)


def _check(
    a: Tensor, b: Tensor, layout: BlockLayout, mode: str, trans_a: bool, trans_b: bool, trans_c: bool
) -> tuple[Tensor, Tensor, Packing]:
    """Validate a call; return both operands with four dimensions, and the tables of the layout.

    `mode`: which of result, a and b is sparse: ``"sdd"``, ``"dsd"`` or ``"dds"``.
    """
    a, b = _check_operands(a, b, layout, mode)
    name, dense = ("b", b) if mode == "dsd" else ("a", a)
    if layout.heads not in {None, dense.shape[1]}:
        refuse_value(name, f"{layout.heads} heads, as the layout has, in dimension 1 [Z, H, ..]", dense.shape[1])
    own = layout.for_heads(dense.shape[1])
    _check_sizes(a, b, own, mode, trans_a, trans_b, trans_c)
    return a, b, own.packing(a.device, a.dtype)


def _sides(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool, trans_c: bool) -> tuple[Tensor, Tensor]:
    """Return the operands of a product of dense matrices into blocks, left [Z, H, M, K] and right [Z, H, K, N].

    All transposes are applied.
    """
    left, right = a.mT if trans_a else a, b.mT if trans_b else b
    return (right.mT, left.mT) if trans_c else (left, right)


def _blocks_first(
    a: Tensor, b: Tensor, mode: str, trans_a: bool, trans_b: bool, trans_c: bool
) -> tuple[Tensor, Tensor, bool, bool]:
    """Return the operands of ``dsd`` or ``dds`` for `_run_dsd`, which multiplies blocks by a dense matrix.

    `mode`: which of result, a and b is sparse: ``"sdd"``, ``"dsd"`` or ``"dds"``.

    Returns:
        The blocks; the dense operand; whether to transpose the blocks; whether to transpose the product.
    """
    if mode == "dsd":
        return a, b.mT if trans_b else b, trans_a, trans_c
    return b, a if trans_a else a.mT, not trans_b, not trans_c


def _run_sdd(a: Tensor, b: Tensor, packing: Packing, deterministic: bool, out: Tensor | None) -> Tensor:
    if out is None:
        return op_autograd.sdd(a, b, packing, deterministic)
    sizes = packing.sizes
    _check_out(out, a, b, (a.shape[0], sizes.nnz, sizes.block, sizes.block), "Z, nnz, block, block")
    op_autograd.sdd_into(a, b, packing, out)
    return written(out)


def _run_dsd(
    s: Tensor, d: Tensor, packing: Packing, is_transposed: bool, flip: bool, deterministic: bool, out: Tensor | None
) -> Tensor:
    """Multiply blocks by a dense matrix into a new tensor, or into `out`.

    Args:
        s: blocks [Z, nnz, block, block].
        d: dense operand [Z, H, K, N].
        packing: the tables of the layout.
        is_transposed: multiply by the transpose of s.
        flip: return the transpose of the product.
        deterministic: sum up in a fixed order.
        out: where to write the result; None for a new tensor.
    """
    if out is None:
        product = op_autograd.dsd(s, d, packing, is_transposed, flip, deterministic)
        return product.mT if flip else product
    sides = (packing.sizes.rows_of(is_transposed), d.shape[3])
    _check_out(out, s, d, (*d.shape[:2], *(reversed(sides) if flip else sides)), "Z, H, rows, columns")
    op_autograd.dsd_into(s, d, packing, is_transposed, deterministic, out.mT if flip else out)
    return written(out)


def _check_operands(a: Tensor, b: Tensor, layout: BlockLayout, mode: str) -> tuple[Tensor, Tensor]:
    """Validate all except the sizes; return both operands with four dimensions.

    `layout`: the positions of active blocks; `mode`: which of result, a and b is sparse: ``"sdd"``, ``"dsd"`` or
    ``"dds"``.
    """
    check_choice("mode", mode, MODES)
    if not isinstance(layout, BlockLayout):
        refuse_type("layout", "a BlockLayout", type(layout).__name__)
    check_tensor("a", a)
    check_dtype("a", a)
    check_like("b", b, "a", a)
    for name, value in (("a", a), ("b", b)):
        if value.dim() > _DIMS:
            refuse_value(name, f"at most {_DIMS} dimensions", f"shape {tuple(value.shape)}")
    return a[(None,) * (_DIMS - a.dim())], b[(None,) * (_DIMS - b.dim())]


def _check_sizes(
    a: Tensor, b: Tensor, layout: BlockLayout, mode: str, trans_a: bool, trans_b: bool, trans_c: bool
) -> None:
    """Validate the sizes of both operands against the layout and each other.

    `mode`: which of result, a and b is sparse: ``"sdd"``, ``"dsd"`` or ``"dds"``.
    """
    batch, sparse_sizes = a.shape[0], (layout.nnz, layout.block, layout.block)
    rows, cols = layout.shape
    if mode == "sdd":
        m, n = (cols, rows) if trans_c else (rows, cols)
        k = a.shape[2 if trans_a else 3]
        _check_dense("a", a, batch, layout, (m, k), trans_a, ("M", "K"))
        _check_dense("b", b, batch, layout, (k, n), trans_b, ("K", "N"))
    elif mode == "dsd":
        check_shape("a", a, (batch, *sparse_sizes), "Z, nnz, block, block")
        free = b.shape[2 if trans_b else 3]
        _check_dense("b", b, batch, layout, (rows if trans_a else cols, free), trans_b, ("K", "N"))
    else:
        free = a.shape[3 if trans_a else 2]
        _check_dense("a", a, batch, layout, (free, cols if trans_b else rows), trans_a, ("M", "K"))
        check_shape("b", b, (batch, *sparse_sizes), "Z, nnz, block, block")


def _check_dense(
    name: str,
    value: Tensor,
    batch: int,
    layout: BlockLayout,
    sides: tuple[int, ...],
    transposed: bool,
    names: tuple[str, ...],
) -> None:
    """Require a dense operand [Z, H, *sides], with the sides in reverse order if the call transposes it.

    `layout`: the positions of active blocks.
    """
    step = -1 if transposed else 1
    shape = (batch, layout.heads or 0, *sides[::step])
    check_shape(name, value, shape, f"Z, H, {', '.join(names[::step])}")


def _check_out(out: Tensor, a: Tensor, b: Tensor, shape: tuple[int, ...], dims: str) -> None:
    check_result(out)
    check_like("out", out, "a", a)
    check_shape("out", out, shape, dims)
    if differentiates(a, b, out):
        refuse_value("out", "operands and an out that require no grad", "one that does: use torch.no_grad()")
    check_unrepeated("out", out)


def _record_sdd(writer: RecipeWriter, a: Tensor, b: Tensor, packing: Packing) -> Tensor:
    """Multiply a [Z, H, M, K] by b [Z, H, K, N] into new blocks, and record the launches for replays.

    `packing`: the layout's tables for products, and their sizes.
    """
    own = packing.sizes
    writer.constant(*packing.tables)
    out = writer.make(Tensor.new_empty, a, a.shape[0], own.nnz, own.block, own.block)
    launch.run_sdd(a, b, packing.tables, own, out, writer)
    return out


def _record_dsd(
    writer: RecipeWriter, s: Tensor, d: Tensor, packing: Packing, is_transposed: bool, flip: bool, deterministic: bool
) -> Tensor:
    """Multiply blocks s by d [Z, H, K, N], and record the launches for replays.

    `is_transposed` multiplies by the transpose of s; `flip` returns the transpose of the product.

    `packing`: the layout's tables for products, and their sizes.
    """
    own = packing.sizes
    writer.constant(*packing.tables)
    sides = (own.rows_of(is_transposed), d.shape[3])
    result = writer.make(Tensor.new_empty, d, *d.shape[:2], *(reversed(sides) if flip else sides))
    out = writer.stands(result.mT, result) if flip else result
    launch.run_dsd(s, d, packing.tables, own, is_transposed, deterministic, out, writer)
    return result
