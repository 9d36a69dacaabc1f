"""Products whose like was checked before: what a launch takes besides addresses, worked out once.

A call's facts are dtypes, devices, sizes, strides, whether addresses fit tensor maps, and the words it was called with. Of
calls with equal facts only the first is checked; its arguments serve all.
"""

# ruff: noqa: PLR0917 - a call has many facts

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from nojit.kernels import library
from nojit.kernels.block_sparse import mapped, products
from nojit.kernels.block_sparse.packing import Cuts, Packing
from nojit.kernels.maps import MAP_BYTES, Described
from torch import Tensor

__all__ = ["Prepared", "facts_of_call", "prepare_dsd", "prepare_sdd"]

Place = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""


def facts_of_call(a: Tensor, b: Tensor, *words: Hashable) -> Hashable:
    """Return all that a call's checks and arguments depend on, but the layout."""
    precision = products.precision(a.dtype) if a.dtype == torch.float32 else None
    unfit = (a.data_ptr() | b.data_ptr()) % MAP_BYTES != 0
    facts_a, facts_b = (a.dtype, a.device, a.shape, a.stride()), (b.dtype, b.device, b.shape, b.stride())
    return (facts_a, facts_b, unfit, precision, words)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A product to launch."""

    kernel: str
    swapped: bool
    """Whether the kernel's first operand is the call's second."""
    shape: tuple[int, ...]
    """Of the result, contiguous."""
    places: tuple[Place, Place, Place] | None
    """What the maps of both operands and of the result describe; None for a kernel over pointers."""
    facts: tuple[Any, ...]
    named: dict[str, Any]
    cuts: Cuts | None
    """The partial results of a product of blocks."""
    merge: tuple[Any, ...]
    """What the sums over them take behind their operands."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply."""
        out = torch.empty(self.shape, dtype=a.dtype, device=a.device)
        if not out.numel():
            return out
        first, second = (b, a) if self.swapped else (a, b)
        operands: tuple[Any, ...] = (first, second, out)
        if self.places is not None:
            operands = tuple(
                Described(value, strides, shape) for value, (shape, strides) in zip(operands, self.places, strict=True)
            )
        kernel = library.get(self.kernel)
        if self.cuts is None:
            kernel(*operands, *self.facts, **self.named)
            return out
        partial = self.cuts.allocate(out)
        kernel(*operands, partial, *self.facts, **self.named)
        library.get("block_sparse_merge")(partial, out, *self.merge)
        return out


def prepare_sdd(a: Tensor, b: Tensor, packing: Packing, swapped: bool) -> Prepared:
    """Prepare the product of a [Z, H, M, K] by b [Z, H, K, N] into blocks."""
    tables, own = packing.tables[8:], packing.sizes
    out = a.new_empty(a.shape[0], own.nnz, own.block, own.block)
    maps = mapped.maps_of_sdd(a, b, out, own)
    shape = tuple(out.shape)
    if maps is None:
        facts, named = products.facts_of_sdd(a, b, out, tables, own)
        return Prepared("block_sparse_sdd", swapped, shape, None, facts, named, None, ())
    facts, named = mapped.facts_of_sdd(maps, a.shape, tables, own)
    places = (_place(maps.a), _place(maps.b), _place(maps.out))
    return Prepared("block_sparse_sdd_sm90", swapped, shape, places, facts, named, None, ())


def prepare_dsd(
    s: Tensor, d: Tensor, packing: Packing, turned: bool, flip: bool, deterministic: bool, swapped: bool
) -> Prepared:
    """Prepare the product of blocks s by d [Z, H, K, N]; `flip` asks for its transpose."""
    own = packing.sizes
    sides = (own.rows_of(turned), d.shape[3])
    result = d.new_empty(*d.shape[:2], *(reversed(sides) if flip else sides))
    out, shape = result.mT if flip else result, tuple(result.shape)
    strips, cuts = products.strips_of(packing.tables, own, turned, out.shape, deterministic)
    maps = mapped.maps_of_dsd(s, d, out, own.block, cuts.height, turned)
    if maps is None:
        kernel, places = "block_sparse_dsd", None
        facts, named = products.facts_of_dsd(s, d, out, strips, cuts, own.block, turned)
    else:
        kernel, places = "block_sparse_dsd_sm90", (_place(maps.s), _place(maps.d), _place(maps.out))
        facts, named = mapped.facts_of_dsd(maps, out.shape, strips, cuts, own.block)
    if not cuts.slots:
        # a kernel wants an address all the same
        return Prepared(kernel, swapped, shape, places, (cuts.allocate(d), *facts), named, None, ())
    merge = products.facts_of_merge(out, strips[3], cuts)
    return Prepared(kernel, swapped, shape, places, facts, named, cuts, merge)


def _place(described: Described) -> Place:
    return tuple(described.shape), described.strides
