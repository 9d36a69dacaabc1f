"""Block-sparse products: arguments checked, every mode and transpose brought to one of the two forms of `products`.

Transposes of dense tensors are strides. ``dds`` is the ``dsd`` of transposes, ``C^T = S^T @ D^T``; a transposed result
swaps the operands.
"""

# ruff: noqa: PLR0917 - an operator has many arguments, and its checks pass them on

from __future__ import annotations

from typing import Final

import torch
from nojit.kernels.arguments import (
    check_choice,
    check_dtype,
    check_like,
    check_shape,
    check_tensor,
    refuse_type,
    refuse_value,
)
from nojit.kernels.block_sparse import products
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.packing import Packing
from nojit.kernels.block_sparse.prepared import Prepared, facts_of_call, prepare_dsd, prepare_sdd
from nojit.kernels.dispatch import is_plain, written
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
    """Multiply matrices one of which, an operand or the result, is sparse by blocks: ``c = op(a) @ op(b)``.

    The letters of `mode` say which of c, a and b is sparse (s) and which are dense (d). Dense tensors are [Z, H, rows,
    columns], sparse ones [Z, nnz, block, block] in the layout's order of blocks; either may have any strides, and gets
    leading dimensions of 1 where it has fewer than four. Sizes must agree: to share an operand, expand it.

    Args:
        a: the left operand; fp16, bf16 or fp32.
        b: the right operand, of the same dtype and device.
        layout: the active blocks of the sparse tensor as it is stored; one without heads serves any number.
        mode: ``"sdd"``, ``"dsd"`` or ``"dds"``.
        trans_a: transpose a first: the blocks and the layout too if it is the sparse one.
        trans_b: likewise.
        trans_c: give the transpose of c. ``"sdd"``: `layout` has the active blocks of c transposed, [N, M]. ``"dsd"``
            and ``"dds"``: the result is [Z, H, N, M].
        out: where to write the result; it must need no gradient.
        deterministic: give the same bits each time. Otherwise rows that have many blocks are summed up in any order,
            by fp32 atomics, which takes less memory.

    Returns:
        c, contiguous, with four dimensions and the dtype of `a`, or `out`. Sums are taken in fp32; fp32 operands are
        multiplied as such unless torch's switch for matmuls allows TF32. Differentiable in `a` and `b`, twice too.

    Raises:
        ArgumentError: a type, dtype or device that does not fit.
        ValueError: a shape or mode that does not fit.
    """
    if out is not None or type(layout) is not BlockLayout or not is_plain(a, b):
        return _multiply(a, b, layout, mode, trans_a, trans_b, trans_c, out, deterministic)
    facts = facts_of_call(a, b, mode, trans_a, trans_b, trans_c, deterministic)
    call = layout.prepared.get(facts)
    if call is None:
        call = _prepare(a, b, layout, mode, trans_a, trans_b, trans_c, deterministic)
        layout.remember(facts, call)
    return call(a, b)


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
    """Check and multiply, through torch's dispatcher where something has to see it."""
    a, b, packing = _check(a, b, layout, mode, trans_a, trans_b, trans_c)
    if mode == "sdd":
        left, right = _sides(a, b, trans_a, trans_b, trans_c)
        return _run_sdd(left, right, packing, deterministic, out)
    s, d, turned, flip = _blocks_first(a, b, mode, trans_a, trans_b, trans_c)
    return _run_dsd(s, d, packing, turned, flip, deterministic, out)


def _prepare(
    a: Tensor,
    b: Tensor,
    layout: BlockLayout,
    mode: str,
    trans_a: bool,
    trans_b: bool,
    trans_c: bool,
    deterministic: bool,
) -> Prepared:
    """Check a call, and prepare it and its like."""
    a, b, packing = _check(a, b, layout, mode, trans_a, trans_b, trans_c)
    if mode == "sdd":
        return prepare_sdd(*_sides(a, b, trans_a, trans_b, trans_c), packing, trans_c)
    s, d, turned, flip = _blocks_first(a, b, mode, trans_a, trans_b, trans_c)
    return prepare_dsd(s, d, packing, turned, flip, deterministic, mode == "dds")


def _check(
    a: Tensor, b: Tensor, layout: BlockLayout, mode: str, trans_a: bool, trans_b: bool, trans_c: bool
) -> tuple[Tensor, Tensor, Packing]:
    """Check a call; return the operands with four dimensions, and the tables of the layout."""
    a, b = _check_operands(a, b, layout, mode)
    own = layout.for_heads((a if mode != "dsd" else b).shape[1])
    _check_sizes(a, b, own, mode, trans_a, trans_b, trans_c)
    return a, b, own.packing(a.device, a.dtype)


def _sides(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool, trans_c: bool) -> tuple[Tensor, Tensor]:
    """Return the left and the right side of a product into blocks."""
    left, right = a.mT if trans_a else a, b.mT if trans_b else b
    return (right.mT, left.mT) if trans_c else (left, right)


def _blocks_first(
    a: Tensor, b: Tensor, mode: str, trans_a: bool, trans_b: bool, trans_c: bool
) -> tuple[Tensor, Tensor, bool, bool]:
    """Return blocks, the dense operand, and whether the blocks and the result are to be transposed."""
    if mode == "dsd":
        return a, b.mT if trans_b else b, trans_a, trans_c
    return b, a if trans_a else a.mT, not trans_b, not trans_c


def _run_sdd(a: Tensor, b: Tensor, packing: Packing, deterministic: bool, out: Tensor | None) -> Tensor:
    if out is None:
        return products.sdd(a, b, packing, deterministic)
    sizes = packing.sizes
    _check_out(out, a, b, (a.shape[0], sizes.nnz, sizes.block, sizes.block), "Z, nnz, block, block")
    products.sdd_into(a, b, packing, out)
    return written(out)


def _run_dsd(
    s: Tensor, d: Tensor, packing: Packing, turned: bool, flip: bool, deterministic: bool, out: Tensor | None
) -> Tensor:
    """Multiply, or write the product; `flip` asks for its transpose."""
    if out is None:
        product = products.dsd(s, d, packing, turned, flip, deterministic)
        return product.mT if flip else product
    sides = (packing.sizes.rows_of(turned), d.shape[3])
    _check_out(out, s, d, (*d.shape[:2], *(reversed(sides) if flip else sides)), "Z, H, rows, columns")
    products.dsd_into(s, d, packing, turned, deterministic, out.mT if flip else out)
    return written(out)


def _check_operands(a: Tensor, b: Tensor, layout: BlockLayout, mode: str) -> tuple[Tensor, Tensor]:
    """Check what does not depend on sizes; give both operands four dimensions."""
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
    """Hold every size of both operands to the layout and to each other."""
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
    """Hold a dense operand to [Z, H, *sides], or, if it is to be transposed, to their reverse."""
    step = -1 if transposed else 1
    shape = (batch, layout.heads or 0, *sides[::step])
    check_shape(name, value, shape, f"Z, H, {', '.join(names[::step])}")


def _check_out(out: Tensor, a: Tensor, b: Tensor, shape: tuple[int, ...], dims: str) -> None:
    check_like("out", out, "a", a)
    check_shape("out", out, shape, dims)
    if torch.is_grad_enabled() and any(value.requires_grad for value in (a, b, out)):
        refuse_value("out", "operands and an out that require no grad", "one that does: use torch.no_grad()")
    if any(size > 1 and stride == 0 for size, stride in zip(out.shape, out.stride(), strict=True)):
        refuse_value("out", "a tensor without repeated elements", f"strides {out.stride()}")
