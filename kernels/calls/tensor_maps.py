"""Descriptions of tensors for TMA descriptors (tensor maps), and whether a device has kernels that take them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch
from nojit.runtime._core import Described
from torch import Tensor

__all__ = [
    "MAP_BYTES",
    "OTHERS",
    "Described",
    "all_described",
    "capability",
    "described",
    "has_maps",
    "is_unaligned",
    "nothing",
    "processors",
    "takes_maps",
]

HOPPER: Final = 9
"""The major compute capability of devices whose kernels take TMA descriptors."""
OTHERS: Final = 132
"""Number of SMs to assume if there is no device to ask."""
MAP_BYTES: Final = 16
"""Addresses and strides in TMA descriptors must be multiples of this many bytes."""


def is_unaligned(*values: Tensor | None) -> bool:
    """Return whether the address of any tensor is unsuitable for TMA descriptors and vector loads; None has none."""
    return any(value is not None and value.data_ptr() % MAP_BYTES for value in values)


def described(value: Tensor) -> Described | None:
    """Return the TMA description of a tensor; None if it is empty, or its address or a stride is no multiple of 16 bytes."""
    step = MAP_BYTES // value.element_size()
    *outer, last = strides = value.stride()
    if value.data_ptr() % MAP_BYTES or (last != 1 and value.shape[-1] != 1) or not value.numel():
        return None
    if last == 1 and 1 not in value.shape and min(strides) > 0 and not (outer[0] | outer[1] | outer[2]) % step:
        return Described(value, strides)
    # a dimension of size 1 may have any stride: replace one that a descriptor cannot hold
    fitting = [step if size == 1 else stride for size, stride in zip(value.shape, outer, strict=False)]
    if any(stride <= 0 or stride % step for stride in fitting):
        return None
    return Described(value, (*fitting, 1))


def all_described(*values: Tensor) -> tuple[Described, ...] | None:
    """Return the TMA descriptions of tensors; None if one of them has none."""
    found = []
    for value in values:
        one = described(value)
        if one is None:
            return None
        found.append(one)
    return tuple(found)


def takes_maps(value: Tensor) -> bool:
    """Return whether a tensor has 16-bit elements and is on a device with kernels that take TMA descriptors."""
    return value.element_size() == 2 and has_maps(value.device)


def has_maps(device: torch.device) -> bool:
    """Return whether a device has kernels that take TMA descriptors."""
    if device.type != "cuda":
        return False
    return bool(_facts(torch.cuda.current_device() if device.index is None else device.index).major == HOPPER)


def capability(value: Tensor) -> tuple[int, int]:
    """Return the compute capability (major, minor) of a tensor's device: (9, 0) for ``sm_90``."""
    facts = _facts(value.device.index)
    return facts.major, facts.minor


def nothing(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor that stands for an absent one, which no kernel reads.

    It has no memory, so that it may be cached across CUDA graphs.
    """
    return torch.empty(0, dtype=dtype, device=device)


def processors(value: Tensor) -> int:
    """Return the number of SMs of a tensor's device; `OTHERS` for a tensor on the host."""
    if not value.is_cuda:
        return OTHERS
    return int(_facts(value.device.index).multi_processor_count)


@cache
def _facts(device: int) -> Any:
    return torch.cuda.get_device_properties(device)
