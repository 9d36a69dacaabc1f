"""What a call of an operator is to the tests on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
Outputs = tuple[Tensor, ...]


def no_slack(exact: Outputs) -> float:
    del exact
    return 0.0


@dataclass(frozen=True)
class Call:
    """One operator call; every function makes the same inputs from the same seed."""

    label: str
    run: Callable[[], Outputs]
    exact: Callable[[], Outputs]
    torchs: Callable[[], Outputs]
    factors: tuple[float, ...]
    """For each output, how many times torch's own error it may have."""
    slack: Callable[[Outputs], float] = no_slack
    """What else an error may be, by the exact results."""


def view(shape: tuple[int, ...], dtype: torch.dtype, seed: int, *, offset: int = 0, scale: float = 1.0) -> Tensor:
    """Make a random tensor whose first element lies `offset` elements past an aligned address."""
    generator = torch.Generator("cuda").manual_seed(seed)
    count = int(torch.Size(shape).numel())
    flat = torch.empty(count + offset, dtype=dtype, device="cuda")
    # normal_ in pieces: it draws 32-bit indices
    for piece in flat.split(1 << 28):
        piece.normal_(generator=generator)
    return flat[offset:].view(shape).mul_(scale)


def as_tuple(value: object) -> Outputs:
    return value if isinstance(value, tuple) else (value,)  # type: ignore[return-value]
