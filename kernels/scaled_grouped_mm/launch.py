"""Launch arguments of a validated ``scaled_grouped_mm`` call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import MAP_BYTES, has_maps, is_unaligned, processors
from nojit.kernels.products.launch_fp8 import FP8_BYTES, takes_bytes
from nojit.kernels.products.matrices import Layout, Mapped, described, layout_of, mapped, mapped_product, transposed
from nojit.kernels.scaled_grouped_mm.checks import RESULT
from nojit.kernels.scaled_grouped_mm.cost import tile_of
from nojit.kernels.scaled_grouped_mm.scales import Scales, scales_of
from torch import Tensor

__all__ = ["Operands", "Prepared", "prepare"]

RESULT_BYTES: Final = RESULT.itemsize
RESIDENT: Final = 4
"""Programs of the pointer kernel per SM: more would only wait for one another."""


class Operands(NamedTuple):
    """The tensors of a call: both factors, their scales, and the ends of groups."""

    mat_a: Tensor
    mat_b: Tensor
    scale_a: Tensor
    scale_b: Tensor
    offs: Tensor


@dataclass(frozen=True, slots=True)
class Prepared:
    """A validated ``scaled_grouped_mm`` call that is ready to launch."""

    kernel: str
    shape: tuple[int, int]
    """[M, N], the shape of the result."""
    maps: tuple[Mapped, Mapped, Mapped] | None
    """TMA descriptions of a, the transposes of b, and the result; None for the kernel that takes pointers."""
    as_bytes: bool
    """True if the kernel takes the operands as bytes, since the device has no fp8 products."""
    numbers: dict[str, int]
    """Sizes and strides by the names of the kernel's params."""
    constexprs: dict[str, Any]

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the product; return the result, a new tensor unless `out` is given.

        `operands`: both factors, their scales, and the ends; `caller`: allocates and launches, or also records both for
        replays.
        """
        mat_a, mat_b, scale_a, scale_b, offs = operands
        result = out
        if result is None:
            result = new_contiguous(caller, mat_a, self.shape, RESULT)
        if not result.numel() or not offs.numel():
            return result
        if self.maps is not None:
            tensors = described(self.maps, a_map=mat_a, b_map=mat_b, out_map=result)
        else:
            if self.as_bytes:
                mat_a, mat_b = (caller.make(Tensor.view, value, torch.uint8) for value in (mat_a, mat_b))
            tensors = {"a_ptr": mat_a, "b_ptr": mat_b}
        tensors |= {"offs_ptr": offs, "scale_a_ptr": scale_a, "scale_b_ptr": scale_b, "out_ptr": result}
        caller.launch(self.kernel, **tensors, **self.numbers, **self.constexprs)
        return result


def prepare(
    operands: Operands,
    out: Tensor | None,
    fast: bool,
    maps_run: Callable[[torch.device], bool] | None = None,
) -> Prepared:
    """Choose the kernel for a validated call and return its launch arguments.

    Args:
        operands: both factors, their scales, and the ends of groups.
        out: where to write the result; None for a new tensor.
        fast: whether tensor cores may accumulate with less precision than fp32.
        maps_run: returns whether the sm_90 kernel, which takes TMA descriptors, may run on a device; by default, it
            asks the device.
    """
    mat_a, mat_b, scale_a, scale_b, _ = operands
    groups, _, cols = mat_b.shape
    rows = mat_a.shape[0]
    left, right = layout_of(mat_a, 1), transposed(layout_of(mat_b, groups))
    result = Layout((1, rows, cols), (0, cols, 1)) if out is None else layout_of(out, 1)
    validated = _Validated(operands, left, right, result, scales_of(scale_a, scale_b, mat_a, mat_b), fast)
    fits = not is_unaligned(mat_a, mat_b, out) and (maps_run or has_maps)(mat_a.device)
    maps = validated.maps if fits else None
    return validated.pointed() if maps is None else validated.mapped(maps)


@dataclass(frozen=True, slots=True)
class _Validated:
    """A validated call for which no kernel has been chosen yet."""

    operands: Operands
    left: Layout
    right: Layout
    """Layout of the transposes of b."""
    result: Layout
    scales: Scales
    fast: bool

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(groups, M, N, K)."""
        groups, cols, depth = self.right.shape
        return groups, self.left.shape[1], cols, depth

    @property
    def maps(self) -> tuple[Mapped, Mapped, Mapped] | None:
        """TMA descriptions of a, the transposes of b, and the result.

        None if one cannot be described, or the sm_90 kernel cannot read column scales with their strides.
        """
        if self.scales.kind == "ends" and self.scales.strides[-1] not in {0, 1}:
            return None
        of_a, of_b = (mapped(layout, FP8_BYTES, turn=False) for layout in (self.left, self.right))
        return mapped_product(of_a, of_b, self.result, RESULT_BYTES)

    def mapped(self, maps: tuple[Mapped, Mapped, Mapped]) -> Prepared:
        """Return the launch arguments for the sm_90 kernel, with TMA descriptions of a, b's transposes and the result."""
        count = processors(self.operands.mat_a)
        has_blocks = self.scales.kind != "ends"
        fast = self.fast and not has_blocks
        rows, cols = tile_of(self.sizes, count, has_blocks=has_blocks, fast=fast)
        numbers = {
            **self._sizes,
            "b_step": maps[1].step,
            "programs": count,
            "tile_m": rows,
            "tile_n": cols,
            **self._scale_strides,
            "units_om": self.result.strides[1] * RESULT_BYTES // MAP_BYTES,
        }
        constexprs = {"SCALES": self.scales.kind, "FAST": fast}
        return Prepared("scaled_grouped_mm_sm90", self.sizes[1:3], maps, False, numbers, constexprs)

    def pointed(self) -> Prepared:
        """Return the launch arguments for the kernel that takes pointers, which always adds up in fp32."""
        numbers = {
            **self._sizes,
            "programs": RESIDENT * processors(self.operands.mat_a),
            "stride_am": self.left.strides[1],
            **named("stride_b", "zn", self.right.strides[:2]),
            **self._scale_strides,
            **named("stride_o", "mn", self.result.strides[1:]),
        }
        as_bytes = takes_bytes(self.operands.mat_a, "scaled_grouped_mm")
        name = "scaled_grouped_mm_bytes" if as_bytes else "scaled_grouped_mm"
        return Prepared(name, self.sizes[1:3], None, as_bytes, numbers, {"BLOCK_SCALES": self.scales.kind != "ends"})

    @property
    def _sizes(self) -> dict[str, int]:
        groups, rows, cols, depth = self.sizes
        return {"groups": groups, "m_len": rows, "n_len": cols, "k_len": depth}

    @property
    def _scale_strides(self) -> dict[str, int]:
        strides = self.scales.strides
        return named("stride_sa", "mk", strides[:2]) | named("stride_sb", "zkn", strides[2:])
