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
from nojit.kernels import library
from nojit.kernels.block_sparse import launch_tma
from nojit.kernels.block_sparse.launch_tma import Facts
from nojit.kernels.block_sparse.packing import BLOCK_N, PROGRAMS, SHARE, Cuts, Packing, Sizes
from nojit.kernels.dispatch import is_plain, precision, shown
from nojit.kernels.memos import DIRECT, Caller
from torch import Tensor

__all__ = [
    "dsd",
    "dsd_into",
    "facts_of_dsd",
    "facts_of_merge",
    "facts_of_sdd",
    "launch_dsd",
    "launch_merge",
    "launch_sdd",
    "precision",
    "sdd",
    "sdd_into",
    "strips_of",
]

_PADDED: Final = 256
"""The columns of partial results are padded to a multiple of this."""
_LIBRARY: Final = torch.library.Library("nojit", "FRAGMENT")
_TAGS: Final = (torch.Tag.pt2_compliant_tag,)


def sdd(a: Tensor, b: Tensor, packing: Packing, deterministic: bool) -> Tensor:
    """Multiply a [Z, H, M, K] by b [Z, H, K, N] into new blocks [Z, nnz, block, block].

    `deterministic` makes the gradients sum up in a fixed order.
    """
    if is_plain(a, b):
        return _sdd(a, b, packing.tables, packing.sizes, deterministic)
    result: Tensor = _sdd_op(a, b, shown(packing.tables, a), packing.sizes, deterministic)
    return result


def sdd_into(a: Tensor, b: Tensor, packing: Packing, out: Tensor) -> None:
    """Multiply a [Z, H, M, K] by b [Z, H, K, N] into the blocks `out`; autograd does not record it."""
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
    """Multiply blocks s, or their transpose if `is_transposed`, by d into `out` [Z, H, M, N]; autograd does not record it."""
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


def run_sdd(a: Tensor, b: Tensor, tables: Sequence[Tensor], sizes: Sequence[int], out: Tensor, caller: Caller) -> None:
    """Launch a product of dense matrices into blocks (sdd), with the sm_90 kernel if it can run, or the general one."""
    if not out.numel():
        return
    own = Sizes(*sizes)
    maps = launch_tma.maps_of_sdd(a, b, out, own)
    if maps is None:
        launch_sdd(a, b, out, tables[10:], own, caller)
    else:
        launch_tma.launch_sdd(maps, a.shape, tables[10:], own, caller)


def launch_sdd(
    a: Tensor, b: Tensor, out: Tensor, tables: Sequence[Tensor], own: Sizes, caller: Caller = DIRECT
) -> None:
    """Launch the general kernel of a product of dense matrices into blocks (sdd), for any strides.

    `tables` are the three tables of tiles in `Packing.tables`, `own` the sizes of the layout.
    """
    facts, meaning = facts_of_sdd(a, b, out, tables, own)
    caller.launch("block_sparse_sdd", a, b, out, *facts, **meaning)


