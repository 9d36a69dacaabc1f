"""Shapes, strides and devices of operators' results, which torch's FakeTensorMode infers.

torch without CUDA has no device guard and no autograd thread for CUDA. Therefore Python code sees the device ``cuda:N``
of a tensor, and torch's C++ code sees ``lazy:N``, whose guard every build of torch has and whose gradients the calling
thread computes. The tensors' dispatch keys are CUDA's, so autocast and CUDA's operators apply to them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

__all__ = ["INNER", "Inference", "inner_device", "outer_device", "outward"]

INNER: Final = "lazy"
"""Type of a simulated CUDA device in torch's C++ code."""


class Inference(FakeTensorMode):  # type: ignore[misc] # a class of torch's
    """torch's FakeTensorMode, whose convolutions keep the layouts of a GPU."""

    def dispatch(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Infer the results of an operator, in the layouts of a GPU."""
        found = super().dispatch(func, types, args, kwargs or {})
        layout = _layout_of_convolution(func, args)
        if layout is None:
            return found
        return pytree.tree_map_only(FakeTensor, lambda each: self._with_layout(each, layout), found)

    def _with_layout(self, tensor: Any, layout: torch.memory_format) -> Any:
        if tensor.dim() not in {4, 5}:
            return tensor
        with no_dispatch():
            meta = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", memory_format=layout)
        return FakeTensor(self, meta, tensor.fake_device)


def inner_device(tensor: Any) -> torch.device:
    """Return the device of a tensor as torch's C++ code sees it."""
    if tensor.fake_mode.in_kernel_invocation:
        return torch.device("meta")
    device: torch.device = tensor.fake_device
    return torch.device(INNER, device.index) if device.type == "cuda" else device


def outer_device(device: torch.device) -> torch.device:
    """Return the device that Python code sees in place of one of torch's C++ code."""
    return torch.device("cuda", device.index or 0) if device.type == INNER else device


def outward(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that dispatches an operator, for operators that C++ code calls with the inner name of a device."""

    @functools.wraps(dispatch)
    def call(
        mode: Any, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        args, kwargs = pytree.tree_map_only(torch.device, outer_device, (tuple(args), dict(kwargs or {})))
        return dispatch(mode, func, types, args, kwargs)

    return call


def _layout_of_convolution(func: Any, args: Sequence[Any]) -> torch.memory_format | None:
    """Return the channels-last layout of a convolution's results; None if they are contiguous.

    cuDNN keeps the layout of input or weight (`cudnn_conv_suggest_memory_format`). A torch without CUDA does not know it.
    """
    if func not in {torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default}:
        return None
    tensors = [each for each in args[:3] if isinstance(each, FakeTensor) and each.dim() in {4, 5}]
    if not all(each.is_cuda and each.dtype != torch.float64 for each in tensors):
        return None
    layout = torch.channels_last if tensors[0].dim() == 4 else torch.channels_last_3d
    # a layout that is contiguous too counts as contiguous
    last = (each.is_contiguous(memory_format=layout) and not each.is_contiguous() for each in tensors[-2:])
    return layout if any(last) else None
