"""Launch arguments of a validated ``grouped_mm`` call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nojit.kernels.dispatch import precision
from nojit.kernels.gemm.matrices import Layout, layout_of
from nojit.kernels.grouped_mm.checks import cuts_depth, shape_of
from nojit.kernels.maps import processors
from nojit.kernels.memos import DIRECT, Caller, new_contiguous
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
    numbers: tuple[int, ...]
    named: dict[str, Any]

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
        added = () if cuts_depth(mat_b) else (result if bias is None else bias,)
        caller.launch(self.kernel, mat_a, mat_b, offs, *added, result, *self.numbers, **self.named)
        return result


def prepare(
    operands: Operands,
    out: Tensor | None,
    zeroed: bool,
) -> Prepared:
    """Choose the kernel for a validated call and return its launch arguments.

    Args:
        operands: both factors, the ends of groups, and the bias or None.
        out: where to write the result; None for a new tensor.
        zeroed: whether rows past the last end must be 0 in a new tensor.
    """
    mat_a, mat_b, offs, _ = operands
    groups, shape = offs.shape[0], shape_of(mat_a, mat_b, offs)
    right = layout_of(mat_b, groups)
    if out is None:
        rows, cols = shape[-2:]
        result = Layout((groups, rows, cols), (rows * cols, cols, 1))
    else:
        result = layout_of(out, groups)
    whole = _Whole(operands, layout_of(mat_a, 1), right, result, zeroed and not cuts_depth(mat_b))
    return whole.pointed_by_depth() if cuts_depth(mat_b) else whole.pointed()


@dataclass(frozen=True, slots=True)
class _Whole:
    """A validated call for which no kernel has been chosen yet."""

    operands: Operands
    left: Layout
    right: Layout
    result: Layout
    zeroed: bool

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(groups, M, N, K)."""
        groups, rows, cols = self.result.shape
        return groups, rows, cols, self.left.shape[2]

    @property
    def processors(self) -> int:
        """Number of SMs of the device."""
        return processors(self.operands.mat_a)

    @property
    def bias_numbers(self) -> tuple[int, int, int]:
        """Whether there is a bias (1 or 0), its stride from group to group, and from column to column."""
        bias = self.operands.bias
        if bias is None:
            return 0, 0, 0
        return 1, bias.stride(0) if bias.dim() > 1 else 0, bias.stride(-1)

    def pointed(self) -> Prepared:
        """Return the launch arguments for the kernel that takes pointers."""
        has_bias, *bias_strides = self.bias_numbers
        strides = (*self.left.strides[1:], *self.right.strides, *bias_strides, *self.result.strides[1:])
        numbers = (*self.sizes, RESIDENT * self.processors, has_bias, *strides)
        return self._prepared("grouped_mm", numbers, {"PRECISION": self._precision})

    def pointed_by_depth(self) -> Prepared:
        """Return the launch arguments for the kernel that takes pointers and whose groups are ranges of K."""
        strides = (*self.left.strides[1:], *self.right.strides[1:], *self.result.strides)
        return self._prepared("grouped_mm_depth", (*self.sizes, *strides), {"PRECISION": self._precision})

    @property
    def _precision(self) -> str:
        return precision(self.operands.mat_a.dtype)

    def _prepared(
        self,
        kernel: str,
        numbers: tuple[int, ...],
        named: dict[str, Any],
    ) -> Prepared:
        mat_a, mat_b, offs, _ = self.operands
        return Prepared(
            kernel=kernel,
            shape=shape_of(mat_a, mat_b, offs),
            zeroed=self.zeroed,
            numbers=numbers,
            named=named,
        )