def facts_of_sdd(a: Tensor, b: Tensor, out: Tensor, tables: Sequence[Tensor], own: Sizes) -> Facts:
    """Return the arguments that follow the operands of the general sdd kernel (dense by dense), and its constexprs."""
    tiles, columns, blocks = tables
    batch, _, rows, depth = a.shape
    sizes = (batch, len(tiles), -(-rows // own.tile), rows, depth, own.block)
    strides = (*a.stride(), *b.stride(), *out.stride())
    meaning = {"STRIP": own.tile, "SPAN": own.width, "PRECISION": precision(a.dtype)}
    return (tiles, columns, blocks, *sizes, *strides), meaning


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
    """Allocate the result of a product of blocks by a dense matrix; with `flip`, so that its transpose is contiguous."""
    rows = Sizes(*sizes).rows_of(is_transposed)
    if flip:
        return d.new_empty(*d.shape[:2], d.shape[3], rows).mT
    return d.new_empty(*d.shape[:2], rows, d.shape[3])


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


def run_dsd(
    s: Tensor,
    d: Tensor,
    tables: Sequence[Tensor],
    sizes: Sequence[int],
    is_transposed: bool,
    deterministic: bool,
    out: Tensor,
    caller: Caller,
) -> None:
    """Launch a product of blocks by a dense matrix (dsd), and the sum over the rows that were split among programs.

    The sm_90 kernel runs it where it can, or else the general kernel.
    """
    if not out.numel():
        return
    own = Sizes(*sizes)
    strips, cuts = strips_of(tables, own, is_transposed, out.shape, deterministic)
    partial = cuts.allocate(d, caller)
    maps = launch_tma.maps_of_dsd(s, d, out, own.block, cuts.height, is_transposed)
    if maps is None:
        launch_dsd(s, d, out, partial, strips, cuts, own.block, is_transposed, caller)
    else:
        launch_tma.launch_dsd(maps, out.shape, partial, strips, cuts, own.block, caller)
    if cuts.slots:
        launch_merge(partial, out, strips[3], cuts, caller)


def strips_of(
    tables: Sequence[Tensor], own: Sizes, is_transposed: bool, shape: Sequence[int], deterministic: bool
) -> tuple[tuple[Tensor, ...], Cuts]:
    """Return the tables of strips (groups of block rows) for a product of blocks by a dense matrix, and how to split them.

    Args:
        tables: `Packing.tables`.
        own: sizes of the layout.
        is_transposed: use the tables of the transpose.
        shape: shape of the result, [Z, H, M, N].
        deterministic: give each part of a strip a slot for its sums, so that sums have a fixed order.

    Under batch invariance the choice must not depend on the batch: every strip that may be split is split.
    """
    tasks, entries, blocks, merges, whole = tables[5:10] if is_transposed else tables[:5]
    one = own.strips_of(is_transposed)
    batch, _, _, width = shape
    pieces = 0 if library.is_batch_invariant() else batch * -(-width // BLOCK_N)
    slots, long = one.slots, 0
    if one.longest * PROGRAMS <= one.entries * pieces * SHARE:
        tasks, slots, long = whole, 0, one.long
    elif not deterministic:
        # one slot per task, or one per strip for atomic adds
        slots = len(merges)
    shape = batch, slots, one.height, -(-width // _PADDED) * _PADDED
    cut = Cuts(one.height, slots, shape, not deterministic, long, one.ahead)
    return (tasks, entries, blocks, merges), cut


def launch_dsd(
    s: Tensor,
    d: Tensor,
    out: Tensor,
    partial: Tensor,
    strips: Sequence[Tensor],
    cuts: Cuts,
    block: int,
    is_transposed: bool,
    caller: Caller = DIRECT,
) -> None:
    """Launch the general kernel of a product of blocks by a dense matrix (dsd), for any strides.

    `partial` receives the partial sums of rows that are split among programs.
    """
    facts, meaning = facts_of_dsd(s, d, out, strips, cuts, block, is_transposed)
    caller.launch("block_sparse_dsd", s, d, out, partial, *facts, **meaning)


def facts_of_dsd(
    s: Tensor, d: Tensor, out: Tensor, strips: Sequence[Tensor], cuts: Cuts, block: int, is_transposed: bool
) -> Facts:
    """Return the general dsd kernel's (sparse by dense) arguments after operands and partial sums, and its constexprs."""
    tasks, entries, blocks, _ = strips
    batch, _, rows, width = out.shape
    sizes = (batch, len(tasks), -(-rows // cuts.height), rows, width, block, cuts.slots, int(cuts.atomic))
    z, of_blocks, row, column = s.stride()
    inner = (column, row) if is_transposed else (row, column)
    strides = (z, of_blocks, *inner, *d.stride(), *out.stride())
    return (tasks, entries, blocks, *sizes, *strides), {"STRIP": cuts.height, "PRECISION": precision(d.dtype)}


def launch_merge(partial: Tensor, out: Tensor, merges: Tensor, cuts: Cuts, caller: Caller = DIRECT) -> None:
    """Launch the kernel that sums up the partial results of rows that were split among programs into `out`."""
    caller.launch("block_sparse_merge", partial, out, *facts_of_merge(out, merges, cuts))


def facts_of_merge(out: Tensor, merges: Tensor, cuts: Cuts) -> tuple[Any, ...]:
    """Return the arguments of the merge kernel that follow its tensors."""
    batch, _, rows, width = out.shape
    sizes = (batch, len(merges), -(-rows // cuts.height), rows, width, cuts.height, cuts.slots, int(cuts.atomic))
    return (merges, *sizes, *out.stride())


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
_LIBRARY.define(f"block_sparse_sdd(Tensor a, Tensor b, {_LAYOUT}, bool deterministic) -> Tensor", tags=_TAGS)
_LIBRARY.define(f"block_sparse_sdd_out(Tensor a, Tensor b, {_LAYOUT}, Tensor(a!) out) -> ()", tags=_TAGS)
_LIBRARY.define(
    f"block_sparse_dsd(Tensor s, Tensor d, {_LAYOUT}, bool is_transposed, bool flip, bool deterministic) -> Tensor",
    tags=_TAGS,
)
_LIBRARY.define(
    f"block_sparse_dsd_out(Tensor s, Tensor d, {_LAYOUT}, bool is_transposed, bool deterministic, Tensor(a!) out) -> ()",
    tags=_TAGS,
)
_LIBRARY.impl("block_sparse_sdd", _sdd, "CompositeExplicitAutograd")
_LIBRARY.impl("block_sparse_sdd_out", _sdd_into, "CompositeExplicitAutograd")
_LIBRARY.impl("block_sparse_dsd", _dsd, "CompositeExplicitAutograd")
_LIBRARY.impl("block_sparse_dsd_out", _dsd_into, "CompositeExplicitAutograd")


def _fake_into(*_: Any) -> None:
    """Trace an operator that writes into `out`: it returns nothing."""


torch.library.register_fake("nojit::block_sparse_sdd", _allocate_sdd, lib=_LIBRARY)
torch.library.register_fake("nojit::block_sparse_dsd", _allocate_dsd, lib=_LIBRARY)
torch.library.register_fake("nojit::block_sparse_sdd_out", _fake_into, lib=_LIBRARY)
torch.library.register_fake("nojit::block_sparse_dsd_out", _fake_into, lib=_LIBRARY)
torch.library.register_autograd("nojit::block_sparse_sdd", _sdd_backward, setup_context=_save, lib=_LIBRARY)
torch.library.register_autograd("nojit::block_sparse_dsd", _dsd_backward, setup_context=_save, lib=_LIBRARY)
_sdd_op = torch.ops.nojit.block_sparse_sdd.default
_sdd_out_op = torch.ops.nojit.block_sparse_sdd_out.default
_dsd_op = torch.ops.nojit.block_sparse_dsd.default
_dsd_out_op = torch.ops.nojit.block_sparse_dsd_out.default
torch.library.register_vmap("nojit::block_sparse_sdd", _over_batches(_sdd_op), lib=_LIBRARY)
torch.library.register_vmap("nojit::block_sparse_dsd", _over_batches(_dsd_op), lib=_LIBRARY)
