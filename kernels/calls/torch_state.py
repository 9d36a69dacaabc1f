"""Torch's state during a call: whether the call may skip torch's dispatcher, autocast's dtype, and the fp32 precision.

For a differentiable operator the dispatcher costs several microseconds.
"""

# ruff: noqa: SLF001 - torch offers these queries as private functions only

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.arguments import FLOATS
from nojit.runtime import _core
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

__all__ = [
    "PLAIN",
    "PLAIN_OR_RECORDED",
    "allows_tf32",
    "autocasts",
    "differentiates",
    "for_caching",
    "has_modes",
    "is_plain",
    "is_real",
    "is_transformed",
    "lowered",
    "may_differentiate",
    "precision",
    "shown",
    "switch_of",
    "written",
]


def _plain(grad_enabled: Callable[[], bool]) -> _core.Plain:
    return _core.Plain(
        # operators return plain tensors for torch's own class Parameter; other subclasses may do anything
        tensors=(Tensor, torch.nn.Parameter),
        requires_grad=Tensor.requires_grad,
        is_negated=Tensor.is_neg,
        grad_enabled=grad_enabled,
        states=(
            (torch._C._len_torch_dispatch_stack, 0),
            (torch._C._len_torch_function_stack, 0),
            (torch._C._are_functorch_transforms_active, False),
            (torch._C._is_tracing, False),
            (vars(forward_ad), "_current_level", -1),
        ),
    )


PLAIN: Final = _plain(torch.is_grad_enabled)
"""Callable that returns whether tensors are plain, as `is_plain` defines it, except under torch.compile."""
PLAIN_OR_RECORDED: Final = _plain(bool)
"""Callable that returns whether tensors are plain, or would be if autograd were off, except under torch.compile."""
autocasts = torch._C._is_any_autocast_enabled
"""Return whether autocast is on for any device type; `lowered` then casts operands."""


def has_modes() -> bool:
    """Return whether a torch mode intercepts every call; the mode of fake tensors refuses real ones."""
    return bool(torch._C._len_torch_dispatch_stack())


def is_transformed() -> bool:
    """Return whether a torch transform such as ``vmap`` intercepts every call.

    Transforms cannot handle nojit's autograd functions.
    """
    return bool(torch._C._are_functorch_transforms_active())


def shown(tables: Sequence[Tensor | None], operand: Tensor) -> list[Any]:
    """Return the tables to pass along with `operand`: fake versions if `operand` is a fake tensor.

    A mode that also accepts real tensors gets the real ones. So does torch's tracing, whose graph must contain them.
    """
    mode = None if torch.compiler.is_dynamo_compiling() else getattr(operand, "fake_mode", None)
    if mode is None or mode.allow_non_fake_inputs or _is_tracing():
        return list(tables)
    return [None if table is None else mode.from_tensor(table) for table in tables]


def _is_tracing() -> bool:
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def is_real(tensor: Tensor) -> bool:
    """Return whether a tensor may be stored beyond the call: it is neither a mode's fake tensor nor a transform's wrapper."""
    return type(tensor) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


@contextmanager
def for_caching() -> Iterator[None]:
    """Context in which new tensors may be stored beyond the call: they are real, under any mode or transform."""
    if torch.compiler.is_dynamo_compiling():
        # inference mode would mark stored tensors as its own; the other contexts do not switch it off
        with torch.inference_mode(False):
            yield
        return
    with torch.inference_mode(False), _disable_current_modes(), torch._C._DisableFuncTorch():
        yield


def written(out: Tensor) -> Tensor:
    """Tell autograd that `out` was modified, so that it refuses gradients that need the old values; return `out`."""
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)
    return out


def lowered(operand: Any, dtype: torch.dtype | None = None) -> Any:
    """Cast an operand to the dtype of autocast, with torch's rules for matrix products.

    Autocast casts floats of 16 and 32 bits on devices for which it is on.

    Args:
        operand: a tensor; any other value is returned unchanged.
        dtype: the dtype to cast to, instead of autocast's; unused where autocast is off.
    """
    if not isinstance(operand, Tensor) or operand.dtype not in FLOATS:
        return operand
    kind = operand.device.type
    # torch's autocast has no device type "meta"
    if operand.is_meta or not torch.is_autocast_enabled(kind):
        return operand
    return operand.to(torch.get_autocast_dtype(kind) if dtype is None else dtype)


