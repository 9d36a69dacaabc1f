"""Launch arguments of a validated ``mm_plus_mm`` call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nojit.kernels import library
from nojit.kernels.bmm.cost import Schedule
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import is_unaligned, processors, takes_maps
from nojit.kernels.calls.torch_state import precision
from nojit.kernels.mm_plus_mm.cost import FIXED, schedules_of
from nojit.kernels.mm_plus_mm.launch_parts import TILES, Parts, prepare_parts
from nojit.kernels.products.matrices import Layout, Mapped, described, layout_of, mapped, transposed
from torch import Tensor

__all__ = ["Operands", "Prepared", "prepare"]

Operands = tuple[Tensor, Tensor, Tensor, Tensor]
"""The matrices a, b, c and d."""
SIZES: Final = ("m_len", "n_len", "k_len", "more_len")
"""Params of M, N, K of the first product and K of the second."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A validated ``mm_plus_mm`` call that is ready to launch."""

    kernel: str
    shape: tuple[int, int]
    """[M, N], the shape of the result."""
    order: tuple[int, int, int, int]
    """Indices of a, b, c and d in the kernel's order; for a column-major result it computes the transpose."""
    maps: tuple[Mapped, ...] | None
    """TMA descriptions of the operands and the result; None for the kernel that takes pointers."""
    numbers: dict[str, int]
    """Sizes and strides by the names of the kernel's params."""
    constexprs: dict[str, Any]

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the kernel; return the result, a new tensor unless `out` is given.

        `operands`: the matrices a, b, c and d; `caller`: allocates and launches, or also records both for replays.
        """
        first, result = operands[0], out
        if result is None:
            result = new_contiguous(caller, first, self.shape)
        if not result.numel():
            return result
        a, b, c, d = (operands[place] for place in self.order)
        if self.maps is None:
            tensors = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "d_ptr": d, "out_ptr": result}
        else:
            tensors = described(self.maps, a_map=a, b_map=b, c_map=c, d_map=d, out_map=result)
        caller.launch(self.kernel, **tensors, **self.numbers, **self.constexprs)
        return result


def prepare(
    operands: Operands, out: Tensor | None, maps_run: Callable[[Tensor], bool] | None = None
) -> Prepared | Parts:
    """Choose the kernel for a validated call and return its launch arguments.

    Args:
        operands: a, b, c and d.
        out: where to write the result; None for a new tensor.
        maps_run: returns whether the sm_90 kernel, which takes TMA descriptors, may run on a tensor's device; by
            default, it asks the device.
    """
    first = operands[0]
    rows, cols = operands[0].shape[0], operands[1].shape[1]
    factors = tuple(layout_of(value, 1) for value in operands)
    result = Layout((1, rows, cols), (0, cols, 1)) if out is None else layout_of(out, 1)
    order = (0, 1, 2, 3)
    if result.strides[1] == 1 and result.strides[2] != 1 and cols > 1:
        order = (1, 0, 3, 2)
        factors, result = tuple(transposed(factors[place]) for place in order), transposed(result)
    fits = not is_unaligned(*operands, out) and (maps_run or takes_maps)(first)
    maps = _maps_of(factors, result, first.element_size()) if fits else None
    sizes = (*result.shape[1:], factors[0].shape[2], factors[2].shape[2])
    numbers = dict(zip(SIZES, sizes, strict=True))
    if maps is None:
        for name, dims, layout in zip("abcdo", ("mk", "kn", "mk", "kn", "mn"), (*factors, result), strict=True):
            numbers |= named(f"stride_{name}", dims, layout.strides[1:])
        return Prepared("mm_plus_mm", (rows, cols), order, None, numbers, {"PRECISION": precision(first.dtype)})
    count = processors(first)
    schedules: tuple[Schedule, ...] = (FIXED,)
    if not library.is_batch_invariant():
        schedules = schedules_of(maps[:4], sizes, count, divides=library.has(TILES))
    if len(schedules) > 1:
        return prepare_parts(maps, schedules, order, count)
    constexprs: dict[str, Any] = {f"TRANS_{name}": of.is_transposed for name, of in zip("ABCD", maps, strict=False)}
    constexprs |= {"BLOCK_M": schedules[0].rows, "BLOCK_N": schedules[0].cols}
    return Prepared("mm_plus_mm_sm90", (rows, cols), order, maps, numbers | {"programs": count}, constexprs)


def _maps_of(factors: tuple[Layout, ...], result: Layout, element_bytes: int) -> tuple[Mapped, ...] | None:
    """Return the TMA descriptions of operands (or their transposes) and result; None if descriptors cannot hold them."""
    maps = (*(mapped(layout, element_bytes) for layout in factors), mapped(result, element_bytes, turn=False))
    found = tuple(of for of in maps if of is not None)
    return found if len(found) == len(maps) else None
