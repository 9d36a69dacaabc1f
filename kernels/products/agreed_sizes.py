"""Sizes on which kernels and the code that launches them must agree. It imports neither torch nor Triton, so that both can import it."""

from __future__ import annotations

from typing import Final

__all__ = ["CONSUMER_ROWS", "SCALE_BLOCK"]

CONSUMER_ROWS: Final = 64
"""Rows of a tile that a consumer warp group of the sm_90 kernels computes."""
SCALE_BLOCK: Final = 128
"""Elements of K that share a block scale of an fp8 operand; blocks of several rows or columns have as many of these."""
