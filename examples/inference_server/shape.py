"""Sizes of a model; this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its cache; by default 0.9 billion weights."""

    layers: int = 16
    width: int = 2048
    heads: int = 16
    kv_heads: int = 4
    inner: int = 5632
    vocabulary: int = 32_000
    context: int = 4096
    """Maximum number of tokens of a prompt and its answer."""
    slots: int = 8
    """Number of sequences that are decoded in parallel."""

    @property
    def dim(self) -> int:
        """Return the width of a head."""
        return self.width // self.heads


SMALL = Shape(layers=2, width=64, heads=4, kv_heads=2, inner=96, vocabulary=300, context=128, slots=3)
"""A toy model for the CPU."""
