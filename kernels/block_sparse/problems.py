"""Layouts to test, tune and measure block-sparse operators with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import torch
from nojit.kernels.block_sparse.layout import BlockLayout
from torch import Tensor

__all__ = ["PROBLEMS", "Pattern", "Problem"]

Pattern = Literal["random", "window", "bigbird", "dense"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One layout and batch."""

    name: str
    batch: int
    heads: int
    rows: int
    """Block rows."""
    cols: int
    """Block columns."""
    block: int
    pattern: Pattern
    reach: float
    """The density of ``random``; else how many blocks a row sees to each side of the diagonal."""

    def layout(self) -> BlockLayout:
        """Make the layout; random ones are the same every time."""
        return BlockLayout(self._active().expand(self.heads, -1, -1), self.block)

    def _active(self) -> Tensor:
        distance = torch.arange(self.rows)[:, None] - torch.arange(self.cols)[None, :]
        if self.pattern == "dense":
            return torch.ones(self.rows, self.cols, dtype=torch.bool)
        if self.pattern == "random":
            generator = torch.Generator().manual_seed(self.rows * 1009 + self.cols)
            return torch.rand(self.rows, self.cols, generator=generator) < self.reach
        active = distance.abs() <= self.reach
        if self.pattern == "bigbird":
            # one global block row and column, as in Zaheer et al. 2020, figure 1
            active[0, :] = True
            active[:, 0] = True
        return active


PROBLEMS: Final = {
    "test": (
        Problem("one block", 1, 1, 1, 1, 16, "dense", 0),
        Problem("random, rectangular", 2, 2, 2, 5, 16, "random", 0.5),
        Problem("window", 1, 2, 3, 3, 32, "window", 1),
        Problem("bigbird", 2, 1, 4, 4, 16, "bigbird", 0),
        Problem("large blocks", 1, 1, 1, 3, 128, "window", 1),
        Problem("rows past one tile", 1, 1, 1, 40, 32, "dense", 0),
        Problem("rows past the longest tile", 1, 1, 1, 300, 16, "random", 0.95),
    ),
    "tune": (
        Problem("window 16", 4, 16, 256, 256, 16, "window", 8),
        Problem("window 64", 4, 16, 64, 64, 64, "window", 4),
        Problem("bigbird 64", 4, 16, 128, 128, 64, "bigbird", 2),
        Problem("random 32", 4, 16, 128, 128, 32, "random", 0.25),
    ),
    "bars": (
        Problem("window 64", 8, 16, 64, 64, 64, "window", 4),
        Problem("window 128", 8, 16, 64, 64, 128, "window", 2),
        Problem("bigbird 64", 4, 16, 128, 128, 64, "bigbird", 2),
        Problem("half of all, 32", 2, 16, 128, 128, 32, "random", 0.5),
    ),
}
"""Sets by use: `test` is small enough for an interpreter, `bars` is what speed is promised for."""
