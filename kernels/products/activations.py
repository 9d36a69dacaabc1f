"""Activations in the epilogues of products: names, numbers in kernels, and equivalent torch functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["ACTIVATIONS", "FUNCTIONS"]

ACTIVATIONS: Final[Mapping[str, int]] = {
    "none": 0,
    "relu": 1,
    "square": 2,
    "gelu": 3,
    "gelu_tanh": 4,
    "silu": 5,
    "sigmoid": 6,
    "tanh": 7,
}
"""The number that selects each activation in `kernel_tiles.activate`."""

FUNCTIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "square": torch.square,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
"""The torch function equal to each activation, which gradients use."""
