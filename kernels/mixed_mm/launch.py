"""Kernel and launch arguments of a validated product with 4-bit weights.

Few rows go to `mixed_mm_few`, which loads weights straight into registers. More rows, on `sm_90`, go to
`mixed_mm_tiles_sm90`, with the tile that the cost model chooses, and many rows to `mixed_mm_sm90`. Both use TMA. All three need
row-major operands with row strides of multiples of 16 bytes. All other calls go to `mixed_mm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import is_unaligned, nothing, processors, takes_maps
from nojit.kernels.mixed_mm.checks import Operands
from nojit.kernels.mixed_mm.cost import FEW_COLS, few_is_faster, tiling_of
from nojit.kernels.mixed_mm.splits import mapped_parts, parts_of
from nojit.kernels.products.matrices import Layout, Mapped, described, layout_of, mapped, stored
from nojit.kernels.products.splits import padded_width, splits_of
from torch import Tensor

__all__ = ["FEW", "Prepared", "Runs", "prepare"]

FEW: Final = 32
"""The most rows (M) that `mixed_mm_few` takes."""
FEWEST: Final = 16
"""Above this many rows, the sm_90 kernels run products with more wide tiles than SMs, if they can."""
MOST_ROWS: Final = 512
"""The most rows of products whose tile the cost model chooses: above, tuned tables know better."""
LINE: Final = 128
"""Bytes of a line of memory."""
TILES: Final = "mixed_mm_tiles_sm90"
WIDE: Final = 128
"""Columns of a wide tile of `mixed_mm_sm90`."""
ALIGNED: Final = 16
"""Lengths and strides for `mixed_mm_few` and `mixed_mm_sm90` are multiples of this many elements."""
FEW_GROUP: Final = 32
"""Group sizes for `mixed_mm_few` are multiples of this."""
MAPPED_GROUP: Final = 64
"""Group sizes for `mixed_mm_sm90` are multiples of this."""
WHOLE_GROUP: Final = 128
"""If the group size is a multiple of this, no step of `mixed_mm` spans two quantization groups."""
MOST_DEEP: Final = 1 << 31
"""A group size of at least this means one quantization group of all rows: kernels count K in 32 bits."""
STEP_ROWS: Final = 1024
"""The most rows of b that a step of `mixed_mm_few` reads: 16 for each of 16 warps, four times."""
MOST_SPAN: Final = 1 << 31
"""The most bytes that the rows of a or b in a step of `mixed_mm_few` may span: its offsets have 32 bits."""
Runs = Callable[[str, Tensor], bool]
"""Function that returns whether a kernel runs on a tensor's device."""


