"""State of the decoded sequences on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor


class Prompt(NamedTuple):
    """A processed prompt."""

    slot: int
    """Its slot."""
    length: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Slots:
    """One number for each slot; only kernels read and write them, so the host never waits."""

    tokens: Tensor
    """The last chosen token, int32."""
    lens: Tensor
    """Length of the sequence with that token, int32; 1 for an empty slot."""
    temperatures: Tensor
    """Divisor of scores before sampling, fp32; 0 selects the most likely token."""
    seeds: Tensor
    """Seeds of the samples, int32."""

    @classmethod
    def empty(cls, count: int, device: torch.device) -> Self:
        """Return empty slots."""
        tokens, seeds = (torch.zeros(count, device=device, dtype=torch.int32) for _ in range(2))
        lens = torch.ones(count, device=device, dtype=torch.int32)
        return cls(tokens, lens, torch.zeros(count, device=device), seeds)
