"""Choose the kernels of a validated matrix product, and make their launch arguments. `op.py` caches them."""

# ruff: noqa: PLR0917 - a call has many facts

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.bmm.cost import Schedule, schedule_of
from nojit.kernels.bmm.few_rows import FewRows, few_rows_of
from nojit.kernels.bmm.launch_padded import Padded, aligned
from nojit.kernels.bmm.launch_waves import Shared
from nojit.kernels.bmm.product import Product
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import is_unaligned, nothing, processors, takes_maps
from nojit.kernels.calls.torch_state import precision
from nojit.kernels.products.checks import result_dtype
from nojit.kernels.products.launch_split import PreparedProduct
from nojit.kernels.products.matrices import (
    BATCHED,
    Layout,
    Mapped,
    described,
    layout_of,
    mapped,
    mapped_product,
    stored,
    transposed,
)
from nojit.kernels.products.shared_wave import sums_shape
from nojit.kernels.products.splits import TILE, copied_rows, padded_width, partial_shape, splits_of
from torch import Tensor

__all__ = ["Prepared", "prepare"]

SIZES: Final = ("batch", "m_len", "n_len", "k_len")
"""Params of B, M, N and K."""


@dataclass(frozen=True, slots=True)
class Prepared(PreparedProduct, Product):
    """A validated matrix product that is ready to launch."""

    swapped: bool
    """True if the kernel computes the transposed result, ``b^T @ a^T``."""
    merge_numbers: dict[str, int]
    """Sizes and strides by the names of the merge kernel's params."""

    def __call__(
        self,
        a: Tensor,
        b: Tensor,
        source: Tensor | None,
        out: Tensor | None,
        scales: tuple[int, float, float],
        caller: Caller = DIRECT,
    ) -> Tensor:
        """Launch the product, as `Product` describes."""
        result = self.new_result(a, caller) if out is None else out
        if not result.numel():
            return result
        added = result if source is None else source
        left, right = (b, a) if self.swapped else (a, b)
        sums = self.new_sums(a, caller)
        if self.maps is not None:
            tensors = described(self.maps, a_map=left, b_map=right, out_map=result if sums is None else sums)
            tensors |= {"input_ptr": added}
        else:
            tensors = {"a_ptr": left, "b_ptr": right, "out_ptr": result, "input_ptr": added}
            tensors |= self.sums_operand(sums, caller)
        epilogue = dict(zip(("activation", "alpha", "beta"), scales, strict=True))
        caller.launch(self.kernel, **tensors, **self.numbers, **epilogue, **self.constexprs)
        if sums is not None:
            merged = {"partial_ptr": sums, "out_ptr": result, "input_ptr": added}
            caller.launch("bmm_merge", **merged, **self.merge_numbers, **epilogue)
        return result


