"""Layouts of the kinds that sparse attention has, by a few numbers: what problems and benchmarks are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from nojit.kernels.block_sparse.layout import BlockLayout
from torch import Tensor

__all__ = ["Pattern", "Problem"]

Pattern = Literal["random", "window", "longformer", "bigbird", "dense"]
_RANDOM = 3
"""Blocks that a row of ``bigbird`` has beside those of ``longformer``, as in Zaheer et al. 2020."""


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
        if self.pattern != "window":
            # one global block row and column
            active[0, :] = True
            active[:, 0] = True
        if self.pattern == "bigbird":
            generator = torch.Generator().manual_seed(self.rows * 1009 + self.cols)
            order = torch.rand(self.rows, self.cols, generator=generator).masked_fill(active, -1.0).argsort(1)
            active.scatter_(1, order[:, -_RANDOM:], True)
        return active
