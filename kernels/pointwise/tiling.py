"""Tilings that suit all operands of a call: contiguous elements, or rectangles of at most four dimensions; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Placed", "Rectangles", "Shape", "holds", "tile"]

_DIMS = 4
_WIDTHS = (4096, 2048, 1024, 512, 256, 128, 64)


@dataclass(frozen=True, slots=True)
class Rectangles:
    """Sizes and strides, in elements, of up to four dimensions: x (where results are contiguous), y, two outer ones."""

    nx: int
    ny: int
    n0: int
    n1: int
    strides: tuple[tuple[int, int, int, int], ...]
    """Strides of each tensor along outer dimensions 1 and 0, y and x; 0 for absent dimensions."""
    kinds: str
    """A letter for each tensor's strides, as in `kernel_parts.rectangle_pointers`."""
    numbers: tuple[int, ...]
    """Sizes and strides in the order of the kernels' params."""


Shape = tuple[int, ...]
Placed = tuple[Shape, Shape]
"""(Sizes, strides) of a tensor."""


@lru_cache(maxsize=4096)
def tile(shape: Shape, tensors: tuple[Placed, ...]) -> int | Rectangles | None:
    """Find a tiling for tensors: merge the dimensions that merge in all of them, and order the rest by the result's strides.

    Args:
        shape: shape of the result.
        tensors: sizes and strides of each tensor, the result last; the sizes broadcast to `shape`.

    Returns:
        The number of elements, if all tensors store them contiguously in the same order; or else rectangles; or None if
        more than four dimensions remain.
    """
    strides = [_broadcast(shape, *tensor) for tensor in tensors]
    dims = _merged([
        (size, tuple(each[place] for each in strides)) for place, size in enumerate(shape) if size != 1
    ])  # fmt: skip
    if not dims:
        return 1
    if len(dims) == 1 and set(dims[0][1]) == {1}:
        return dims[0][0]
    if len(dims) > _DIMS:
        return None
    *outer, x = dims if len(dims) > 1 else _rows(dims[0])
    across = [place for place, (_, steps) in enumerate(outer) if 1 in steps]
    y = outer.pop(across[-1] if across else -1) if outer else _absent(len(strides))
    outer = [_absent(len(strides))] * (_DIMS - 2 - len(outer)) + outer
    steps = tuple(zip(*(dim[1] for dim in (*outer, y, x)), strict=True))
    kinds = "".join(_kind(sy, sx) for _, _, sy, sx in steps)
    sizes = (x[0], y[0], outer[1][0], outer[0][0])
    return Rectangles(*sizes, steps, kinds, (*sizes, *(step for each in steps for step in each)))


_Dim = tuple[int, tuple[int, ...]]


def _broadcast(shape: Shape, sizes: Shape, strides: Shape) -> Shape:
    """Return a tensor's strides along the dimensions of `shape`: 0 for broadcast ones."""
    steps = tuple(0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))
    return (0,) * (len(shape) - len(sizes)) + steps


def _absent(count: int) -> _Dim:
    return 1, (0,) * count


def _merged(dims: list[_Dim]) -> list[_Dim]:
    """Return dimensions sorted by the result's strides, longest first; those contiguous in all tensors are merged."""
    merged: list[_Dim] = []
    for size, steps in sorted(dims, key=lambda dim: dim[1][-1], reverse=True):
        if merged and all(above == step * size for above, step in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * size, steps)
        else:
            merged.append((size, steps))
    return merged


def _rows(dim: _Dim) -> list[_Dim]:
    """Split a single dimension into rows if a usual width divides it: a tile of one row would leave a program idle."""
    size, steps = dim
    width = next((width for width in _WIDTHS if size > width and size % width == 0), size)
    if width == size:
        return [dim]
    return [(size // width, tuple(step * width for step in steps)), (width, steps)]


def _kind(sy: int, sx: int) -> str:
    return "r" if sx == 1 else "c" if sx == 0 else "t" if sy == 1 else "s"


def holds(rectangles: Rectangles, kinds: str, addresses: Sequence[int]) -> bool:
    """Return whether tensors at `addresses` allow the aligned vectors of 16 elements that kernels for `kinds` load."""
    if rectangles.nx % 16 or ("t" in kinds and rectangles.ny % 16):
        return False
    for letter, (s1, s0, sy, sx), address in zip(kinds, rectangles.strides, addresses, strict=True):
        if letter != "c" and (address % 16 or s1 % 16 or s0 % 16 or (sx if letter == "t" else sy) % 16):
            return False
    return True
