"""Launch arguments of a validated matrix product on sm_90 whose last wave of tiles all programs share."""

# ruff: noqa: PLR0917 - called as other products are

from __future__ import annotations

from dataclasses import dataclass

import torch
from nojit.kernels.bmm.product import Product
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.products.matrices import Mapped, described
from nojit.kernels.products.shared_wave import COLS, GROUP, ROWS
from torch import Tensor

__all__ = ["Shared"]


@dataclass(frozen=True, slots=True)
class Shared(Product):
    """A validated matrix product without epilogue that is ready to launch."""

    shape: tuple[int, ...]
    """Shape of the result: [M, N] or [B, M, N]."""
    dtype: torch.dtype
    """Dtype of the result."""
    swapped: bool
    """True if the kernel computes the transposed result, ``b^T @ a^T``."""
    maps: tuple[Mapped, Mapped, Mapped]
    """TMA descriptions of the left operand, the right operand and the result."""
    sums: tuple[int, int, int]
    """Shape of the workspace, fp32."""
    numbers: dict[str, int]
    """Sizes by the names of the kernels' params."""
    processors: int
    strides: dict[str, int]
    """Strides of the result between matrices and between rows by the names of the kernel's params."""

    def __call__(
        self,
        a: Tensor,
        b: Tensor,
        source: Tensor | None,
        out: Tensor | None,
        scales: tuple[int, float, float],
        caller: Caller = DIRECT,
    ) -> Tensor:
        """Launch the product, as `Product` describes; without an epilogue, `source` is None and `scales` have no effect."""
        del source, scales
        result = new_contiguous(caller, a, self.shape, self.dtype) if out is None else out
        left, right = (b, a) if self.swapped else (a, b)
        sums = new_contiguous(caller, a, self.sums, torch.float32)
        of_a, of_b, _ = self.maps
        tile = {"BLOCK_M": ROWS, "BLOCK_N": COLS, "GROUP": GROUP}
        flags = {"TRANS_A": of_a.is_transposed, "TRANS_B": of_b.is_transposed}
        caller.launch(
            "bmm_waves_sm90",
            **described(self.maps, a_map=left, b_map=right, out_map=result),
            sums_ptr=sums,
            **self.numbers,
            a_step=of_a.step,
            b_step=of_b.step,
            programs=self.processors,
            **flags,
            **tile,
        )
        merged = {**self.numbers, "programs": self.processors, **self.strides}
        caller.launch("bmm_waves_merge", sums_ptr=sums, out_ptr=result, **merged, **tile)
        return result
