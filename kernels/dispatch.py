"""What torch says of a call: whether it may skip the dispatcher, what autocast asks for, and how fp32 is multiplied.

The dispatcher costs several microseconds once an operator is differentiable.
"""

# ruff: noqa: SLF001 - torch tells these facts to its own modules only

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.arguments import FLOATS
from nojit.runtime import _core
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

__all__ = [
    "PLAIN",
    "allows_tf32",
    "autocasts",
    "differentiates",
    "has_modes",
    "is_plain",
    "is_real",
    "is_transformed",
    "lasting",
    "lowered",
    "may_differentiate",
    "precision",
    "shown",
    "switch_of",
    "written",
]

PLAIN: Final = _core.Plain(
    # a Parameter is a tensor of torch's own, whose operators return none; what is made of it may be anything
    tensors=(Tensor, torch.nn.Parameter),
    requires_grad=Tensor.requires_grad,
    is_negated=Tensor.is_neg,
    grad_enabled=torch.is_grad_enabled,
    states=(
        (torch._C._len_torch_dispatch_stack, 0),
        (torch._C._len_torch_function_stack, 0),
        (torch._C._are_functorch_transforms_active, False),
        (torch._C._is_tracing, False),
        (vars(forward_ad), "_current_level", -1),
    ),
)
"""Says whether tensors are plain, but for what only torch's compiler sees."""
autocasts = torch._C._is_any_autocast_enabled
"""Say whether autocast is on for any kind of device; what it asks for, `lowered` does."""


def has_modes() -> bool:
    """Say whether a mode of torch's sees every call; one that makes fake tensors takes no real ones."""
    return bool(torch._C._len_torch_dispatch_stack())


def is_transformed() -> bool:
    """Say whether one of torch's transforms sees every call, ``vmap`` say; those take no autograd function of ours."""
    return bool(torch._C._are_functorch_transforms_active())


def shown(tables: Sequence[Tensor | None], operand: Tensor) -> list[Any]:
    """Return what is kept beside the operands of a call, as the call takes it: beside a fake tensor, fakes of its mode.

    A mode that takes real tensors too gets those, and so does torch's tracing, whose graph is to have them.
    """
    mode = None if torch.compiler.is_dynamo_compiling() else getattr(operand, "fake_mode", None)
    if mode is None or mode.allow_non_fake_inputs or _is_tracing():
        return list(tables)
    return [None if table is None else mode.from_tensor(table) for table in tables]


def _is_tracing() -> bool:
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def is_real(tensor: Tensor) -> bool:
    """Say whether a tensor can outlive the call that made it: no mode's fake one, and none of a transform's."""
    return type(tensor) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


@contextmanager
def lasting() -> Iterator[None]:
    """Make tensors that outlive a call: real ones, whatever mode or transform sees the call."""
    if torch.compiler.is_dynamo_compiling():
        # it knows what is stored, and none of the switches below
        with torch.inference_mode(False):
            yield
        return
    with torch.inference_mode(False), _disable_current_modes(), torch._C._DisableFuncTorch():
        yield


def written(out: Tensor) -> Tensor:
    """Tell autograd that `out` has changed, so that a gradient which needs what it held is refused; return it."""
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)
    return out


def lowered(operand: Any, dtype: torch.dtype | None = None) -> Any:
    """Cast an operand as autocast asks: floats of 16 and 32 bits on a device that it is on for, as torch's products do.

    Args:
        operand: a tensor; whatever else stays as it is.
        dtype: what to cast to, instead of autocast's dtype.
    """
    if not isinstance(operand, Tensor) or operand.dtype not in FLOATS:
        return operand
    kind = operand.device.type
    # torch's autocast knows no device of the name meta
    if operand.is_meta or not torch.is_autocast_enabled(kind):
        return operand
    return operand.to(torch.get_autocast_dtype(kind) if dtype is None else dtype)


def is_plain(*tensors: Any) -> bool:
    """Say whether nothing but the kernel itself has to see a call: nobody traces, transforms or differentiates it.

    True only for tensors and parameters of torch's own classes (None for absent ones) on a device that kernels run on. What
    the operator registered with torch does besides the launch is then nothing, and its implementation may be called at once.

    Raises:
        NotImplementedError: a tensor has a tangent: torch would drop it without a word, as no operator knows its own; or a
            transform of torch's wants a gradient of one.
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
            raise NotImplementedError("expected tensors without tangents: operators have no forward-mode derivatives")


def differentiates(*tensors: Any) -> bool:
    """Say whether torch.autograd follows what a call does to tensors, or to what torch's transforms wrap in them.

    What is no tensor counts for nothing: a call may not have been checked yet. Within ``vmap`` a tensor that requires grad says that it does not.
    """
    return torch.is_grad_enabled() and any(isinstance(value, Tensor) and _requires_grad(value) for value in tensors)


def may_differentiate(*tensors: Any) -> bool:
    """Say whether `differentiates` holds, or torch's compiler, which does not see what a transform wraps, cannot tell."""
    hidden = torch.compiler.is_dynamo_compiling() and torch.is_grad_enabled() and is_transformed()
    return hidden or differentiates(*tensors)


def _requires_grad(tensor: Tensor) -> bool:
    # torch's compiler takes no look into what is wrapped
    layers = (tensor,) if torch.compiler.is_dynamo_compiling() else _layers(tensor)
    return any(each.requires_grad for each in layers)


def _refuse_transformed_gradients(tensors: tuple[Any, ...]) -> None:
    if any(isinstance(tensor, Tensor) and _is_differentiated(tensor) for tensor in tensors):
        raise NotImplementedError(
            "expected tensors that torch.func does not differentiate by: operators have gradients for torch.autograd only"
        )


def _is_differentiated(tensor: Tensor) -> bool:
    """Say whether some ``torch.func.grad`` of those around a call differentiates by a tensor, or by what it is made of."""
    tracks = torch._C._functorch.is_gradtrackingtensor
    return any(each.requires_grad and tracks(each) for each in _layers(tensor))


def _layers(tensor: Tensor) -> Iterator[Tensor]:
    """Give a tensor, and what each transform around a call has wrapped in it."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        yield tensor
        tensor = functorch.get_unwrapped(tensor)
    yield tensor


def precision(dtype: torch.dtype) -> str:
    """Say how fp32 is multiplied in products: as torch's switch for matmuls says at this moment."""
    if dtype != torch.float32:
        return "ieee"
    return "tf32" if allows_tf32("matmul") else "ieee"


def allows_tf32(kind: str) -> bool:
    """Say whether torch's switch for ``"matmul"`` or ``"conv"`` allows TF32 at this moment."""
    # the older switches cannot be read once the newer ones were set
    read = getattr(torch._C, "_get_fp32_precision_getter", None)
    if read is not None:
        return bool(read("cuda", kind) == "tf32")
    return bool(torch.backends.cudnn.allow_tf32 if kind == "conv" else torch.backends.cuda.matmul.allow_tf32)


def switch_of(operand: object) -> str | None:
    """Return `precision` if it decides how an operand is multiplied; None of other dtypes, and of what is no tensor."""
    return precision(torch.float32) if getattr(operand, "dtype", None) is torch.float32 else None
