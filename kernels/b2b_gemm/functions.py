"""Activations between the two products of ``b2b_gemm``: those of the library, and functions that a user wrote.

A user's activation is a ``@triton.jit`` function and its equivalent in torch. A manifest builds the Triton function
when it lists it in the axis ``FUNCTION`` of the kernels ``b2b_gemm`` and ``b2b_gemm_sm90``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.calls.arguments import check_choice, refuse_type, refuse_value
from nojit.kernels.products.activations import ACTIVATIONS, FUNCTIONS
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
"""The Triton function that applies any activation of the library, selected by number."""
LISTED_ROUNDED: Final = FunctionRef("nojit.kernels.b2b_gemm.kernel_sm90:listed_rounded")
"""The Triton function with fewer instructions than `LISTED`, for results that the kernel rounds to 16 bits."""
_WORDS: Final = tuple(ACTIVATIONS)


def _differentiate_silu(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of silu by `x`, computed in fp32.

    Autograd can differentiate it again; torch's `silu_backward` has no derivative.
    """
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
"""Activations that users registered, by source. Gradients of traced operators look them up here."""


@dataclass(frozen=True, slots=True)
class CustomActivation:
    """An activation written by a user: a ``@triton.jit`` function that a manifest builds, and its equivalent in torch.

    The Triton function takes fp32 values and an int, and returns fp32 values. Kernels pass the number of a library
    activation as the int, so the function must ignore it.
    """

    source: str
    """Name of the Triton function as in the manifest: ``module:function`` or ``file.py:function``.

    A process accepts one `twin` and one `gradient` for a source.
    """
    twin: Callable[[Tensor], Tensor]
    """The equivalent torch function: takes a tensor, returns a tensor of the same shape."""
    gradient: Callable[[Tensor, Tensor], Tensor] | None = None
    """Torch function that takes (gradient by the result, argument) and returns the gradient by the argument.

    None if no gradient is ever needed.
    """

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
        """Register this activation under its source: torch's operators receive strings only.

        A second activation of the same source may add a gradient that the first one lacks.

        Raises:
            ValueError: the source is registered with another twin or gradient.
        """
        known = _CUSTOM.setdefault(self.source, self)
        for name, before, now in (("twin", known.twin, self.twin), ("gradient", known.gradient, self.gradient)):
            if before is not None and now is not None and before != now:
                refuse_value(name, f"{before!r}, as for earlier activations of {self.source}", repr(now))
        if known.gradient is None:
            _CUSTOM[self.source] = self


def name_of(activation: object) -> str:
    """Return the string that torch's operators receive for an activation.

    This is the name of a library activation, or the source of a `CustomActivation`.

    Raises:
        ValueError: a string that is neither.
    """
    if isinstance(activation, CustomActivation):
        return activation.source
    if not (isinstance(activation, str) and activation in _CUSTOM):
        check_choice("activation", activation, _WORDS)
    return str(activation)


def reference_of(name: str) -> tuple[FunctionRef, int]:
    """Return the Triton function for an activation's name or source, and the activation number that kernels pass to it."""
    number = ACTIVATIONS.get(name)
    return (FunctionRef(name), 0) if number is None else (LISTED, number)


def rounded(function: FunctionRef) -> FunctionRef:
    """Return the cheapest Triton function equal to `function` up to the rounding of its result to 16 bits."""
    return LISTED_ROUNDED if function == LISTED else function


def apply(name: str, x: Tensor) -> Tensor:
    """Apply the activation `name` to the tensor `x` in torch."""
    return FUNCTIONS[name](x) if name in FUNCTIONS else _CUSTOM[name].twin(x)


def differentiate(name: str, grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient by `x` of the activation `name`, given `grad`, the gradient by its result.

    Raises:
        NotImplementedError: a user's activation without a gradient.
    """
    known = _GRADIENTS.get(name)
    if known is None:
        known = _CUSTOM[name].gradient
    if known is None:
        raise NotImplementedError(f"activation: expected a gradient of {name}, got none: see CustomActivation")
    return known(grad, x)