def is_plain(*tensors: Any) -> bool:
    """Return whether a call may go straight to the kernel: torch does not trace, transform or differentiate it.

    True only if all tensors have torch's own classes (or are None, for absent ones) and are on a device that kernels
    run on. Torch's dispatcher then adds nothing to the launch, and the caller may run the operator's implementation
    directly.

    Raises:
        NotImplementedError: a tensor has a tangent, which torch would silently drop because the operators define no
            forward-mode derivative; or a torch transform differentiates by a tensor.
    """
    if torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0:
        _refuse_tangents(tensors)
        return False
    if PLAIN(library.devices(), *tensors):
        return True
    if is_transformed() and torch.is_grad_enabled():
        _refuse_transformed_gradients(tensors)
    return False


def _refuse_tangents(tensors: tuple[Any, ...]) -> None:
    for tensor in tensors:
        if isinstance(tensor, Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(
                "expected tensors without tangents, as operators have no forward-mode derivatives: differentiate in reverse mode"
            )


def differentiates(*tensors: Any) -> bool:
    """Return whether autograd records operations on these tensors, or on tensors that torch's transforms wrap in them.

    Values other than tensors are ignored, since a call may not be validated yet. Within ``vmap`` a tensor that requires
    grad reports that it does not.
    """
    return torch.is_grad_enabled() and any(isinstance(value, Tensor) and _requires_grad(value) for value in tensors)


def may_differentiate(*tensors: Any) -> bool:
    """Return whether autograd may record operations on these tensors.

    Unlike `differentiates` it may be True without need while torch.compile traces: the compiler cannot see what a
    transform wraps.
    """
    hidden = torch.compiler.is_dynamo_compiling() and torch.is_grad_enabled() and is_transformed()
    return hidden or differentiates(*tensors)


def _requires_grad(tensor: Tensor) -> bool:
    # torch's compiler cannot look into wrapped tensors
    layers = (tensor,) if torch.compiler.is_dynamo_compiling() else _layers(tensor)
    return any(each.requires_grad for each in layers)


def _refuse_transformed_gradients(tensors: tuple[Any, ...]) -> None:
    if any(isinstance(tensor, Tensor) and _is_differentiated(tensor) for tensor in tensors):
        raise NotImplementedError(
            "expected tensors that torch.func does not differentiate by: call torch.autograd.grad or backward() instead"
        )


def _is_differentiated(tensor: Tensor) -> bool:
    """Return whether an enclosing ``torch.func.grad`` differentiates by `tensor`, or by one from which it was computed."""
    tracks = torch._C._functorch.is_gradtrackingtensor
    return any(each.requires_grad and tracks(each) for each in _layers(tensor))


def _layers(tensor: Tensor) -> Iterator[Tensor]:
    """Yield `tensor`, then the tensor that it wraps for a torch transform, and so on to the innermost."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        yield tensor
        tensor = functorch.get_unwrapped(tensor)
    yield tensor


def precision(dtype: torch.dtype) -> str:
    """Return ``"tf32"`` if torch's switch for matmuls allows it and `dtype` is fp32, otherwise ``"ieee"``."""
    if dtype != torch.float32:
        return "ieee"
    return "tf32" if allows_tf32("matmul") else "ieee"


def allows_tf32(kind: str) -> bool:
    """Return whether torch's switch for ``"matmul"`` or ``"conv"`` currently allows TF32."""
    # torch refuses to read its older switches once a newer one was set
    read = getattr(torch._C, "_get_fp32_precision_getter", None)
    if read is not None:
        return bool(read("cuda", kind) == "tf32")
    return bool(torch.backends.cudnn.allow_tf32 if kind == "conv" else torch.backends.cuda.matmul.allow_tf32)


def switch_of(operand: object) -> str | None:
    """For an fp32 tensor, return ``"tf32"`` if torch's switch for matmuls allows it, else ``"ieee"``; None for other values."""
    return precision(torch.float32) if getattr(operand, "dtype", None) is torch.float32 else None
