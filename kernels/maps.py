"""Descriptions of tensors for kernels over TMA descriptors (tensor maps), and whether a device has such kernels."""

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
    "capability",
    "described",
    "has_maps",
    "nothing",
    "processors",
    "takes_maps",
]

HOPPER: Final = 9
"""The major compute capability whose kernels take tensor maps."""
OTHERS: Final = 132
"""The number of multiprocessors assumed when there is no device to ask."""
MAP_BYTES: Final = 16
"""Alignment of addresses and strides in tensor maps."""


def described(value: Tensor) -> Described | None:
    """Describe a tensor for a map; None if it is empty, or its address or a stride is not a multiple of 16 bytes."""
    step = MAP_BYTES // value.element_size()
    *outer, last = strides = value.stride()
    if value.data_ptr() % MAP_BYTES or (last != 1 and value.shape[-1] != 1) or not value.numel():
        return None
    if last == 1 and 1 not in value.shape and min(strides) > 0 and not (outer[0] | outer[1] | outer[2]) % step:
        return Described(value, strides)
    # a dimension of size 1 may have any stride: replace one that a map cannot hold
    fitting = [step if size == 1 else stride for size, stride in zip(value.shape, outer, strict=False)]
    if any(stride <= 0 or stride % step for stride in fitting):
        return None
    return Described(value, (*fitting, 1))


def takes_maps(value: Tensor) -> bool:
    """Return whether a tensor has 16-bit elements and lies on a device with kernels over maps."""
    return value.element_size() == 2 and has_maps(value.device)


def has_maps(device: torch.device) -> bool:
    """Return whether a device has kernels over maps."""
    if device.type != "cuda":
        return False
    return bool(_facts(torch.cuda.current_device() if device.index is None else device.index).major == HOPPER)


def capability(value: Tensor) -> tuple[int, int]:
    """Return the compute capability of a tensor's device, (9, 0) for ``sm_90``."""
    facts = _facts(value.device.index)
    return facts.major, facts.minor


def nothing(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a placeholder for a tensor that no kernel reads. It has no memory, so that it may be cached across CUDA graphs."""
    return torch.empty(0, dtype=dtype, device=device)


def processors(value: Tensor) -> int:
    """Return the number of multiprocessors of a tensor's device; `OTHERS` for a host."""
    if not value.is_cuda:
        return OTHERS
    return int(_facts(value.device.index).multi_processor_count)


@cache
def _facts(device: int) -> Any:
    return torch.cuda.get_device_properties(device)
