"""Sizes on which kernels and the code that launches them must agree. It imports neither torch nor Triton, so that both can import it."""

from __future__ import annotations

from typing import Final

__all__ = ["CONSUMER_ROWS", "LEAST_SHARED_STEPS", "MERGED_STEP", "SCALE_BLOCK", "SHARED_FP8_STEPS"]

CONSUMER_ROWS: Final = 64
"""Rows of a tile that a consumer warp group of the sm_90 kernels computes."""
LEAST_SHARED_STEPS: Final = 6
"""A program takes at least so many steps of K of a shared last wave, unless a tile has fewer: shorter ranges cost more to add up than they save."""
MERGED_STEP: Final = 64
"""Elements of K of a step, as `bmm_waves_merge` counts them."""
SHARED_FP8_STEPS: Final = 2
"""Steps of K that tensor cores of `scaled_mm_waves_sm90` sum at once, which count as one step of a shared last wave."""
SCALE_BLOCK: Final = 128
"""Elements of K that share a block scale of an fp8 operand; blocks of several rows or columns have as many of these."""
