"""Launch of a matrix product on sm_90 whose right operand is first copied to rows that start on lines of memory."""

# ruff: noqa: PLR0917 - called as other products are

from __future__ import annotations

from dataclasses import dataclass

from nojit.kernels.bmm.product import Product
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.products.matrices import Mapped
from torch import Tensor

__all__ = ["Padded"]


@dataclass(frozen=True, slots=True)
class Padded(Product):
    """A validated product with a copy of its right operand that is ready to launch."""

    product: Product
    """The product with the copy."""
    of: Mapped
    """TMA description of the right operand."""
    copy: Mapped
    """TMA description of the copy."""
    swapped: bool
    """True if the right operand is a."""

    def __call__(
        self,
        a: Tensor,
        b: Tensor,
        source: Tensor | None,
        out: Tensor | None,
        scales: tuple[int, float, float],
        caller: Caller = DIRECT,
    ) -> Tensor:
        """Copy the operand and launch the product, as `Product` describes."""
        right = a if self.swapped else b
        _, batch, rows, cols = self.of.shape
        pitch = self.copy.strides[2]
        copied = new_contiguous(caller, right, (batch, rows, pitch))
        caller.launch("bmm_pad", right, copied, batch * rows, rows, cols, *self.of.strides[1:3], pitch)
        operands = (copied, b) if self.swapped else (a, copied)
        return self.product(*operands, source, out, scales, caller)
