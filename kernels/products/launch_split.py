"""The part of a launch that all dense products share: the result, and the partial sums of split-K."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from nojit.kernels.calls.memos import Caller, new_contiguous
from nojit.kernels.products.matrices import Mapped
from torch import Tensor

__all__ = ["PreparedProduct"]


@dataclass(frozen=True, slots=True)
class PreparedProduct:
    """A validated product that is ready to launch. A family adds its numbers, and the order of its operands."""

    kernel: str
    shape: tuple[int, ...]
    """Shape of the result: [M, N] or [B, M, N]."""
    dtype: torch.dtype
    """Dtype of the result."""
    maps: tuple[Mapped, Mapped, Mapped] | None
    """TMA descriptions of the left operand, the right operand and the result; None for kernels that take pointers."""
    partial: tuple[int, ...] | None
    """Shape of the partial sums, fp32; None without split-K."""
    unused: Tensor | None
    """Tensor that the pointer kernel receives in place of partial sums if there are none; None for kernels without them."""
    numbers: dict[str, int]
    """Sizes and strides by the names of the kernel's params."""
    constexprs: dict[str, Any]

    def new_result(self, a: Tensor, caller: Caller) -> Tensor:
        """Allocate the result on the device of the left operand `a`."""
        return new_contiguous(caller, a, self.shape, self.dtype)

    def new_sums(self, a: Tensor, caller: Caller) -> Tensor | None:
        """Allocate the partial sums on the device of `a`; return None without split-K."""
        return None if self.partial is None else new_contiguous(caller, a, self.partial, torch.float32)

    def sums_operand(self, sums: Tensor | None, caller: Caller) -> dict[str, Tensor]:
        """Return what a pointer kernel takes for the partial sums: one tensor, or none if the kernel has no such param."""
        if self.unused is None:
            return {}
        caller.constant(self.unused)
        return {"partial_ptr": self.unused if sums is None else sums}
