"""When a call may skip torch's dispatcher, which costs several microseconds once an operator is differentiable."""

# ruff: noqa: SLF001 - torch tells these facts to its own modules only

from __future__ import annotations

from typing import Any

import torch
from nojit.kernels import library
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["is_plain", "written"]

_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_tracing_state = torch._C._get_tracing_state


def written(out: Tensor) -> Tensor:
    """Tell autograd that `out` has changed, so that a gradient which needs what it held is refused; return it."""
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)
    return out


def is_plain(*tensors: Any) -> bool:
    """Say whether nothing but the kernel itself has to see a call: nobody traces, transforms or differentiates it.

    True only for tensors of torch's own class (None for absent ones) on a device that kernels run on. What the operator
    registered with torch does besides the launch is then nothing, and its implementation may be called at once.
    """
    if torch.compiler.is_compiling() or _dispatch_modes() or _function_modes() or _transforms() is not None:
        return False
    if forward_ad._current_level >= 0 or _tracing_state() is not None:
        return False
    differentiates = torch.is_grad_enabled()
    devices = library.devices()
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) is not Tensor or tensor.device.type not in devices or tensor.is_neg():
            return False
        if differentiates and tensor.requires_grad:
            return False
    return True
