"""Prepared calls: launch arguments of an already validated pair of products.

``a @ f(b @ c)`` is computed as the transpose of ``f(c^T @ b^T) @ a^T``, as kernels support one order only.
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
"""The activation's name, the factor of the first product, and the order."""
ROWS: Final = 128
COLUMNS: Final = 64
"""The sides of the result tile in the model of loads."""
WIDEST: Final = 128
"""The largest depths and widths of the `sm_90` kernel."""
LINE: Final = 8
"""Elements per load: all depths, widths and row strides must be multiples."""
FARTHEST: Final = 1 << 21
"""The largest row stride: beyond it, offsets in a tile need 64 bits."""
MOST_ROWS: Final = (1 << 31) - (1 << 20)
"""The largest number of rows: a program counts in 32 bits, also past the last row."""


def facts_of_call(operands: Operands, out: Tensor | None, words: Words) -> Hashable:
    """Return the cache key of a call: everything that validation and launch arguments depend on, and the kernels' source."""
    switch = precision(operands[0].dtype) if operands[0].dtype == torch.float32 else None
    values = operands if out is None else (*operands, out)
    facts = tuple((value.dtype, value.device, value.shape, value.stride()) for value in values)
    return library.CURRENT.source, facts, _is_unaligned(operands, out), words, switch


def _is_unaligned(operands: Operands, out: Tensor | None) -> bool:
    """Return whether a tensor is not aligned to 16 bytes."""
    values = operands if out is None else (*operands, out)
    return any(value.data_ptr() % MAP_BYTES for value in values)


def chosen(operands: Operands, assoc: str) -> str:
    """Return the first product: for ``"auto"``, the one that loads fewer elements.

    With ``NOJIT_BATCH_INVARIANT`` it is always the left one, since the other rounds differently.
    """
    if assoc != "auto":
        return assoc
    if library.is_batch_invariant():
        return "left"
    a, _, c = operands
    (rows, depth), (middle, cols) = a.shape, c.shape
    return "left" if _loads(rows, depth, middle, cols) <= _loads(cols, middle, depth, rows) else "right"


def _loads(rows: int, depth: int, middle: int, cols: int) -> int:
    """Count the elements that all tiles load for ``(a @ b) @ c``.

    For each part of the intermediate's columns a tile loads its rows of a again. It loads b and its columns of c once.
    """
    tiles = -(-rows // ROWS) * -(-cols // COLUMNS)
    parts = -(-middle // COLUMNS)
    return int(tiles * (parts * min(rows, ROWS) * depth + depth * middle + middle * min(cols, COLUMNS)))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pair of products that is ready to launch."""

    kernel: str
    shape: tuple[int, int]
    """The result's shape."""
    turned: bool
    """Whether the kernel computes the transpose, from transposed operands."""
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
    """Prepare a validated call.

    Args:
        operands: the factors.
        out: where to write, if given.
        words: the activation, alpha and order.
        runs_sm90: returns whether the `sm_90` kernel may run on an operand's device; by default, it asks the device.
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
    fits = fits and not _is_unaligned(operands, out) and (runs_sm90 or takes_maps)(first)
    # the caller's rows are columns here; under batch invariance their number must not matter
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
    """Return whether the right factors are column-major, and row strides in units of eight elements; None if unsuitable."""
    left, *right = factors
    for trans in (False, True):
        lines = (left, *(transposed(layout) if trans else layout for layout in right), result)
        found = [mapped(layout, MAP_BYTES // LINE, turn=False) for layout in lines]
        pitches = tuple(of.strides[2] // LINE for of in found if of is not None)
        whole = all(layout.shape[2] % LINE == 0 for layout in lines)
        if whole and len(pitches) == len(found) and max(pitches) <= FARTHEST:
            return trans, pitches
    return None
