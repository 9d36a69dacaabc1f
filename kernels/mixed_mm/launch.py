"""Prepared calls: the kernel and launch arguments of an already validated product.

Few rows go to `mixed_mm_few`, which loads weights from memory into registers. More rows, on `sm_90`, go to `mixed_mm_sm90`
over TMA descriptors. Both need row-major operands with row strides of 16 bytes. All other calls go to `mixed_mm`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.gemm.matrices import Layout, Mapped, layout_of, mapped, stored
from nojit.kernels.gemm.splits import padded_width, splits_of
from nojit.kernels.maps import MAP_BYTES, nothing, processors, takes_maps
from nojit.kernels.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.mixed_mm.checks import Operands
from torch import Tensor

__all__ = ["FEW", "Prepared", "Runs", "facts_of_call", "mapped_parts", "parts_of", "prepare"]

FEW: Final = 32
"""The most rows of `mixed_mm_few`."""
FEWEST: Final = 16
"""Above this many rows, products with more wide tiles than multiprocessors go to `mixed_mm_sm90`, if it runs."""
WIDE: Final = 128
"""The columns of a wide tile of `mixed_mm_sm90`."""
ALIGNED: Final = 16
"""Alignment of lengths and strides for `mixed_mm_few` and `mixed_mm_sm90`."""
FEW_GROUP: Final = 32
"""Group sizes of `mixed_mm_few` are multiples of this."""
MAPPED_GROUP: Final = 64
"""Group sizes of `mixed_mm_sm90` are multiples of this."""
WHOLE_GROUP: Final = 128
"""For multiples of this, no step of `mixed_mm` spans two groups."""
MOST_DEEP: Final = 1 << 31
"""Kernels count depths in 32 bits: a larger group size means one group of all rows."""
LEAST_DEPTH: Final = 1024
"""The least depth of a part (split-K): a shallower one costs more to write and add than it saves."""
MOST_PARTS: Final = 16
NARROW: Final = 32
"""The columns of the narrowest tile of `mixed_mm_few`."""
TILE: Final = 64
"""The sides of the smallest tile of `mixed_mm_sm90`."""
STEP_ROWS: Final = 1024
"""The most rows of b in a step of `mixed_mm_few`: 16 for each of 16 warps, four times."""
MOST_SPAN: Final = 1 << 31
"""The largest span, in bytes, of a or b in a step of `mixed_mm_few`: its offsets have 32 bits."""
Runs = Callable[[str, Tensor], bool]
"""Function that returns whether a kernel runs on an operand's device."""


def runs(kernel: str, a: Tensor) -> bool:
    """Return whether `mixed_mm_few` or `mixed_mm_sm90` runs on an operand's device."""
    return takes_maps(a) if kernel == "mixed_mm_sm90" else a.is_cuda


def facts_of_call(operands: Operands, out: Tensor | None, group_size: int | None) -> Hashable:
    """Return the cache key of a call: everything that validation and launch arguments depend on, and the kernels' source."""
    facts = tuple(
        None if value is None else (value.dtype, value.device, value.shape, value.stride())
        for value in (*operands, out)
    )
    return library.CURRENT.source, facts, _is_unaligned(operands, out), group_size


