"""Inputs and outputs of programs: each prints a line for each output, with its name and a digest of its bits."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["compute", "random", "say"]

_SEED = 1234
_is_quiet = "--no-digest" in sys.argv[1:]


def random(*shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0, grad: bool = False) -> Tensor:
    """Return a tensor of normal random numbers on the GPU, the same in every run.

    Args:
        shape: the shape, which is part of the seed.
        dtype: the dtype.
        scale: standard deviation.
        grad: whether it gets a gradient.
    """
    generator = torch.Generator().manual_seed(_SEED + sum(shape) + len(shape))
    values = torch.randn(shape, generator=generator, dtype=torch.float32) * scale
    return values.to(dtype).cuda().requires_grad_(grad)


def say(name: str, output: Tensor) -> None:
    """Print a digest of an output; only its name with ``--no-digest``, for simulated GPUs."""
    if _is_quiet:
        print(name)
        return
    data = output.detach().contiguous().cpu()
    digest = hashlib.sha256(data.reshape(-1).view(torch.uint8).numpy().tobytes())
    print(f"{name} {digest.hexdigest()[:32]}", flush=True)


def compute(name: str, output: Any, inputs: Mapping[str, Tensor]) -> None:
    """Print digests of an output, and of the gradients of inputs.

    Args:
        name: the operator.
        output: a tensor, or a tuple of tensors and None.
        inputs: inputs by name; those that require a gradient get one.
    """
    outputs = [each for each in (output if isinstance(output, tuple) else (output,)) if isinstance(each, Tensor)]
    for place, each in enumerate(outputs):
        say(f"{name}.{place}", each)
    wanted = {each: tensor for each, tensor in inputs.items() if tensor.requires_grad}
    sources = [each for each in outputs if each.requires_grad]
    if wanted and sources:
        gradients = [
            torch.ones_like(each) if each.dim() == 0 else random(*each.shape, dtype=each.dtype) for each in sources
        ]
        for each, gradient in zip(wanted, torch.autograd.grad(sources, [*wanted.values()], gradients), strict=True):
            say(f"{name}.d{each}", gradient)
