"""Shapes of dense products to tune and measure: squares, batches, and linear layers of models 4096 and 8192 wide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["BARS", "TUNED", "Shape", "draw_shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """One product of two matrices, or of two batches of them."""

    name: str
    batch: int
    m: int
    n: int
    k: int
    trans_b: bool = False
    """True if b is column-major, as the weight of a linear layer is."""

    @property
    def kind(self) -> str:
        """The class of the shape in reports: few rows, many small matrices, or large ones."""
        if self.m <= 64:
            return "decode"
        return "batch" if self.batch > 1 else "large"

    @property
    def flops(self) -> int:
        """Number of floating-point operations: multiplications and additions."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def elements(self) -> int:
        """Number of elements of both operands and the result."""
        return self.batch * (self.m * self.k + self.k * self.n + self.m * self.n)


def _square(size: int, batch: int = 1) -> Shape:
    name = f"square of {size}" if batch == 1 else f"{batch} squares of {size}"
    return Shape(name, batch, size, size, size)


def _linear(tokens: int, n: int, k: int) -> Shape:
    return Shape(f"{tokens} tokens, {k} to {n}", 1, tokens, n, k, trans_b=True)


BARS: Final = (
    *(_square(size) for size in (1024, 2048, 4096, 8192)),
    _square(1024, 64),
    _square(512, 64),
    _square(256, 512),
    _square(128, 1024),
    _square(64, 2048),
    *(_linear(tokens, 4096, 4096) for tokens in (1, 16, 64, 2048)),
    _linear(1, 28672, 4096),
    _linear(64, 28672, 4096),
    _linear(4096, 28672, 4096),
    _linear(16, 8192, 8192),
    _linear(8192, 10240, 8192),
)
"""The shapes for which the documentation promises a speed."""

TUNED: Final = (
    *BARS,
    _square(3072),
    _square(1536),
    _square(2048, 16),
    _square(64, 128),
    _square(128, 64),
    *(_linear(tokens, 6144, 4096) for tokens in (4, 32, 128, 512)),
    *(_linear(tokens, 4096, 14336) for tokens in (1, 16, 256, 2048)),
    *(_linear(tokens, 1024, 4096) for tokens in (1, 64, 1024)),
    *(_linear(tokens, 10240, 8192) for tokens in (1, 32, 128)),
    Shape("256 rows, 256 columns, 16384 deep", 1, 256, 256, 16384),
    Shape("4096 rows, 64 columns", 1, 4096, 64, 4096),
    Shape("heads of 128, scores of 2048", 32, 2048, 2048, 128, trans_b=True),
)
"""The shapes that the tuner measures to make tuning tables."""

_MOST_ELEMENTS: Final = 1 << 28
_MOST_FLOPS: Final = 1 << 42


def draw_shape(rng: Random) -> Shape:
    """Draw a random product of any class; too large ones are drawn again. Sizes are multiples of 8."""
    while True:
        batch = rng.choice((1, 1, 1, 8, 64, 256))
        m, n, k = (8 * round(2 ** rng.uniform(2, 10.5)) for _ in range(3))
        if rng.random() < 0.3:
            batch, m = 1, rng.choice((1, 2, 8, 16, 48, 64))
        shape = Shape(f"{batch} x {m} x {n} x {k}", batch, m, n, k, trans_b=rng.random() < 0.5)
        if shape.elements <= _MOST_ELEMENTS and shape.flops <= _MOST_FLOPS and math.prod((batch, m, n)) >= 1 << 12:
            return shape
