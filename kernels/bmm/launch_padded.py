"""Launch of a matrix product on sm_90 whose right operand is first copied to rows aligned to 128-byte cache lines.

If rows of both operands, or of the right one, start at odd multiples of 16 bytes, each step takes longer, as measured; presumably
because TMA copies by sectors of 32 bytes. The copy avoids that.
"""

# ruff: noqa: PLR0917 - called as other products are

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nojit.kernels.bmm.product import Product
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.products.matrices import Mapped
from torch import Tensor

__all__ = ["Padded", "aligned"]

LINE: Final = 64
"""Elements of a line of memory."""


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
        caller.launch(
            "bmm_pad",
            in_ptr=right,
            out_ptr=copied,
            count=batch * rows,
            rows=rows,
            width=cols,
            stride_z=self.of.strides[1],
            stride_row=self.of.strides[2],
            pitch=pitch,
        )
        operands = (copied, b) if self.swapped else (a, copied)
        return self.product(*operands, source, out, scales, caller)


def aligned(of: Mapped) -> Mapped:
    """Return the description of a copy of a matrix, or of a batch, whose rows start on lines."""
    _, _, rows, cols = of.shape
    pitch = -(-cols // LINE) * LINE
    return of._replace(strides=(of.strides[0], rows * pitch, pitch, 1))
