"""Products as recipes: what `nojit.kernels.memos` remembers of them."""

# ruff: noqa: PLR0917 - a product has many facts

from __future__ import annotations

from nojit.kernels.block_sparse import products
from nojit.kernels.block_sparse.packing import Packing
from nojit.kernels.memos import Recording
from torch import Tensor

__all__ = ["record_dsd", "record_sdd"]


def record_sdd(recording: Recording, a: Tensor, b: Tensor, packing: Packing) -> Tensor:
    """Multiply a [Z, H, M, K] by b [Z, H, K, N] into new blocks."""
    own = packing.sizes
    recording.constant(*packing.tables)
    out = recording.make(Tensor.new_empty, a, a.shape[0], own.nnz, own.block, own.block)
    products.run_sdd(a, b, packing.tables, own, out, recording)
    return out


def record_dsd(
    recording: Recording, s: Tensor, d: Tensor, packing: Packing, turned: bool, flip: bool, deterministic: bool
) -> Tensor:
    """Multiply blocks s by d [Z, H, K, N]; `flip` asks for the transpose of the product."""
    own = packing.sizes
    recording.constant(*packing.tables)
    sides = (own.rows_of(turned), d.shape[3])
    result = recording.make(Tensor.new_empty, d, *d.shape[:2], *(reversed(sides) if flip else sides))
    out = recording.stands(result.mT, result) if flip else result
    products.run_dsd(s, d, packing.tables, own, turned, deterministic, out, recording)
    return result