def parts_of(tiles: int, depth: int, count: int) -> int:
    """Choose the number of parts for split-K on `count` multiprocessors: 1, unless half of them would be idle."""
    if not tiles or 2 * tiles > count:
        return 1
    return max(1, min(count // tiles, depth // LEAST_DEPTH, MOST_PARTS))


def mapped_parts(rows: int, cols: int, depth: int, count: int) -> int:
    """Choose the number of parts for split-K in `mixed_mm_sm90` on `count` multiprocessors."""
    return parts_of(-(-rows // TILE) * -(-cols // TILE), depth, count)


def _is_unaligned(operands: Operands, out: Tensor | None) -> bool:
    """Return whether a tensor's address suits neither TMA descriptors nor vector loads."""
    return any(value is not None and value.data_ptr() % MAP_BYTES for value in (*operands, out))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A product that is ready to launch."""

    kernel: str
    shape: tuple[int, int]
    """The result's shape."""
    maps: tuple[Mapped, ...] | None
    """The maps of a, b, the result, scales and zeros, a's for absent ones; None for pointer kernels."""
    partial: tuple[int, int, int, int] | None
    """The shape of partial sums, fp32; None without split-K."""
    unused: Tensor
    """The pointer kernel's placeholder for absent partial sums."""
    numbers: tuple[int, ...]
    named: dict[str, Any]
    merge: tuple[Any, ...]
    """Arguments of the merge kernel after its tensors."""

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the product."""
        a, b, scales, zeros = operands
        result = out
        if result is None:
            result = new_contiguous(caller, a, self.shape)
        if not result.numel():
            return result
        # any pointer serves as a placeholder
        groups = (a if scales is None else scales, a if zeros is None else zeros)
        sums = None
        if self.partial is not None:
            sums = new_contiguous(caller, a, self.partial, torch.float32)
        given: tuple[Any, ...]
        if self.maps is not None:
            described = (a, b, result if sums is None else sums, *groups)
            given = tuple(mapped.describe(value) for mapped, value in zip(self.maps, described, strict=True))
        elif self.kernel == "mixed_mm_few":
            given = (a, b, *groups, result if sums is None else sums)
        else:
            caller.constant(self.unused)
            given = (a, b, *groups, result, self.unused if sums is None else sums)
        caller.launch(self.kernel, *given, *self.numbers, **self.named)
        if sums is not None:
            caller.launch("bmm_merge", sums, result, result, *self.merge)
        return result


def prepare(operands: Operands, out: Tensor | None, group_size: int | None, may_run: Runs | None = None) -> Prepared:
    """Prepare a validated call.

    Args:
        operands: a, b, scales and zeros.
        out: where to write, if given.
        group_size: the depth of a group; None for one group.
        may_run: returns whether a kernel may run on a's device; `runs` by default.
    """
    whole = _Whole(operands, out, group_size)
    may = may_run or runs
    a = operands[0]
    if whole.lies_by_rows and not _is_unaligned(operands, out):
        maps = whole.maps() if whole.groups_are(MAPPED_GROUP) and may("mixed_mm_sm90", a) else None
        if whole.is_few(maps is not None) and not library.is_batch_invariant() and may("mixed_mm_few", a):
            return whole.few()
        if maps is not None:
            return whole.mapped(maps)
    return whole.pointed()


@dataclass(frozen=True, slots=True)
class _Whole:
    """A product before its kernel is chosen."""

    operands: Operands
    out: Tensor | None
    given_size: int | None

    @property
    def rows(self) -> int:
        return int(self.operands[0].shape[0])

    @property
    def cols(self) -> int:
        return int(self.operands[1].shape[1])

    @property
    def depth(self) -> int:
        return int(self.operands[0].shape[1])

    @property
    def count(self) -> int:
        """The device's number of multiprocessors."""
        return processors(self.operands[0])

    @property
    def kind(self) -> str:
        """The dequantization: with or without scales and zeros."""
        _, _, scales, zeros = self.operands
        return "none" if scales is None else "scales" if zeros is None else "zeros"

    @property
    def group_size(self) -> int:
        """The depth of a group; of a single group, at least the whole depth and a multiple of any step."""
        if self.given_size is not None and self.given_size < MOST_DEEP:
            return self.given_size
        return max(-(-self.depth // 256), 1) * 256

    def groups_are(self, multiple: int) -> bool:
        """Return whether group sizes, if there are groups, are multiples of `multiple`."""
        return self.group_size % multiple == 0

    @property
    def result(self) -> Layout:
        """The result's layout."""
        if self.out is not None:
            return layout_of(self.out, 1)
        return Layout((1, self.rows, self.cols), (0, self.cols, 1))

    def stride(self, value: Tensor | None) -> int:
        """Return the row stride of an operand; for a single row, any stride that kernels take."""
        return ALIGNED if value is None or value.shape[0] <= 1 else value.stride(0)

    @property
    def lies_by_rows(self) -> bool:
        """Whether all operands and the result are row-major, with row strides of 16 elements."""
        present = [value for value in self.operands if value is not None]
        aligned = all(value.stride(1) == 1 and self.stride(value) % ALIGNED == 0 for value in present)
        sizes = self.rows and self.cols and self.depth and self.cols % ALIGNED == 0 and self.depth % ALIGNED == 0
        return bool(sizes) and aligned and self.operands[1].itemsize == 1 and self.result.strides[2] == 1

    def is_few(self, mappable: bool) -> bool:
        """Return whether the product goes to `mixed_mm_few`; `mappable` tells whether `mixed_mm_sm90` could run it as well."""
        wide = mappable and self.rows > FEWEST and self.cols > WIDE * self.count
        return self.rows <= FEW and not wide and self.groups_are(FEW_GROUP) and self._steps_are_near

    @property
    def _steps_are_near(self) -> bool:
        """Whether each step of `mixed_mm_few` stays within the reach of its offsets."""
        a, b, _, _ = self.operands
        span: int = max(FEW * self.stride(a) * a.itemsize, STEP_ROWS * self.stride(b))
        return span < MOST_SPAN

    @property
    def group_strides(self) -> tuple[int, int]:
        return self.stride(self.operands[2]), self.stride(self.operands[3])

    def few(self) -> Prepared:
        """Prepare the product for the kernel for few rows."""
        a, b, _, _ = self.operands
        parts = parts_of(-(-self.cols // NARROW), self.depth, self.count)
        width = padded_width(self.cols)
        row_stride = self.result.strides[1] if parts == 1 else width
        strides = (self.stride(a), self.stride(b), *self.group_strides, row_stride)
        numbers = (self.rows, self.cols, self.depth, self.group_size, parts, width, self.count, *strides)
        return self._prepared("mixed_mm_few", None, parts, numbers, {"GROUPS": self.kind})

    def maps(self) -> tuple[Mapped, ...] | None:
        """Describe the operands and the result; None if TMA descriptors cannot hold them."""
        a, b, scales, zeros = self.operands
        of_groups = [layout_of(a if value is None else value, 1) for value in (scales, zeros)]
        layouts = (layout_of(a, 1), layout_of(b, 1), self.result, *of_groups)
        # all except b have 16 bits
        found = [mapped(layout, 1 if place == 1 else 2, turn=False) for place, layout in enumerate(layouts)]
        present = [each for each in found if each is not None]
        return tuple(present) if len(present) == len(found) else None

    def mapped(self, maps: tuple[Mapped, ...]) -> Prepared:
        """Prepare the product for the kernel over TMA descriptors."""
        uncut = library.is_batch_invariant()
        parts = 1 if uncut else mapped_parts(self.rows, self.cols, self.depth, self.count)
        of_a, of_b, of_out, *of_groups = maps
        of_out, panel = stored(of_out, self.operands[0].element_size(), parts)
        numbers = (self.rows, self.cols, self.depth, self.group_size, parts, self.count)
        named = {"GROUPS": self.kind, "PANEL": panel}
        return self._prepared("mixed_mm_sm90", (of_a, of_b, of_out, *of_groups), parts, numbers, named)

    def pointed(self) -> Prepared:
        """Prepare the product for the pointer kernel."""
        a, b, scales, zeros = self.operands
        uncut = library.is_batch_invariant()
        parts = 1 if uncut else splits_of(1, self.rows, self.cols, self.depth, self.count)
        width = padded_width(self.cols)
        groups = [(0, 0) if value is None else value.stride() for value in (scales, zeros)]
        strides = (*a.stride(), *b.stride(), *groups[0], *groups[1], *self.result.strides[1:])
        groups_are = "none" if scales is None else "whole" if self.groups_are(WHOLE_GROUP) else "any"
        sizes = (self.rows, self.cols, self.depth, self.group_size, int(zeros is not None), parts, width)
        return self._prepared("mixed_mm", None, parts, (*sizes, *strides), {"GROUPS": groups_are})

    def _prepared(
        self,
        kernel: str,
        maps: tuple[Mapped, ...] | None,
        parts: int,
        numbers: tuple[int, ...],
        named: dict[str, Any],
    ) -> Prepared:
        width = padded_width(self.cols)
        strides = (*self.result.strides, *self.result.strides)
        return Prepared(
            kernel=kernel,
            shape=(self.rows, self.cols),
            maps=maps,
            partial=(parts, 1, self.rows, width) if parts > 1 else None,
            unused=nothing(torch.float32, self.operands[0].device),
            numbers=numbers,
            named=named,
            merge=(1, self.rows, self.cols, parts, width, 0, 1.0, 0.0, *strides),
        )
