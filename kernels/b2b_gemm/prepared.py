"""Pairs of products whose like was checked before: what a launch takes besides addresses, worked out once.

``a @ f(b @ c)`` is computed as the transpose of ``f(c^T @ b^T) @ a^T``: kernels know one order only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.b2b_gemm.functions import reference_of, rounded
from nojit.kernels.block_sparse.products import precision
from nojit.kernels.gemm.matrices import Layout, layout_of, mapped, transposed
from nojit.kernels.maps import MAP_BYTES, processors, takes_maps
from nojit.kernels.memos import DIRECT, Caller, new_contiguous
from torch import Tensor

__all__ = ["WIDEST", "Operands", "Prepared", "Words", "chosen", "facts_of_call", "prepare"]

Operands = tuple[Tensor, Tensor, Tensor]
"""The factors, in order."""
Words = tuple[str, float, str]
"""The name of the activation, what the first product is multiplied by, and which product is the first."""
ROWS: Final = 128
COLUMNS: Final = 64
"""The sides of the tile of the result that loads are counted for."""
WIDEST: Final = 128
"""The largest depths and widths of the kernel for `sm_90`."""
LINE: Final = 8
"""The neighbours that it loads at once: what all depths and widths, and distances of rows, are multiples of."""
FARTHEST: Final = 1 << 21
"""How many of those rows may be apart, lest a tile's offsets need 64 bits."""
MOST_ROWS: Final = (1 << 31) - (1 << 20)
"""How many rows it takes: where a program goes on behind the last is counted in 32 bits."""


def facts_of_call(operands: Operands, out: Tensor | None, words: Words) -> Hashable:
    """Return all that a call's checks and arguments depend on, and whose kernels it is for."""
    switch = precision(operands[0].dtype) if operands[0].dtype == torch.float32 else None
    values = operands if out is None else (*operands, out)
    facts = tuple((value.dtype, value.device, value.shape, value.stride()) for value in values)
    return library.CURRENT.source, facts, _unfit(operands, out), words, switch


def _unfit(operands: Operands, out: Tensor | None) -> bool:
    """Return whether some tensor starts at no multiple of 16 bytes."""
    values = operands if out is None else (*operands, out)
    return any(value.data_ptr() % MAP_BYTES for value in values)


def chosen(operands: Operands, assoc: str) -> str:
    """Say which product comes first: for ``"auto"``, the one after which fewer elements are loaded.

    With ``NOJIT_BATCH_INVARIANT`` always the left one, for the other rounds differently.
    """
    if assoc != "auto":
        return assoc
    if library.is_batch_invariant():
        return "left"
    a, _, c = operands
    (rows, depth), (middle, cols) = a.shape, c.shape
    return "left" if _loads(rows, depth, middle, cols) <= _loads(cols, middle, depth, rows) else "right"


def _loads(rows: int, depth: int, middle: int, cols: int) -> int:
    """Count what tiles load for ``(a @ b) @ c``: of a their rows, once for each part of the middle, and all of b and of c."""
    tiles = -(-rows // ROWS) * -(-cols // COLUMNS)
    parts = -(-middle // COLUMNS)
    return int(tiles * (parts * min(rows, ROWS) * depth + depth * middle + middle * min(cols, COLUMNS)))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pair of products to launch."""

    kernel: str
    shape: tuple[int, int]
    """Of the result."""
    turned: bool
    """Whether it is the transpose that is computed, of the operands' transposes."""
    numbers: tuple[Any, ...]
    named: dict[str, Any]

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Multiply."""
        first, result = operands[0], out
        if result is None:
            result = new_contiguous(caller, first, self.shape)
        if result.numel():
            given: tuple[Any, ...] = (*(operands[::-1] if self.turned else operands), result)
            caller.launch(self.kernel, *given, *self.numbers, **self.named)
        return result


def prepare(
    operands: Operands, out: Tensor | None, words: Words, runs_sm90: Callable[[Tensor], bool] | None = None
) -> Prepared:
    """Prepare a call that was checked.

    Args:
        operands: the factors.
        out: where to write, if the caller says so.
        words: what is done to the middle, and the order.
        runs_sm90: whether the kernel for `sm_90` may run on the device of an operand, if not as it says itself.
    """
    name, alpha, assoc = words
    shape = (operands[0].shape[0], operands[2].shape[1])
    turned = chosen(operands, assoc) == "right"
    factors = tuple(layout_of(value, 1) for value in operands)
    result = Layout((1, *shape), (0, shape[1], 1)) if out is None else layout_of(out, 1)
    if turned:
        factors, result = tuple(transposed(factor) for factor in reversed(factors)), transposed(result)
    function, number = reference_of(name)
    (_, rows, depth), (_, middle, cols) = factors[0].shape, factors[2].shape
    first = operands[0]
    fits = max(depth, middle, cols) <= WIDEST and rows <= MOST_ROWS
    fits = fits and not _unfit(operands, out) and (runs_sm90 or takes_maps)(first)
    # the caller's rows are columns now, and whether they are few must not matter
    fits = fits and not (turned and library.is_batch_invariant())
    pitches = _pitches_of(factors, result) if fits else None
    if pitches is not None:
        trans, distances = pitches
        numbers = (rows, cols, depth, middle, processors(first), number, alpha, *distances)
        return Prepared("b2b_gemm_sm90", shape, turned, numbers, {"FUNCTION": rounded(function), "TRANS": trans})
    named = {"FUNCTION": function, "PRECISION": precision(first.dtype)}
    strides = tuple(stride for layout in (*factors, result) for stride in layout.strides[1:])
    return Prepared("b2b_gemm", shape, turned, (rows, cols, depth, middle, number, alpha, *strides), named)


def _pitches_of(factors: tuple[Layout, ...], result: Layout) -> tuple[bool, tuple[int, ...]] | None:
    """Say how far apart rows are, in eights of elements, and whether both right factors' are their columns; None if they do not fit."""
    left, *right = factors
    for trans in (False, True):
        lines = (left, *(transposed(layout) if trans else layout for layout in right), result)
        found = [mapped(layout, MAP_BYTES // LINE, turn=False) for layout in lines]
        pitches = tuple(of.strides[2] // LINE for of in found if of is not None)
        whole = all(layout.shape[2] % LINE == 0 for layout in lines)
        if whole and len(pitches) == len(found) and max(pitches) <= FARTHEST:
            return trans, pitches
    return None
