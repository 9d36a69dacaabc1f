"""Operators that torch runs in one piece on a GPU, and takes apart without one: a compiled graph has them whole, as on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch._decomp import decomposition_table

__all__ = ["keep_fused"]

# those of torch's native_functions.yaml with a formula for every device and a kernel for CUDA but none for CPUs
_FUSED: Final = (torch.ops.aten._fused_rms_norm.default,)  # noqa: SLF001 - the operator's name


def keep_fused(*devices: str) -> Callable[[], None]:
    """Let graphs of torch.compile keep fused operators whole; return a function that ends it.

    Args:
        devices: types of the devices that simulated tensors have, such as ``cuda``.
    """
    library = torch.library.Library("aten", "IMPL")
    for device in devices:
        key = torch._C._dispatch_key_for_device(device)  # noqa: SLF001 - torch asks it so
        for operator in _FUSED:
            # autograd keeps an operator whole if the device has a kernel for it
            if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key):  # noqa: SLF001 - as above
                library.impl(operator, decomposition_table[operator], key)

    def end() -> None:
        library._destroy()  # noqa: SLF001 - as torch's scoped library ends

    return end
