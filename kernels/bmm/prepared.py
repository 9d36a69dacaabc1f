"""Products whose like was checked before: what a launch takes besides addresses, worked out once.

A call's facts are where kernels are from, dtypes, devices, sizes, strides, whether addresses fit tensor maps, torch's switch
for fp32 and whether anything is done to the product. Of calls with equal facts only the first is checked; its arguments serve
all.
"""

# ruff: noqa: PLR0917 - a call has many facts

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from nojit.kernels import library
from nojit.kernels.bmm.checks import result_dtype
from nojit.kernels.dispatch import precision, switch_of
from nojit.kernels.gemm.matrices import BATCHED, Layout, Mapped, layout_of, mapped, stored, transposed
from nojit.kernels.gemm.splits import copied_rows, padded_width, splits_of
from nojit.kernels.maps import MAP_BYTES, nothing, processors, takes_maps
from nojit.kernels.memos import DIRECT, Caller, new_contiguous
from torch import Tensor

__all__ = ["Prepared", "facts_of_call", "prepare"]


def facts_of_call(a: Tensor, b: Tensor, source: Tensor | None, out: Tensor | None, finished: bool) -> Hashable:
    """Return all that a call's checks and arguments depend on, and whose kernels it is for."""
    unfit = (a.data_ptr() | b.data_ptr() | (out.data_ptr() if out is not None else 0)) % MAP_BYTES != 0
    more = _facts(source), _facts(out)
    return (
        library.CURRENT.source,
        a.dtype,
        a.device,
        a.shape,
        a.stride(),
        b.dtype,
        b.device,
        b.shape,
        b.stride(),
        unfit,
        switch_of(a),
        more,
        finished,
    )


def _facts(value: Tensor | None) -> Hashable:
    return None if value is None else (value.dtype, value.device, value.shape, value.stride())


