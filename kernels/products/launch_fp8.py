"""The form in which kernels of fp8 products take their operands: fp8, or bytes on devices without fp8 products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.tensor_maps import capability
from nojit.runtime.errors import KernelNotFoundError
from torch import Tensor

__all__ = ["FP8_BYTES", "takes_bytes"]

FP8_BYTES: Final = 1
MULTIPLIES: Final = (9, 0)
"""The lowest compute capability with fp8 products for which every bundle has images."""
FIRST: Final = (8, 9)
"""The lowest compute capability with fp8 products. Without images for it, such devices run the images for ``sm_80``."""


def takes_bytes(a: Tensor, name: str) -> bool:
    """Return whether the device of `a` cannot run the kernel `name`, with fp8 products, and so takes operands as bytes."""
    if not a.is_cuda or (found := capability(a)) >= MULTIPLIES:
        return False
    return found < FIRST or not _is_built(name, a.device)


def _is_built(name: str, device: torch.device) -> bool:
    """Return whether a bundle at hand has the kernel `name` for `device`."""
    try:
        kernel = library.get(name)
    except KernelNotFoundError:
        return False
    # a kernel that a test installs has no `fits` and runs on any device
    fits: Callable[[int | None], bool] = getattr(kernel, "fits", lambda _: True)
    return fits(device.index)
