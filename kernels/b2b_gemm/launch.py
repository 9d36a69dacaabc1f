"""Launch arguments of a validated ``b2b_gemm`` call.

Kernels compute ``f(a @ b) @ c`` only. So ``a @ f(b @ c)`` runs as the transpose of ``f(c^T @ b^T) @ a^T``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nojit.kernels import library
from nojit.kernels.b2b_gemm.functions import reference_of, rounded
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import MAP_BYTES, is_unaligned, processors, takes_maps
from nojit.kernels.calls.torch_state import precision
from nojit.kernels.products.matrices import Layout, layout_of, mapped, transposed
from torch import Tensor

__all__ = ["WIDEST", "Operands", "Prepared", "Words", "chosen", "prepare"]

Operands = tuple[Tensor, Tensor, Tensor]
"""The three matrices a [M, K], b [K, L] and c [L, N]."""
Words = tuple[str, float, str]
"""(Name or source of the activation, alpha, association ``"left"``, ``"right"`` or ``"auto"``)."""
ROWS: Final = 128
COLUMNS: Final = 64
"""Columns of a result tile in the estimate of loads; its rows are `ROWS`."""
WIDEST: Final = 128
"""The largest K, L and N that the `sm_90` kernel takes."""
LINE: Final = 8
"""Elements per 16-byte load: the `sm_90` kernel takes K, L, N and row strides that are multiples of this."""
FARTHEST: Final = 1 << 21
"""The largest row stride of the `sm_90` kernel, in units of `LINE`: beyond it, offsets in a tile need 64 bits."""
PITCHES: Final = ("pitch_a", "pitch_b", "pitch_c", "pitch_out")
MOST_ROWS: Final = (1 << 31) - (1 << 20)
"""The largest M that the `sm_90` kernel takes: row numbers are 32-bit, also past the last row."""


def chosen(operands: Operands, assoc: str) -> str:
    """Return which product is first, ``"left"`` or ``"right"``; for ``"auto"``, the order that loads fewer elements.

    With ``NOJIT_BATCH_INVARIANT``, ``"auto"`` is always ``"left"``: the choice would depend on M, and the orders round
    differently.

    `operands`: the matrices a [M, K], b [K, L] and c [L, N]; `assoc`: which product comes first: ``"left"``,
    ``"right"`` or ``"auto"``.
    """
    if assoc != "auto":
        return assoc
    if library.is_batch_invariant():
        return "left"
    a, _, c = operands
    (rows, depth), (middle, cols) = a.shape, c.shape
    return "left" if _loads(rows, depth, middle, cols) <= _loads(cols, middle, depth, rows) else "right"


def _loads(rows: int, depth: int, middle: int, cols: int) -> int:
    """Estimate how many elements all tiles load for ``(a @ b) @ c``: a [rows, depth], b [depth, middle], c [middle, cols].

    A tile of the result loads its rows of a once for every `COLUMNS` columns of the intermediate product. It loads b
    and its columns of c once.
    """
    tiles = -(-rows // ROWS) * -(-cols // COLUMNS)
    parts = -(-middle // COLUMNS)
    return int(tiles * (parts * min(rows, ROWS) * depth + depth * middle + middle * min(cols, COLUMNS)))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A validated ``b2b_gemm`` call that is ready to launch: kernel name and arguments."""

    kernel: str
    shape: tuple[int, int]
    """[M, N], the shape of the result."""
    is_transposed: bool
    """True if the kernel computes the transposed result, from the operands in reverse order."""
    numbers: dict[str, Any]
    """Sizes, strides and the activation by the names of the kernel's params."""
    constexprs: dict[str, Any]

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the kernel on `operands`; return the result, a new contiguous tensor unless `out` is given.

        `caller`: allocates and launches, or also records both for replays.
        """
        first, result = operands[0], out
        if result is None:
            result = new_contiguous(caller, first, self.shape)
        if result.numel():
            a, b, c = operands[::-1] if self.is_transposed else operands
            tensors = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "out_ptr": result}
            caller.launch(self.kernel, **tensors, **self.numbers, **self.constexprs)
        return result


def prepare(
    operands: Operands, out: Tensor | None, words: Words, runs_sm90: Callable[[Tensor], bool] | None = None
) -> Prepared:
    """Choose the kernel for a validated call and return its launch arguments.

    Args:
        operands: a, b and c.
        out: where to write the result; None for a new tensor.
        words: the activation, alpha and the association.
        runs_sm90: returns whether the `sm_90` kernel may run on the device of a tensor; by default, it asks the device.
    """
    name, alpha, assoc = words
    shape = (operands[0].shape[0], operands[2].shape[1])
    is_transposed = chosen(operands, assoc) == "right"
    factors = tuple(layout_of(value, 1) for value in operands)
    result = Layout((1, *shape), (0, shape[1], 1)) if out is None else layout_of(out, 1)
    if is_transposed:
        factors, result = tuple(transposed(factor) for factor in reversed(factors)), transposed(result)
    function, number = reference_of(name)
    (_, rows, depth), (_, middle, cols) = factors[0].shape, factors[2].shape
    sizes = {"m_len": rows, "n_len": cols, "k_len": depth, "middle_len": middle}
    epilogue = {"activation": number, "alpha": alpha}
    first = operands[0]
    fits = max(depth, middle, cols) <= WIDEST and rows <= MOST_ROWS
    fits = fits and not is_unaligned(*operands, out) and (runs_sm90 or takes_maps)(first)
    # with transposes, M is the number of columns, and the choice of a kernel must not depend on M under batch
    # invariance
    fits = fits and not (is_transposed and library.is_batch_invariant())
    pitches = _pitches_of(factors, result) if fits else None
    if pitches is not None:
        trans, distances = pitches
        numbers = {**sizes, "programs": processors(first), **epilogue, **distances}
        constexprs = {"FUNCTION": rounded(function), "TRANS": trans}
        return Prepared("b2b_gemm_sm90", shape, is_transposed, numbers, constexprs)
    constexprs = {"FUNCTION": function, "PRECISION": precision(first.dtype)}
    numbers = {**sizes, **epilogue}
    for name, dims, layout in zip("abco", ("mk", "kn", "mn", "mn"), (*factors, result), strict=True):
        numbers |= named(f"stride_{name}", dims, layout.strides[1:])
    return Prepared("b2b_gemm", shape, is_transposed, numbers, constexprs)


def _pitches_of(factors: tuple[Layout, ...], result: Layout) -> tuple[bool, dict[str, int]] | None:
    """Return the arguments of the `sm_90` kernel that describe strides; None if it cannot take the layouts.

    Args:
        factors: layouts of a, b and c.
        result: layout of the result.

    Returns:
        Whether b and c are column-major, and the row strides of all four matrices in units of eight elements, by the
            names of the kernel's params.
    """
    left, *right = factors
    for trans in (False, True):
        lines = (left, *(transposed(layout) if trans else layout for layout in right), result)
        found = [mapped(layout, MAP_BYTES // LINE, turn=False) for layout in lines]
        pitches = tuple(of.strides[2] // LINE for of in found if of is not None)
        whole = all(layout.shape[2] % LINE == 0 for layout in lines)
        if whole and len(pitches) == len(found) and max(pitches) <= FARTHEST:
            return trans, dict(zip(PITCHES, pitches, strict=True))
    return None
