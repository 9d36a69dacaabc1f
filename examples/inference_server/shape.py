"""The sizes of a model: known before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of what it serves at once; by default 0.9 billion weights."""

    layers: int = 16
    width: int = 2048
    heads: int = 16
    kv_heads: int = 4
    inner: int = 5632
    vocabulary: int = 32_000
    context: int = 4096
    """Tokens of a prompt and its answer, at most."""
    slots: int = 8
    """Sequences that are decoded side by side."""

    @property
    def dim(self) -> int:
        """Return the width of a head."""
        return self.width // self.heads


SMALL = Shape(layers=2, width=64, heads=4, kv_heads=2, inner=96, vocabulary=300, context=128, slots=3)
"""A model that a CPU has time for."""
