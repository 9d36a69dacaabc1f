"""Shapes to test, tune and measure attention with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["PROBLEMS", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """The sizes of one call."""

    name: str
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    v_dim: int
    is_causal: bool = False
    causal_alignment: str = "top_left"


PROBLEMS: Final = {
    "test": (
        Problem("one query", 1, 1, 1, 1, 1, 16, 16),
        Problem("tiles that fit", 1, 2, 2, 128, 128, 64, 64, is_causal=True),
        Problem("ragged lengths", 2, 2, 1, 131, 77, 64, 64),
        Problem("ragged, causal", 1, 4, 2, 77, 131, 32, 32, is_causal=True),
        Problem("ragged, causal at the end", 1, 2, 1, 77, 131, 32, 32, is_causal=True, causal_alignment="bottom_right"),
        Problem("rows that see nothing", 1, 2, 2, 150, 70, 32, 32, is_causal=True, causal_alignment="bottom_right"),
        Problem("no keys", 1, 2, 2, 5, 0, 32, 32),
        Problem("head of 40", 1, 2, 1, 33, 65, 40, 40, is_causal=True),
        Problem("head of 96", 1, 2, 2, 40, 70, 96, 96),
        Problem("head of 111", 1, 3, 1, 20, 30, 111, 111),
        Problem("values wider than keys", 1, 2, 2, 20, 30, 24, 72),
        Problem("latent attention", 1, 2, 1, 20, 70, 192, 128, is_causal=True),
        Problem("head of 256", 1, 1, 1, 70, 70, 256, 256),
    ),
    "tune": (
        Problem("short", 16, 16, 16, 512, 512, 64, 64),
        Problem("prefill 4k", 4, 32, 8, 4096, 4096, 128, 128, is_causal=True),
        Problem("prefill 16k", 1, 32, 8, 16384, 16384, 128, 128, is_causal=True),
        Problem("chunk against a long cache", 1, 32, 8, 512, 32768, 128, 128, True, "bottom_right"),
    ),
    "bars": (
        Problem("4k causal", 4, 32, 32, 4096, 4096, 128, 128, is_causal=True),
        Problem("4k", 4, 32, 32, 4096, 4096, 128, 128),
        Problem("16k causal", 1, 32, 32, 16384, 16384, 128, 128, is_causal=True),
        Problem("4k causal, D 64", 4, 32, 32, 4096, 4096, 64, 64, is_causal=True),
    ),
}
"""Sets by use: `test` is small enough for an interpreter, `bars` is what speed is promised for."""
