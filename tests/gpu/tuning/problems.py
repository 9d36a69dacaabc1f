"""Calls of the kernel in `kernel.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from nojit.kernels.problem import Roles, Work

ROLES = {"double": Roles(("BLOCK",), (), ("FAULT",))}


@dataclass(frozen=True)
class Double:
    name: str
    n: int
    kernel: str = "double"
    shape_class: str = "some"
    dtype: str = "fp32"

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"n": self.n}

    def prepare(self, device: str) -> Work:
        x = torch.randn(self.n, device=device)
        out = torch.empty_like(x)
        return Work("double", (x, out, self.n), {}, (out,), (2 * x,), (0.0,), 8 * self.n, self.n)


def problems(use: str) -> tuple[Double, ...]:
    """List the calls; of any use."""
    return Double(f"small, {use}", 4096), Double(f"large, {use}", 1 << 24), Double(f"ragged, {use}", 100_001)
