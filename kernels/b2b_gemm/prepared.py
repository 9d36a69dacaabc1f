"""Pairs of products whose like was checked before: what a launch takes besides addresses, worked out once.

``a @ f(b @ c)`` is computed as the transpose of ``f(c^T @ b^T) @ a^T``: one kernel serves both.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import torch
from nojit.kernels.b2b_gemm.functions import reference_of
from nojit.kernels.block_sparse.products import precision
from nojit.kernels.gemm.matrices import Layout, layout_of, transposed
from nojit.kernels.memos import DIRECT, Caller
from torch import Tensor

__all__ = ["Operands", "Prepared", "Words", "chosen", "facts_of_call", "prepare"]

Operands = tuple[Tensor, Tensor, Tensor]
"""The factors, in order."""
Words = tuple[str, float, str]
"""The name of the activation, what the first product is multiplied by, and which product is the first."""
ROWS: Final = 128
COLUMNS: Final = 64
"""The sides of the tile of the result that loads are counted for."""


def facts_of_call(operands: Operands, out: Tensor | None, words: Words) -> Hashable:
    """Return all that a call's checks and arguments depend on."""
    switch = precision(operands[0].dtype) if operands[0].dtype == torch.float32 else None
    values = operands if out is None else (*operands, out)
    return tuple((value.dtype, value.device, value.shape, value.stride()) for value in values), words, switch


def chosen(operands: Operands, assoc: str) -> str:
    """Say which product comes first: for ``"auto"``, the one after which fewer elements are loaded."""
    if assoc != "auto":
        return assoc
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
            result = caller.make(torch.empty, self.shape, dtype=first.dtype, device=first.device)
        if result.numel():
            given = operands[::-1] if self.turned else operands
            caller.launch("b2b_gemm", *given, result, *self.numbers, **self.named)
        return result


def prepare(operands: Operands, out: Tensor | None, words: Words) -> Prepared:
    """Prepare a call that was checked."""
    name, alpha, assoc = words
    shape = (operands[0].shape[0], operands[2].shape[1])
    turned = chosen(operands, assoc) == "right"
    factors = tuple(layout_of(value, 1) for value in operands)
    result = Layout((1, *shape), (0, shape[1], 1)) if out is None else layout_of(out, 1)
    if turned:
        factors, result = tuple(transposed(factor) for factor in reversed(factors)), transposed(result)
    function, number = reference_of(name)
    (_, rows, depth), (_, middle, cols) = factors[0].shape, factors[2].shape
    strides = tuple(stride for layout in (*factors, result) for stride in layout.strides[1:])
    numbers = (rows, cols, depth, middle, number, alpha, *strides)
    return Prepared(shape, turned, numbers, {"PRECISION": precision(operands[0].dtype), "FUNCTION": function})
