"""Launch arguments of a validated ``grouped_mm`` call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import MAP_BYTES, is_unaligned, processors, takes_maps
from nojit.kernels.calls.torch_state import precision
from nojit.kernels.grouped_mm.checks import shape_of
from nojit.kernels.grouped_mm.cost import tile_of
from nojit.kernels.products.groups import cuts_depth
from nojit.kernels.products.matrices import Layout, Mapped, described, layout_of, mapped, mapped_product, transposed
from torch import Tensor

__all__ = ["Operands", "Prepared", "prepare"]

RESIDENT: Final = 4
"""Programs of the pointer kernel per SM: more would only wait for one another."""


class Operands(NamedTuple):
    """The tensors of a call: both factors, the ends of groups, and the bias or None."""

    mat_a: Tensor
    mat_b: Tensor
    offs: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A validated ``grouped_mm`` call that is ready to launch."""

    kernel: str
    shape: tuple[int, ...]
    """Shape of the result: [M, N] or [groups, M, N]."""
    zeroed: bool
    """True if rows past the last end must be 0."""
    maps: tuple[Mapped, Mapped, Mapped] | None
    """TMA descriptions of both factors and the result; None for the kernels that take pointers."""
    numbers: dict[str, int]
    """Sizes and strides by the names of the kernel's params."""
    constexprs: dict[str, Any]

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the product; return the result, a new tensor unless `out` is given.

        `operands`: both factors, the ends of groups, and the bias or None; `caller`: allocates and launches, or also
        records both for replays.
        """
        mat_a, mat_b, offs, bias = operands
        result = out
        if result is None and self.zeroed:
            result = caller.make(Tensor.new_zeros, mat_a, self.shape)
        elif result is None:
            result = new_contiguous(caller, mat_a, self.shape)
        if not result.numel() or not offs.numel():
            return result
        added = {} if cuts_depth(mat_b) else {"bias_ptr": result if bias is None else bias}
        if self.maps is None:
            tensors = {"a_ptr": mat_a, "b_ptr": mat_b, "offs_ptr": offs, **added, "out_ptr": result}
        else:
            tensors = described(self.maps, a_map=mat_a, b_map=mat_b, out_map=result) | {"offs_ptr": offs}
            # the kernel stores a part of the result by address
            tensors |= {**added, "out_ptr": result} if added else {}
        caller.launch(self.kernel, **tensors, **self.numbers, **self.constexprs)
        return result


def prepare(
    operands: Operands,
    out: Tensor | None,
    zeroed: bool,
    maps_run: Callable[[Tensor], bool] | None = None,
) -> Prepared:
    """Choose the kernel for a validated call and return its launch arguments.

    Args:
        operands: both factors, the ends of groups, and the bias or None.
        out: where to write the result; None for a new tensor.
        zeroed: whether rows past the last end must be 0 in a new tensor.
        maps_run: returns whether the sm_90 kernel, which takes TMA descriptors, may run on a tensor's device; by
            default, it asks the device.
    """
    mat_a, mat_b, offs, _ = operands
    groups, shape = offs.shape[0], shape_of(mat_a, mat_b, offs)
    right = layout_of(mat_b, groups)
    if out is None:
        rows, cols = shape[-2:]
        result = Layout((groups, rows, cols), (rows * cols, cols, 1))
    else:
        result = layout_of(out, groups)
    validated = _Validated(operands, layout_of(mat_a, 1), right, result, zeroed and not cuts_depth(mat_b))
    fits = not is_unaligned(mat_a, mat_b, out) and (maps_run or takes_maps)(mat_a)
    if cuts_depth(mat_b):
        maps = validated.maps_by_depth if fits else None
        return validated.pointed_by_depth() if maps is None else validated.mapped_by_depth(maps)
    maps = validated.maps if fits else None
    return validated.pointed() if maps is None else validated.mapped(maps)


@dataclass(frozen=True, slots=True)
class _Validated:
    """A validated call for which no kernel has been chosen yet."""

    operands: Operands
    left: Layout
    right: Layout
    result: Layout
    zeroed: bool

    @property
    def sizes(self) -> dict[str, int]:
        """Number of groups, M, N and K."""
        groups, rows, cols = self.result.shape
        return {"groups": groups, "m_len": rows, "n_len": cols, "k_len": self.left.shape[2]}

    @property
    def processors(self) -> int:
        """Number of SMs of the device."""
        return processors(self.operands.mat_a)

    @property
    def maps(self) -> tuple[Mapped, Mapped, Mapped] | None:
        """TMA descriptions of both factors and the result; None if one cannot be described, or rows of the result end unaligned."""
        element_bytes = self.operands.mat_a.element_size()
        (_, rows, cols), (_, *strides) = self.result
        if cols * element_bytes % MAP_BYTES:
            return None
        target = Layout((1, rows, cols), (0, strides[0], strides[1]))
        of_a = mapped(self.left, element_bytes, turn=False)
        return mapped_product(of_a, mapped(self.right, element_bytes), target, element_bytes)

    @property
    def bias_strides(self) -> dict[str, int]:
        """Strides of the bias from group to group, and from column to column; 0 without a bias."""
        bias = self.operands.bias
        strides = (0, 0) if bias is None else (bias.stride(0) if bias.dim() > 1 else 0, bias.stride(-1))
        return named("stride_c", "zn", strides)

    def mapped(self, maps: tuple[Mapped, Mapped, Mapped]) -> Prepared:
        """Return the launch arguments for the sm_90 kernel; `maps` are the TMA descriptions of both factors and the result."""
        _, of_b, _ = maps
        sizes = self.sizes
        rows, cols = tile_of((sizes["groups"], sizes["m_len"], sizes["n_len"], sizes["k_len"]), self.processors)
        numbers = {
            **sizes,
            "b_step": of_b.step,
            "programs": self.processors,
            "tile_m": rows,
            "tile_n": cols,
            **self.bias_strides,
            "units_om": self.result.strides[1] * self.operands.mat_a.element_size() // MAP_BYTES,
        }
        constexprs = {"TRANS_B": of_b.is_transposed, "BIAS": self.operands.bias is not None}
        return self._prepared("grouped_mm_sm90", maps, numbers, constexprs)

    def pointed(self) -> Prepared:
        """Return the launch arguments for the kernel that takes pointers."""
        numbers = {
            **self.sizes,
            "programs": RESIDENT * self.processors,
            "has_bias": int(self.operands.bias is not None),
            **named("stride_a", "mk", self.left.strides[1:]),
            **named("stride_b", "zkn", self.right.strides),
            **self.bias_strides,
            **named("stride_o", "mn", self.result.strides[1:]),
        }
        return self._prepared("grouped_mm", None, numbers, {"PRECISION": self._precision})

    @property
    def maps_by_depth(self) -> tuple[Mapped, Mapped, Mapped] | None:
        """TMA descriptions of the transpose of `mat_a`, of `mat_b` and of the result; None if one cannot be described."""
        element_bytes = self.operands.mat_a.element_size()
        layouts = transposed(self.left), layout_of(self.operands.mat_b, 1)
        of_a, of_b = (mapped(layout, element_bytes, turn=False) for layout in layouts)
        return mapped_product(of_a, of_b, self.result, element_bytes)

    def mapped_by_depth(self, maps: tuple[Mapped, Mapped, Mapped]) -> Prepared:
        """Return the launch arguments for the sm_90 kernel whose groups are ranges of K.

        `maps`: TMA descriptions of the transpose of `mat_a`, of `mat_b` and of the result.
        """
        return self._prepared("grouped_mm_depth_sm90", maps, {**self.sizes, "programs": self.processors}, {})

    def pointed_by_depth(self) -> Prepared:
        """Return the launch arguments for the kernel that takes pointers and whose groups are ranges of K."""
        numbers = {
            **self.sizes,
            **named("stride_a", "mk", self.left.strides[1:]),
            **named("stride_b", "kn", self.right.strides[1:]),
            **named("stride_o", "zmn", self.result.strides),
        }
        return self._prepared("grouped_mm_depth", None, numbers, {"PRECISION": self._precision})

    @property
    def _precision(self) -> str:
        return precision(self.operands.mat_a.dtype)

    def _prepared(
        self,
        kernel: str,
        maps: tuple[Mapped, Mapped, Mapped] | None,
        numbers: dict[str, int],
        constexprs: dict[str, Any],
    ) -> Prepared:
        mat_a, mat_b, offs, _ = self.operands
        return Prepared(
            kernel=kernel,
            shape=shape_of(mat_a, mat_b, offs),
            zeroed=self.zeroed,
            maps=maps,
            numbers=numbers,
            constexprs=constexprs,
        )
