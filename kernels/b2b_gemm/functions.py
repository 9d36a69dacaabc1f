"""Functions between two products: the library's activations, and users' own.

A user's own is a ``@triton.jit`` function, which a manifest builds by naming it in the axis ``FUNCTION`` of both kernels, with
its equivalent in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.arguments import check_choice, refuse_type, refuse_value
from nojit.kernels.gemm.activations import ACTIVATIONS, FUNCTIONS
from nojit.runtime.values import FunctionRef
from torch import Tensor

__all__ = [
    "LISTED",
    "LISTED_ROUNDED",
    "CustomActivation",
    "apply",
    "differentiate",
    "name_of",
    "reference_of",
    "rounded",
]

LISTED: Final = FunctionRef("nojit.kernels.b2b_gemm.kernel:listed")
"""The function of all activations of the library."""
LISTED_ROUNDED: Final = FunctionRef("nojit.kernels.b2b_gemm.kernel_sm90:listed_rounded")
"""The same function in fewer instructions, for an intermediate product that is then rounded to 16 bits."""
_WORDS: Final = tuple(ACTIVATIONS)


def _differentiate_silu(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of silu, computed in fp32 and differentiable; torch's `silu_backward` has no derivative."""
    wide = x.float()
    logistic = torch.sigmoid(wide)
    return (grad.float() * logistic * (1 + wide * (1 - logistic))).to(grad.dtype)


_ATEN: Final = torch.ops.aten
_GRADIENTS: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "none": lambda grad, _: grad,
    "relu": lambda grad, x: _ATEN.threshold_backward(grad, x, 0),
    "square": lambda grad, x: 2 * grad * x,
    "gelu": lambda grad, x: _ATEN.gelu_backward(grad, x, approximate="none"),
    "gelu_tanh": lambda grad, x: _ATEN.gelu_backward(grad, x, approximate="tanh"),
    "silu": _differentiate_silu,
    "sigmoid": lambda grad, x: _ATEN.sigmoid_backward(grad, torch.sigmoid(x)),
    "tanh": lambda grad, x: _ATEN.tanh_backward(grad, torch.tanh(x)),
}
_CUSTOM: Final[dict[str, CustomActivation]] = {}
"""User activations by source; gradients of traced operators look them up here."""


@dataclass(frozen=True, slots=True)
class CustomActivation:
    """A user's own activation: a ``@triton.jit`` function that a manifest builds, and its equivalent in torch.

    The Triton function takes two arguments, fp32 values and an int, and returns fp32 values. The int is the number of a
    library activation, so the function must ignore it.
    """

    source: str
    """``module:function`` or ``file.py:function``, as in the manifest. A process accepts one twin and one gradient for it."""
    twin: Callable[[Tensor], Tensor]
    """The equivalent function of torch."""
    gradient: Callable[[Tensor, Tensor], Tensor] | None = None
    """Takes the gradient by the result, and the argument; returns the gradient by the argument. None if it is never needed."""

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            refuse_type("source", "a str", type(self.source).__name__)
        module, colon, function = self.source.partition(":")
        if not (module and colon and function):
            refuse_value("source", "'module:function' or 'file.py:function'", repr(self.source))
        if not callable(self.twin):
            refuse_type("twin", "a function of a tensor", type(self.twin).__name__)
        if self.gradient is not None and not callable(self.gradient):
            refuse_type("gradient", "a function of two tensors, or None", type(self.gradient).__name__)
        self._register()

    def _register(self) -> None:
        """Register this activation under its source, since torch's operators receive only that. A gradient may be added later."""
        known = _CUSTOM.setdefault(self.source, self)
        for name, before, now in (("twin", known.twin, self.twin), ("gradient", known.gradient, self.gradient)):
            if before is not None and now is not None and before != now:
                refuse_value(name, f"{before!r}, as for earlier activations of {self.source}", repr(now))
        if known.gradient is None:
            _CUSTOM[self.source] = self


def name_of(activation: object) -> str:
    """Return an activation as a string for torch's operators: its name, or the source of a user's own.

    Raises:
        ValueError: neither a name nor a `CustomActivation`.
    """
    if isinstance(activation, CustomActivation):
        return activation.source
    if not (isinstance(activation, str) and activation in _CUSTOM):
        check_choice("activation", activation, _WORDS)
    return str(activation)


def reference_of(name: str) -> tuple[FunctionRef, int]:
    """Return the Triton function of an activation, and the number that kernels pass to it."""
    number = ACTIVATIONS.get(name)
    return (FunctionRef(name), 0) if number is None else (LISTED, number)


def rounded(function: FunctionRef) -> FunctionRef:
    """Return the cheapest Triton function for an intermediate product that is then rounded to 16 bits."""
    return LISTED_ROUNDED if function == LISTED else function


def apply(name: str, x: Tensor) -> Tensor:
    """Return the activation of `x`, computed by torch."""
    return FUNCTIONS[name](x) if name in FUNCTIONS else _CUSTOM[name].twin(x)


def differentiate(name: str, grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of an activation by its argument `x`.

    Raises:
        NotImplementedError: a user's own activation without a gradient.
    """
    known = _GRADIENTS.get(name)
    if known is None:
        known = _CUSTOM[name].gradient
    if known is None:
        raise NotImplementedError(f"activation: expected a gradient of {name}, got none: see CustomActivation")
    return known(grad, x)
