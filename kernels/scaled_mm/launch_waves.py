"""Launch arguments of a validated ``scaled_mm`` call on sm_90 whose last wave of tiles all programs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.products.agreed_sizes import MERGED_STEP
from nojit.kernels.products.matrices import Mapped, described
from nojit.kernels.products.shared_wave import COLS, GROUP, ROWS, sums_shape
from nojit.kernels.scaled_mm.cost import SHARED_STEP
from nojit.kernels.scaled_mm.operands import Operands
from torch import Tensor

__all__ = ["MERGE", "WAVES", "Shared"]

WAVES: Final = "scaled_mm_waves_sm90"
MERGE: Final = "bmm_waves_merge"


@dataclass(frozen=True, slots=True)
class Shared:
    """A validated ``scaled_mm`` call with one scale each, without bias, that is ready to launch; the result is bf16."""

    maps: tuple[Mapped, Mapped, Mapped]
    """TMA descriptions of a, of the transpose of b and of the result."""
    sizes: dict[str, int]
    """Sizes by the names of the kernels' params."""
    pitch: int
    """Distance of the result's rows in elements."""
    processors: int

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the product; return the result, a new tensor unless `out` is given.

        `operands`: a, b and their scales; `caller`: allocates and launches, or also records both for replays.
        """
        a, b, scale_a, scale_b, _ = operands
        rows, cols, depth = self.sizes.values()
        result = new_contiguous(caller, a, (rows, cols), torch.bfloat16) if out is None else out
        sums = new_contiguous(caller, a, sums_shape(1, rows, cols, self.processors), torch.float32)
        tile = {"BLOCK_M": ROWS, "BLOCK_N": COLS, "GROUP": GROUP}
        caller.launch(
            WAVES,
            **described(self.maps, a_map=a, b_map=b, out_map=result),
            sums_ptr=sums,
            scale_a_ptr=scale_a,
            scale_b_ptr=scale_b,
            **self.sizes,
            programs=self.processors,
            **tile,
        )
        # the merge kernel needs the number of steps
        merged = {**self.sizes, "k_len": -(-depth // SHARED_STEP) * MERGED_STEP, "programs": self.processors}
        strides = {"stride_oz": rows * self.pitch, "stride_om": self.pitch}
        caller.launch(MERGE, sums_ptr=sums, out_ptr=result, batch=1, **merged, **strides, **tile)
        return result
