"""What a device knows of the sequences that are decoded side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor


class Prompt(NamedTuple):
    """A prompt that was read."""

    slot: int
    """Where."""
    length: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Slots:
    """A number for each slot; kernels read and write them, and nobody waits for that."""

    tokens: Tensor
    """The token that was chosen last, int32."""
    lens: Tensor
    """How many tokens the sequence has with that one, int32; 1 where there is no sequence."""
    temperatures: Tensor
    """What scores are divided by before a token is drawn, fp32; 0 takes the likeliest."""
    seeds: Tensor
    """What draws follow from, int32."""

    @classmethod
    def empty(cls, count: int, device: torch.device) -> Self:
        """Make slots without sequences."""
        tokens, seeds = (torch.zeros(count, device=device, dtype=torch.int32) for _ in range(2))
        lens = torch.ones(count, device=device, dtype=torch.int32)
        return cls(tokens, lens, torch.zeros(count, device=device), seeds)