@dataclass(frozen=True, slots=True)
class Prepared:
    """A product to launch."""

    kernel: str
    shape: tuple[int, ...]
    """Of the result."""
    dtype: torch.dtype
    """Of the result."""
    swapped: bool
    """Whether it is the transpose that is computed: of the second operand's transpose by the first's."""
    maps: tuple[Mapped, Mapped, Mapped] | None
    """What the maps of both operands and of the result describe; None for the kernel over pointers."""
    partial: tuple[int, ...] | None
    """The shape of the sums of parts, fp32; None where the depth is not cut."""
    unused: Tensor
    """What the kernel over pointers gets in their place."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    named: dict[str, Any]
    merge_sizes: tuple[int, ...]
    merge_strides: tuple[int, ...]

    def __call__(
        self,
        a: Tensor,
        b: Tensor,
        source: Tensor | None,
        out: Tensor | None,
        scales: tuple[int, float, float],
        caller: Caller = DIRECT,
    ) -> Tensor:
        """Multiply; `scales` are the number of the activation, alpha and beta."""
        result = out
        if result is None:
            result = new_contiguous(caller, a, self.shape, self.dtype)
        if not result.numel():
            return result
        added = result if source is None else source
        left, right = (b, a) if self.swapped else (a, b)
        sums = None
        if self.partial is not None:
            sums = new_contiguous(caller, a, self.partial, torch.float32)
        operands: tuple[Any, ...]
        if self.maps is None:
            caller.constant(self.unused)
            operands = (left, right, result, added, self.unused if sums is None else sums)
        else:
            of_a, of_b, of_out = self.maps
            target = of_out.describe(result if sums is None else sums)
            operands = (of_a.describe(left), of_b.describe(right), target, added)
        caller.launch(self.kernel, *operands, *self.sizes, *scales, *self.strides, **self.named)
        if sums is not None:
            caller.launch("bmm_merge", sums, result, added, *self.merge_sizes, *scales, *self.merge_strides)
        return result


def prepare(
    a: Tensor,
    b: Tensor,
    source: Tensor | None,
    out: Tensor | None,
    finished: bool,
    maps_run: Callable[[Tensor], bool] | None = None,
) -> Prepared:
    """Prepare a call that was checked.

    Args:
        a: the left operand.
        b: the right operand.
        source: what is added, if something is.
        out: where to write, if the caller says so.
        finished: whether the product is scaled, added to, or goes through a function.
        maps_run: whether the kernel over maps may run on the device of an operand, if not as it says itself.
    """
    batch = a.shape[0] if a.dim() == BATCHED else 1
    left, right = layout_of(a, batch), layout_of(b, batch)
    rows, cols = left.shape[1], right.shape[2]
    shape = (*a.shape[:-1], cols)
    result = Layout((batch, rows, cols), (rows * cols, cols, 1)) if out is None else layout_of(out, batch)
    added = result if source is None else layout_of(source.expand(shape), batch)
    swapped = result.strides[1] == 1 and result.strides[2] != 1 and cols > 1
    if swapped:
        left, right = transposed(right), transposed(left)
        result, added = transposed(result), transposed(added)
    fits = not _unfit(a, b, out) and (maps_run or takes_maps)(a)
    maps = _maps_of(left, right, result, a.element_size()) if fits else None
    whole = _Whole(left, right, result, added, a, finished)
    prepared = whole.mapped(maps) if maps is not None else whole.pointed()
    return replace(prepared, shape=shape, swapped=swapped)


def _unfit(a: Tensor, b: Tensor, out: Tensor | None) -> bool:
    return any(value is not None and value.data_ptr() % MAP_BYTES for value in (a, b, out))


def _maps_of(left: Layout, right: Layout, result: Layout, element_bytes: int) -> tuple[Mapped, Mapped, Mapped] | None:
    maps = mapped(left, element_bytes), mapped(right, element_bytes), mapped(result, element_bytes, turn=False)
    of_a, of_b, of_out = maps
    # results that share one matrix would have to be written one over the other
    if of_a is None or of_b is None or of_out is None or of_out.shape[1] != result.shape[0]:
        return None
    return of_a, of_b, of_out


@dataclass(frozen=True, slots=True)
class _Whole:
    """A product before it is known which kernel computes it."""

    left: Layout
    right: Layout
    result: Layout
    added: Layout
    a: Tensor
    finished: bool

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch, rows, columns and depth."""
        batch, rows, depth = self.left.shape
        return batch, rows, self.right.shape[2], depth

    @property
    def splits(self) -> int:
        """How many parts the depth is cut into: sums of integers are not, nor those that must not depend on the batch."""
        if self.a.dtype == torch.int8 or library.is_batch_invariant():
            return 1
        return splits_of(*self.sizes, self.processors)

    @property
    def processors(self) -> int:
        """How many multiprocessors the device has."""
        return processors(self.a)

    def mapped(self, maps: tuple[Mapped, Mapped, Mapped]) -> Prepared:
        """Prepare it for the kernel over maps."""
        of_a, of_b, of_out = maps
        rows, splits = self.sizes[1], self.splits
        of_out, panel = stored(of_out, self.a.element_size(), splits)
        flags = {"TRANS_A": of_a.turned, "TRANS_B": of_b.turned}
        named = {
            **flags,
            "PANEL": panel,
            "EPILOGUE": self.finished and splits == 1,
            "ROWS": copied_rows(rows, whole=of_a.turned or library.is_batch_invariant()),
        }
        sizes = (*self.sizes, splits, of_a.step, of_b.step, self.processors)
        return self._prepared("bmm_sm90", (of_a, of_b, of_out), splits, sizes, self.added.strides, named)

    def pointed(self) -> Prepared:
        """Prepare it for the kernel over pointers."""
        splits = self.splits
        strides = (*self.left.strides, *self.right.strides, *self.added.strides, *self.result.strides)
        named = {"PRECISION": precision(self.a.dtype)}
        sizes = (*self.sizes, splits, padded_width(self.sizes[2]))
        return self._prepared("bmm", None, splits, sizes, strides, named)

    def _prepared(
        self,
        kernel: str,
        maps: tuple[Mapped, Mapped, Mapped] | None,
        splits: int,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        named: dict[str, Any],
    ) -> Prepared:
        batch, rows, cols, _ = self.sizes
        width = padded_width(cols)
        return Prepared(
            kernel=kernel,
            shape=(),
            dtype=result_dtype(self.a.dtype),
            swapped=False,
            maps=maps,
            partial=(splits, batch, rows, width) if splits > 1 else None,
            unused=nothing(torch.float32, self.a.device),
            sizes=sizes,
            strides=strides,
            named=named,
            merge_sizes=(batch, rows, cols, splits, width),
            merge_strides=(*self.added.strides, *self.result.strides),
        )