def runs(kernel: str, a: Tensor) -> bool:
    """Return whether `kernel`, one of those for `sm_90` or `mixed_mm_few`, runs on the device of `a`."""
    return a.is_cuda if kernel == "mixed_mm_few" else takes_maps(a)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A validated product with 4-bit weights that is ready to launch."""

    kernel: str
    shape: tuple[int, int]
    """[M, N], the shape of the result."""
    maps: tuple[Mapped, ...] | None
    """TMA descriptions of a, b, the result, scales and zeros (that of a for absent ones); None for the other kernels."""
    partial: tuple[int, int, int, int] | None
    """Shape of the partial sums, fp32; None without split-K."""
    unused: Tensor
    """Tensor that `mixed_mm` receives in place of partial sums if there are none."""
    numbers: dict[str, int]
    """Sizes and strides by the names of the kernel's params."""
    constexprs: dict[str, Any]
    merge: dict[str, Any]
    """Arguments of the merge kernel except its tensors."""

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the product; return the result, a new tensor unless `out` is given.

        `operands`: a, packed weights, and the scales and zero points of quantization groups; `caller`: allocates and
        launches, or also records both for replays.
        """
        a, b, scales, zeros = operands
        result = out
        if result is None:
            result = new_contiguous(caller, a, self.shape)
        if not result.numel():
            return result
        # any pointer stands for absent scales and zeros
        scales, zeros = (a if value is None else value for value in (scales, zeros))
        sums = None
        if self.partial is not None:
            sums = new_contiguous(caller, a, self.partial, torch.float32)
        target = result if sums is None else sums
        if self.maps is not None:
            tensors = described(self.maps, a_map=a, b_map=b, out_map=target, scales_map=scales, zeros_map=zeros)
        else:
            tensors = {"a_ptr": a, "b_ptr": b, "scales_ptr": scales, "zeros_ptr": zeros, "out_ptr": target}
            if self.kernel == "mixed_mm":
                caller.constant(self.unused)
                tensors |= {"out_ptr": result, "partial_ptr": self.unused if sums is None else sums}
        caller.launch(self.kernel, **tensors, **self.numbers, **self.constexprs)
        if sums is not None:
            caller.launch("bmm_merge", partial_ptr=sums, out_ptr=result, input_ptr=result, **self.merge)
        return result


def prepare(operands: Operands, out: Tensor | None, group_size: int | None, may_run: Runs | None = None) -> Prepared:
    """Choose the kernel for a validated call and return its launch arguments.

    Args:
        operands: a, b, scales and zeros.
        out: where to write the result; None for a new tensor.
        group_size: rows of w that share a scale (a quantization group); None for all rows.
        may_run: returns whether a kernel may run on a tensor's device; `runs` by default.
    """
    whole = _Whole(operands, out, group_size)
    may = may_run or runs
    a = operands[0]
    if whole.lies_by_rows and not is_unaligned(*operands, out):
        maps = whole.maps() if whole.groups_are(MAPPED_GROUP) and may("mixed_mm_sm90", a) else None
        is_chosen = maps is not None and may(TILES, a) and library.has(TILES)
        is_few = whole.is_few(maps is not None, is_chosen=is_chosen)
        if is_few and not library.is_batch_invariant() and may("mixed_mm_few", a):
            return whole.few()
        if maps is not None:
            return whole.mapped(maps, is_chosen=is_chosen)
    return whole.pointed()


@dataclass(frozen=True, slots=True)
class _Whole:
    """A validated product for which no kernel has been chosen yet."""

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
    def sizes(self) -> dict[str, int]:
        """M, N, K and the group size."""
        return {"m_len": self.rows, "n_len": self.cols, "k_len": self.depth, "group_size": self.group_size}

    @property
    def count(self) -> int:
        """Number of SMs of the device."""
        return processors(self.operands[0])

    @property
    def kind(self) -> str:
        """The constexpr that says how weights are dequantized: with or without scales and zero points."""
        _, _, scales, zeros = self.operands
        return "none" if scales is None else "scales" if zeros is None else "zeros"

    @property
    def group_size(self) -> int:
        """Rows of w in a quantization group; if the caller gave None, at least K, and a multiple of every step."""
        if self.given_size is not None and self.given_size < MOST_DEEP:
            return self.given_size
        return max(-(-self.depth // 256), 1) * 256

    def groups_are(self, multiple: int) -> bool:
        """Return whether the group size is a multiple of `multiple`; True if the caller gave None."""
        return self.group_size % multiple == 0

    @property
    def result(self) -> Layout:
        """Shape and strides of the result."""
        if self.out is not None:
            return layout_of(self.out, 1)
        return Layout((1, self.rows, self.cols), (0, self.cols, 1))

    def stride(self, value: Tensor | None) -> int:
        """Return the row stride of an operand; for a single row, a stride that kernels accept."""
        return ALIGNED if value is None or value.shape[0] <= 1 else value.stride(0)

    @property
    def lies_by_rows(self) -> bool:
        """True if all operands and the result are row-major, with row strides of multiples of 16 elements."""
        present = [value for value in self.operands if value is not None]
        aligned = all(value.stride(1) == 1 and self.stride(value) % ALIGNED == 0 for value in present)
        sizes = self.rows and self.cols and self.depth and self.cols % ALIGNED == 0 and self.depth % ALIGNED == 0
        return bool(sizes) and aligned and self.operands[1].itemsize == 1 and self.result.strides[2] == 1

    def is_few(self, mappable: bool, *, is_chosen: bool) -> bool:
        """Return whether `mixed_mm_few` should run the product.

        Args:
            mappable: whether `mixed_mm_sm90` could run it.
            is_chosen: whether `mixed_mm_tiles_sm90` could, with the tile that the cost model chooses.
        """
        if self.rows > FEW or not self.groups_are(FEW_GROUP) or not self._steps_are_near:
            return False
        if self.rows <= FEWEST or not mappable:
            return True
        sizes = (self.rows, self.cols, self.depth)
        if self.cols > WIDE * self.count:
            return False
        return not is_chosen or few_is_faster(sizes, self._few_parts, self.count)

    @property
    def _few_parts(self) -> int:
        """Number of split-K parts of `mixed_mm_few`."""
        return parts_of(-(-self.cols // FEW_COLS), self.depth, self.count)

    @property
    def _steps_are_near(self) -> bool:
        """True if the 32-bit offsets of `mixed_mm_few` reach all elements of each step."""
        a, b, _, _ = self.operands
        span: int = max(FEW * self.stride(a) * a.itemsize, STEP_ROWS * self.stride(b))
        return span < MOST_SPAN

    def few(self) -> Prepared:
        """Return the launch arguments for `mixed_mm_few`."""
        a, b, scales, zeros = self.operands
        parts = self._few_parts
        width = padded_width(self.cols)
        numbers = {
            **self.sizes,
            "splits": parts,
            "width": width,
            "programs": self.count,
            "stride_am": self.stride(a),
            "stride_bk": self.stride(b),
            "stride_sk": self.stride(scales),
            "stride_zk": self.stride(zeros),
            "stride_om": self.result.strides[1] if parts == 1 else width,
        }
        return self._prepared("mixed_mm_few", None, parts, numbers, {"GROUPS": self.kind})

    def maps(self) -> tuple[Mapped, ...] | None:
        """Return the TMA descriptions of the operands and the result; None if descriptors cannot hold them."""
        a, b, scales, zeros = self.operands
        of_groups = [layout_of(a if value is None else value, 1) for value in (scales, zeros)]
        layouts = (layout_of(a, 1), layout_of(b, 1), self.result, *of_groups)
        # all except b have 16-bit elements
        found = [mapped(layout, 1 if place == 1 else 2, turn=False) for place, layout in enumerate(layouts)]
        present = [each for each in found if each is not None]
        return tuple(present) if len(present) == len(found) else None

    def mapped(self, maps: tuple[Mapped, ...], *, is_chosen: bool) -> Prepared:
        """Return the launch arguments for the `sm_90` kernels, with the TMA descriptions `maps`.

        `is_chosen`: whether the cost model may choose the tile, for `mixed_mm_tiles_sm90`.
        """
        sizes = (self.rows, self.cols, self.depth)
        uncut = library.is_batch_invariant()
        tiling = None
        if is_chosen and self.rows <= MOST_ROWS and not uncut:
            tiling = tiling_of(*sizes, self.count)
        parts = tiling.parts if tiling else 1 if uncut else mapped_parts(*sizes, self.count)
        of_a, of_b, of_out, *of_groups = maps
        of_out, panel = stored(of_out, self.operands[0].element_size(), parts)
        numbers = {**self.sizes, "splits": parts, "programs": self.count}
        constexprs: dict[str, Any] = {"GROUPS": self.kind, "PANEL": panel}
        if tiling:
            width = LINE if tiling.cols % LINE == 0 else LINE // 2
            constexprs |= {"BLOCK_M": tiling.rows, "BLOCK_N": tiling.cols, "WIDTH": width}
        kernel = TILES if tiling else "mixed_mm_sm90"
        return self._prepared(kernel, (of_a, of_b, of_out, *of_groups), parts, numbers, constexprs)

    def pointed(self) -> Prepared:
        """Return the launch arguments for `mixed_mm`."""
        a, b, scales, zeros = self.operands
        uncut = library.is_batch_invariant()
        parts = 1 if uncut else splits_of(1, self.rows, self.cols, self.depth, self.count)
        groups_are = "none" if scales is None else "whole" if self.groups_are(WHOLE_GROUP) else "any"
        numbers = {
            **self.sizes,
            "has_zeros": int(zeros is not None),
            "splits": parts,
            "width": padded_width(self.cols),
            **named("stride_a", "mk", a.stride()),
            **named("stride_b", "kn", b.stride()),
            **named("stride_s", "kn", (0, 0) if scales is None else scales.stride()),
            **named("stride_z", "kn", (0, 0) if zeros is None else zeros.stride()),
            **named("stride_o", "mn", self.result.strides[1:]),
        }
        return self._prepared("mixed_mm", None, parts, numbers, {"GROUPS": groups_are})

    def _prepared(
        self,
        kernel: str,
        maps: tuple[Mapped, ...] | None,
        parts: int,
        numbers: dict[str, int],
        constexprs: dict[str, Any],
    ) -> Prepared:
        width = padded_width(self.cols)
        return Prepared(
            kernel=kernel,
            shape=(self.rows, self.cols),
            maps=maps,
            partial=(parts, 1, self.rows, width) if parts > 1 else None,
            unused=nothing(torch.float32, self.operands[0].device),
            numbers=numbers,
            constexprs=constexprs,
            merge={
                "batch": 1,
                "m_len": self.rows,
                "n_len": self.cols,
                "splits": parts,
                "width": width,
                "activation": 0,
                "alpha": 1.0,
                "beta": 0.0,
                **named("stride_c", "zmn", self.result.strides),
                **named("stride_o", "zmn", self.result.strides),
            },
        )
