"""Shapes to test, tune and measure pointwise operators with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["PROBLEMS", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One shape, the same for all operands."""

    name: str
    shape: tuple[int, ...]


PROBLEMS: Final = {
    "test": (
        Problem("one element", (1,)),
        Problem("under a block", (1023,)),
        Problem("one block", (1024,)),
        Problem("over a block", (1025,)),
        Problem("odd sides", (3, 7, 41)),
    ),
    "tune": (
        Problem("64 KiB of fp16", (1 << 15,)),
        Problem("2 MiB of fp16", (1 << 20,)),
        Problem("32 MiB of fp16", (1 << 24,)),
        Problem("512 MiB of fp16", (1 << 28,)),
        Problem("a ragged end", ((1 << 24) + 1,)),
    ),
    "bars": (
        Problem("32 MiB of fp16", (1 << 24,)),
        Problem("512 MiB of fp16", (1 << 28,)),
        Problem("past 2^31 elements", ((1 << 31) + 1024,)),
    ),
}
"""Sets by use: `test` is small enough for an interpreter, `bars` is what speed is promised for."""
