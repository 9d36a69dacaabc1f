"""Launch arguments of a validated ``scaled_mm`` call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import has_maps, is_unaligned, nothing, processors
from nojit.kernels.products.launch_fp8 import FP8_BYTES, takes_bytes
from nojit.kernels.products.launch_split import PreparedProduct
from nojit.kernels.products.matrices import (
    Layout,
    Mapped,
    described,
    layout_of,
    mapped,
    mapped_product,
    stored,
    transposed,
)
from nojit.kernels.products.splits import copied_rows, padded_width, partial_shape, splits_of
from nojit.kernels.scaled_mm.cost import box_of, is_shared, parts_of_blocks, tiling_of
from nojit.kernels.scaled_mm.launch_waves import MERGE, WAVES, Shared
from nojit.kernels.scaled_mm.operands import Operands
from nojit.kernels.scaled_mm.scales import Scales, scales_of
from torch import Tensor

__all__ = ["Prepared", "prepare"]

PARTS: Final = "scaled_mm_parts_sm90"
TILES: Final = "scaled_mm_tiles_sm90"
FEW: Final = 16
"""The most rows of products that `scaled_mm_parts_sm90` does not run: weights bound them."""


@dataclass(frozen=True, slots=True)
class Prepared(PreparedProduct):
    """A validated ``scaled_mm`` call that is ready to launch."""

    as_bytes: bool
    """True if the kernel takes the operands as bytes, since the device has no fp8 products."""
    merge_numbers: dict[str, int]
    """Sizes and strides by the names of the merge kernel's params."""

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the product; return the result, a new tensor unless `out` is given.

        `operands`: a, b, their scales, and the bias; `caller`: allocates and launches, or also records both for
        replays.
        """
        a, b, scale_a, scale_b, bias = operands
        result = self.new_result(a, caller) if out is None else out
        if not result.numel():
            return result
        sums = self.new_sums(a, caller)
        added = result if bias is None else bias
        scales = {"scale_a_ptr": scale_a, "scale_b_ptr": scale_b}
        if self.maps is not None:
            tensors = described(self.maps, a_map=a, b_map=b, out_map=result if sums is None else sums)
            if self.kernel == TILES:
                tensors |= scales
            elif self.kernel != PARTS:
                # with split-K, the merge kernel adds the bias
                tensors |= {**scales, "bias_ptr": added if sums is None else sums}
        else:
            if self.as_bytes:
                a, b = (caller.make(Tensor.view, value, torch.uint8) for value in (a, b))
            tensors = {"a_ptr": a, "b_ptr": b, **scales, "bias_ptr": added, "out_ptr": result}
            tensors |= self.sums_operand(sums, caller)
        caller.launch(self.kernel, **tensors, **self.numbers, **self.constexprs)
        if sums is not None:
            merged = {"partial_ptr": sums, **scales, "bias_ptr": added, "out_ptr": result}
            caller.launch("scaled_mm_merge", **merged, **self.merge_numbers)
        return result


def prepare(
    operands: Operands,
    out: Tensor | None,
    dtype: torch.dtype,
    fast: bool,
    maps_run: Callable[[torch.device], bool] | None = None,
) -> Prepared | Shared:
    """Choose the kernel for a validated call and return its launch arguments.

    Args:
        operands: a, b, both scales, and the bias or None.
        out: where to write the result; None for a new tensor.
        dtype: dtype of the result.
        fast: whether tensor cores may accumulate with less precision than fp32.
        maps_run: returns whether the sm_90 kernel, which takes TMA descriptors, may run on a device; by default, it
            asks the device.
    """
    a, b, scale_a, scale_b, _ = operands
    rows, cols = a.shape[0], b.shape[1]
    left, right = layout_of(a, 1), transposed(layout_of(b, 1))
    result = Layout((1, rows, cols), (0, cols, 1)) if out is None else layout_of(out, 1)
    scales = scales_of(scale_a, scale_b, a, b)
    validated = _Validated(operands, left, right, result, scales, dtype, fast, is_tuned=maps_run is not None)
    fits = not is_unaligned(operands.a, operands.b, out) and (maps_run or has_maps)(a.device) and validated.suits_maps
    maps = validated.maps if fits else None
    if maps is None:
        return validated.pointed()
    return validated.shared(maps) if validated.shares_wave else validated.mapped(maps)


@dataclass(frozen=True, slots=True)
class _Validated:
    """A validated product for which no kernel has been chosen yet."""

    operands: Operands
    left: Layout
    right: Layout
    """Layout of the transpose of b."""
    result: Layout
    scales: Scales
    dtype: torch.dtype
    fast: bool
    is_tuned: bool
    """Whether the caller measures `scaled_mm_sm90`."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(M, N, K)."""
        _, rows, depth = self.left.shape
        return rows, self.right.shape[1], depth

    @property
    def maps(self) -> tuple[Mapped, Mapped, Mapped] | None:
        """TMA descriptions of a, of the transpose of b and of the result; None if one cannot be described."""
        of_a, of_b = (mapped(layout, FP8_BYTES, turn=False) for layout in (self.left, self.right))
        return mapped_product(of_a, of_b, self.result, self.dtype.itemsize)

    @property
    def processors(self) -> int:
        """Number of SMs of the device."""
        a = self.operands.a
        return processors(a)

    @property
    def splits(self) -> int:
        """Number of split-K parts of kernels without a cost model; 1 under batch invariance."""
        return 1 if library.is_batch_invariant() else splits_of(1, *self.sizes, self.processors)

    @property
    def mapped_splits(self) -> int:
        """Number of split-K parts of `scaled_mm_sm90`: scales of blocks of b have a cost model; 1 under batch invariance."""
        if self.scales.kind != "tiles" or self.is_tuned or library.is_batch_invariant():
            return self.splits
        return parts_of_blocks(*self.sizes, self.processors)

    @property
    def has_costs(self) -> bool:
        """True if the cost model decides on split-K, for `scaled_mm_parts_sm90`."""
        a, b, *_ = self.operands
        is_built = a.dtype == b.dtype == torch.float8_e4m3fn and self.dtype == torch.bfloat16
        is_coarse = self.scales.kind == "ends" and not self.fast
        is_free = not self.is_tuned and not library.is_batch_invariant()
        return is_built and is_coarse and is_free and self.sizes[0] > FEW and library.has(PARTS)

    @property
    def shares_wave(self) -> bool:
        """True if the cost model has programs share the last wave."""
        facts = (*self.sizes, self.processors, self.has_two_widths)
        is_faster = self.has_costs and self.has_whole_scales and is_shared(*facts)
        return is_faster and library.has(WAVES) and library.has(MERGE)

    @property
    def has_two_widths(self) -> bool:
        """True if tiles of two widths can run, if there is a cost model."""
        return self.has_whole_scales and library.has(TILES)

    @property
    def has_whole_scales(self) -> bool:
        """True if there is one scale of a and one of b, and no bias."""
        kind, _, _, strides = self.scales
        return kind == "ends" and not (self._has_bias or strides[0] or strides[3])

    @property
    def bias_stride(self) -> int:
        """Stride of the bias in elements; 0 without a bias."""
        bias = self.operands.bias
        return 0 if bias is None else bias.stride(-1)

    @property
    def suits_maps(self) -> bool:
        """True if the sm_90 kernel is built for such scales and can read column scales and bias with their strides."""
        a, b, _, _, bias = self.operands
        if self.scales.kind != "ends" and not a.dtype == b.dtype == torch.float8_e4m3fn:
            return False
        near = {"ends": {0, 1}, "rows": {1}}.get(self.scales.kind)
        return (near is None or self.scales.strides[3] in near) and (bias is None or self.bias_stride == 1)

    def mapped(self, maps: tuple[Mapped, Mapped, Mapped]) -> Prepared:
        """Return the launch arguments for the sm_90 kernel, with TMA descriptions of a, b's transpose and the result."""
        of_a, of_b, of_out = maps
        tiling = tiling_of(*self.sizes, self.processors, self.has_two_widths) if self.has_costs else None
        splits = tiling.parts if tiling else self.mapped_splits
        of_out, panel = stored(of_out, self.dtype.itemsize, splits)
        numbers = {**self._sizes, "splits": splits, "programs": self.processors}
        formats = {self.operands.a.dtype, self.operands.b.dtype}
        few = copied_rows(self.sizes[0], whole=formats != {torch.float8_e4m3fn} or library.is_batch_invariant())
        # other whole products run with the tile of the tuned table, which has more stages to choose from
        if tiling and splits > 1:
            tile = {"ROWS": few, "BLOCK_M": tiling.rows, "BLOCK_N": tiling.cols}
            return self._prepared(PARTS, (of_a, of_b, of_out), splits, numbers, tile)
        if tiling and (box := box_of(tiling)):
            tile = {"BLOCK_M": tiling.rows, "BLOCK_N": tiling.cols, "BOX": box}
            return self._prepared(TILES, maps, 1, self._sizes | {"programs": self.processors}, tile)
        kind, a_span, _, strides = self.scales
        # per-tensor scales without a bias have a variant with less code, so that small products start sooner
        if self.has_whole_scales:
            kind = "whole"
        constexprs = {"FAST": self.fast and kind in {"whole", "ends"}, "SCALES": kind, "PANEL": panel, "ROWS": few}
        numbers |= {"has_bias": self._has_bias, "a_span": a_span, **_scale_strides(strides)}
        return self._prepared("scaled_mm_sm90", (of_a, of_b, of_out), splits, numbers, constexprs)

    def shared(self, maps: tuple[Mapped, Mapped, Mapped]) -> Shared:
        """Return the launch arguments for the kernel whose programs share the last wave; `maps` as for `mapped`."""
        return Shared(maps, self._sizes, self.result.strides[1], self.processors)

    def pointed(self) -> Prepared:
        """Return the launch arguments for the kernel that takes pointers, which always adds up in fp32."""
        kind, a_span, b_span, scale_strides = self.scales
        numbers = {
            **self._sizes,
            "splits": self.splits,
            "width": padded_width(self.sizes[1]),
            "has_bias": self._has_bias,
            "a_span": a_span,
            "b_span": b_span,
            "stride_am": self.left.strides[1],
            "stride_bn": self.right.strides[1],
            **_scale_strides(scale_strides),
            **self._end_strides,
        }
        constexprs: dict[str, Any] = {"BLOCK_SCALES": kind != "ends"}
        as_bytes = takes_bytes(self.operands.a, "scaled_mm")
        if as_bytes:
            constexprs["A_E5M2"] = self.operands.a.dtype == torch.float8_e5m2
            constexprs["B_E5M2"] = self.operands.b.dtype == torch.float8_e5m2
        kernel = "scaled_mm_bytes" if as_bytes else "scaled_mm"
        return self._prepared(kernel, None, self.splits, numbers, constexprs)

    @property
    def _sizes(self) -> dict[str, int]:
        rows, cols, depth = self.sizes
        return {"m_len": rows, "n_len": cols, "k_len": depth}

    @property
    def _end_strides(self) -> dict[str, int]:
        """Strides of the bias and of the result."""
        return {"stride_bias": self.bias_stride, **named("stride_o", "mn", self.result.strides[1:])}

    @property
    def _has_bias(self) -> int:
        return int(self.operands.bias is not None)

    def _prepared(
        self,
        kernel: str,
        maps: tuple[Mapped, Mapped, Mapped] | None,
        splits: int,
        numbers: dict[str, int],
        constexprs: dict[str, Any],
    ) -> Prepared:
        (rows, cols, _), width = self.sizes, padded_width(self.sizes[1])
        kind, _, _, strides = self.scales
        return Prepared(
            kernel=kernel,
            shape=(rows, cols),
            dtype=self.dtype,
            maps=maps,
            as_bytes=kernel == "scaled_mm_bytes",
            partial=partial_shape(splits, 1, rows, cols),
            unused=nothing(torch.float32, self.operands.a.device),
            numbers=numbers,
            constexprs=constexprs,
            merge_numbers={
                "m_len": rows,
                "n_len": cols,
                "splits": splits,
                "width": width,
                "scaled": int(kind != "ends"),
                "has_bias": self._has_bias,
                "stride_sam": strides[0],
                "stride_sbn": strides[3],
                **self._end_strides,
            },
        )


def _scale_strides(strides: tuple[int, int, int, int]) -> dict[str, int]:
    """Return the `strides` of `Scales` by the names of the kernels' params."""
    return named("stride_sa", "mk", strides[:2]) | named("stride_sb", "kn", strides[2:])