def prepare(
    a: Tensor,
    b: Tensor,
    source: Tensor | None,
    out: Tensor | None,
    has_epilogue: bool,
    maps_run: Callable[[Tensor], bool] | None = None,
    *,
    tuned: bool = False,
) -> Product:
    """Choose the kernel for a validated call and return its launch arguments.

    Args:
        a: the left operand.
        b: the right operand.
        source: the tensor to add, or None.
        out: where to write the result; None for a new tensor.
        has_epilogue: whether the product has an epilogue: a factor, a tensor to add or an activation.
        maps_run: returns whether the sm_90 kernel, which takes TMA descriptors, may run on a tensor's device; by
            default, it asks the device.
        tuned: whether the launch is to be tuned: the bundle chooses the tile, no operand is copied, programs do not share
            the last wave, and few rows have no kernel of their own.
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
    fits = not is_unaligned(a, b) and (maps_run or takes_maps)(a)
    validated = _Validated(left, right, result, added, a, has_epilogue)
    few_rows = (
        few_rows_of(left, right, validated.processors)
        if fits and not tuned and not library.is_batch_invariant()
        else None
    )
    if few_rows is not None:
        return replace(validated.few_rows(few_rows), shape=shape, swapped=swapped is not few_rows.is_turned)
    maps = validated.maps if fits and not is_unaligned(out) else None
    if maps is None:
        return replace(validated.pointed(), shape=shape, swapped=swapped)
    # without these kernels, as in the profile `core`, the bundle chooses among the tiles that it has
    is_fixed = tuned or library.is_batch_invariant() or not library.has("bmm_tiles_sm90")
    schedule = None if is_fixed else validated.schedule(maps)
    if schedule is None:
        return replace(validated.mapped(maps), shape=shape, swapped=swapped)
    of_a, of_b, of_out = maps
    copy = aligned(of_b) if schedule.is_copied else of_b
    maps = (of_a, copy, of_out)
    product = validated.shared(maps) if schedule.is_shared else validated.mapped(maps, schedule)
    product = replace(product, shape=shape, swapped=swapped)
    return Padded(product, of_b, copy, swapped) if schedule.is_copied else product


@dataclass(frozen=True, slots=True)
class _Validated:
    """A validated product for which no kernel has been chosen yet."""

    left: Layout
    right: Layout
    result: Layout
    added: Layout
    a: Tensor
    has_epilogue: bool

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, M, N, K)."""
        batch, rows, depth = self.left.shape
        return batch, rows, self.right.shape[2], depth

    @property
    def numbers(self) -> dict[str, int]:
        """The sizes by the names of the kernels' params."""
        return dict(zip(SIZES, self.sizes, strict=True))

    @property
    def maps(self) -> tuple[Mapped, Mapped, Mapped] | None:
        """TMA descriptions of both factors, or of their transposes, and of the result; None if one cannot be described."""
        size = self.a.element_size()
        return mapped_product(mapped(self.left, size), mapped(self.right, size), self.result, size)

    @property
    def splits(self) -> int:
        """Number of parts for split-K: 1 for integers and under batch invariance."""
        if self.a.dtype == torch.int8 or library.is_batch_invariant():
            return 1
        return splits_of(*self.sizes, self.processors)

    @property
    def processors(self) -> int:
        """Number of SMs of the device."""
        return processors(self.a)

    def copied_rows(self, of_a: Mapped) -> int:
        """Return how many rows of the left operand a TMA copy takes."""
        return copied_rows(self.sizes[1], whole=of_a.is_transposed)

    def schedule(self, maps: tuple[Mapped, Mapped, Mapped]) -> Schedule | None:
        """Return how the sm_90 kernels run the product; None if the bundle chooses the tile."""
        return schedule_of(
            maps[:2], self.sizes, self.processors, copied_rows=self.copied_rows(maps[0]), has_epilogue=self.has_epilogue
        )

    def shared(self, maps: tuple[Mapped, Mapped, Mapped]) -> Shared:
        """Return the launch arguments for the sm_90 kernel whose programs share the last wave; `maps` as for `mapped`."""
        batch, rows, cols, _ = self.sizes
        return Shared(
            shape=(),
            dtype=result_dtype(self.a.dtype),
            swapped=False,
            maps=maps,
            sums=sums_shape(batch, rows, cols, self.processors),
            numbers=self.numbers,
            processors=self.processors,
            strides=named("stride_o", "zm", self.result.strides[:2]),
        )

    def mapped(self, maps: tuple[Mapped, Mapped, Mapped], schedule: Schedule | None = None) -> Prepared:
        """Return the launch arguments for the sm_90 kernel.

        Args:
            maps: TMA descriptions of a, b and the result.
            schedule: the tile and the parts of K; None if the bundle chooses the tile.
        """
        of_a, of_b, of_out = maps
        splits = 1 if schedule is None else schedule.parts
        has_epilogue = self.has_epilogue and splits == 1
        of_out, panel = stored(of_out, self.a.element_size(), splits)
        constexprs = {
            "TRANS_A": of_a.is_transposed,
            "TRANS_B": of_b.is_transposed,
            "PANEL": panel,
            "EPILOGUE": has_epilogue,
            "ROWS": TILE if schedule is None else self.copied_rows(of_a),
        }
        kernel = "bmm_sm90"
        # the bundle chooses the tile of a product with an epilogue: few have variants for it
        if schedule is not None and not has_epilogue:
            kernel = "bmm_tiles_sm90"
            constexprs |= {"BLOCK_M": schedule.rows, "BLOCK_N": schedule.cols}
        numbers = {
            **self.numbers,
            "splits": splits,
            "a_step": of_a.step,
            "b_step": of_b.step,
            "programs": self.processors,
            **named("stride_c", "zmn", self.added.strides),
        }
        return self._prepared(kernel, (of_a, of_b, of_out), splits, numbers, constexprs)

    def pointed(self) -> Prepared:
        """Return the launch arguments for the kernel that takes pointers."""
        splits = self.splits
        numbers = {
            **self.numbers,
            "splits": splits,
            "width": padded_width(self.sizes[2]),
            **named("stride_a", "zmk", self.left.strides),
            **named("stride_b", "zkn", self.right.strides),
            **named("stride_c", "zmn", self.added.strides),
            **named("stride_o", "zmn", self.result.strides),
        }
        return self._prepared("bmm", None, splits, numbers, {"PRECISION": precision(self.a.dtype)})

    def few_rows(self, product: FewRows) -> Prepared:
        """Return the launch arguments for the kernels of few rows."""
        _, rows, cols, depth = self.sizes
        added, result = self.added.strides[1:], self.result.strides[1:]
        if product.is_turned:
            rows, cols, added, result = cols, rows, added[::-1], result[::-1]
        of_a, of_b = product.strides
        numbers = {
            "m_len": rows,
            "n_len": cols,
            "k_len": depth,
            "stride_am": of_a,
            "stride_bn": of_b,
            **named("stride_c", "mn", added),
            **named("stride_o", "mn", result),
        }
        constexprs = {"EPILOGUE": self.has_epilogue, "ROWS": product.rows}
        return replace(self._prepared(product.kernel, None, 1, numbers, constexprs), unused=None)

    def _prepared(
        self,
        kernel: str,
        maps: tuple[Mapped, Mapped, Mapped] | None,
        splits: int,
        numbers: dict[str, int],
        constexprs: dict[str, Any],
    ) -> Prepared:
        batch, rows, cols, _ = self.sizes
        return Prepared(
            kernel=kernel,
            shape=(),
            dtype=result_dtype(self.a.dtype),
            swapped=False,
            maps=maps,
            partial=partial_shape(splits, batch, rows, cols),
            unused=nothing(torch.float32, self.a.device),
            numbers=numbers,
            constexprs=constexprs,
            merge_numbers={
                "batch": batch,
                "m_len": rows,
                "n_len": cols,
                "splits": splits,
                "width": padded_width(cols),
                **named("stride_c", "zmn", self.added.strides),
                **named("stride_o", "zmn", self.result.strides),
            },
        )
