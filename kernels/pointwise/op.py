"""The pointwise operators that nojit ships.

Inputs broadcast, may have any strides, and are converted to a common dtype by torch's promotion rules. Results are
fp16, bf16 or fp32, computed in fp32 and rounded once. All operators are differentiable. With `out`, the tensor to write
the result to, they have no gradients. All raise `ArgumentError` for a wrong type, dtype or device, and `ValueError` for
a wrong shape, layout or string.
"""

from __future__ import annotations

import math
from typing import Final

from nojit.kernels.calls.arguments import check_choice, check_number, check_tensors, refuse_type, refuse_value
from nojit.kernels.pointwise.op_from_spec import Operator, load_own
from torch import Tensor

__all__ = [
    "OPERATORS", "add", "add_gelu", "add_relu", "add_silu", "addcmul", "clamp", "div", "exp", "geglu", "gelu", "lerp", "mul", "reglu",
    "relu", "sigmoid", "silu", "sub", "swiglu", "tanh", "vector_add",
]  # fmt: skip

OPERATORS: Final = load_own()
"""The operators by name."""

_VECTOR_ADD: Final = OPERATORS["vector_add"]
_SUB: Final = OPERATORS["sub"]
_ADD_SCALED: Final = OPERATORS["add_scaled"]
_MUL: Final = OPERATORS["mul"]
_DIV: Final = OPERATORS["div"]
_RELU: Final = OPERATORS["relu"]
_GELU: Final = OPERATORS["gelu"]
_SILU: Final = OPERATORS["silu"]
_SIGMOID: Final = OPERATORS["sigmoid"]
_TANH: Final = OPERATORS["tanh"]
_EXP: Final = OPERATORS["exp"]
_SWIGLU: Final = OPERATORS["swiglu"]
_GEGLU: Final = OPERATORS["geglu"]
_REGLU: Final = OPERATORS["reglu"]
_ADD_RELU: Final = OPERATORS["add_relu"]
_ADD_SILU: Final = OPERATORS["add_silu"]
_ADD_GELU: Final = OPERATORS["add_gelu"]
_CLAMP: Final = OPERATORS["clamp"]
_ADDCMUL: Final = OPERATORS["addcmul"]
_LERP: Final = OPERATORS["lerp"]
_LERP_NUMBER: Final = OPERATORS["lerp_number"]


def vector_add(
    input: Tensor,  # noqa: A002 - torch's name
    other: Tensor,
    *,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``input + alpha * other``."""
    if type(alpha) is int and alpha == 1:
        return _VECTOR_ADD.call((input, other), out=out)
    return _scaled(_VECTOR_ADD, input, other, alpha, sign=1, out=out)


add = vector_add
"""Torch's name for `vector_add`."""


def sub(
    input: Tensor,  # noqa: A002 - torch's name
    other: Tensor,
    *,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``input - alpha * other``."""
    if type(alpha) is int and alpha == 1:
        return _SUB.call((input, other), out=out)
    return _scaled(_SUB, input, other, alpha, sign=-1, out=out)


def _scaled(plain: Operator, left: Tensor, right: Tensor, alpha: float, *, sign: int, out: Tensor | None) -> Tensor:
    """Return ``left + sign * alpha * right``; if `alpha` is 1, by `plain`, which computes ``left + sign * right``."""
    if isinstance(alpha, bool):
        refuse_type("alpha", "a number, not a bool", alpha)
    factor = check_number("alpha", alpha)
    check_tensors(input=left, other=right)
    # the result of ints alone would be ints, which is refused for every alpha
    if factor == 1 or not (left.is_floating_point() or right.is_floating_point()):
        return plain.call((left, right), out=out)
    return _ADD_SCALED.call((left, right), scalars=(sign * factor,), out=out)


def mul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return ``input * other``."""
    return _MUL.call((input, other), out=out)


def div(
    input: Tensor,  # noqa: A002 - torch's name
    other: Tensor,
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``input / other``; for ints the result is a float.

    `rounding_mode` rounds quotients to integers: ``"trunc"`` towards 0, ``"floor"`` down as Python's ``//``. Both
    refuse operands that are all ints, since the result would be ints.
    """
    if rounding_mode is None:
        return _DIV.call((input, other), "none", out=out)
    check_choice("rounding_mode", rounding_mode, ("trunc", "floor"))
    check_tensors(input=input, other=other)
    if not (input.is_floating_point() or other.is_floating_point()):
        refuse_type("input", "floats, as results are floats", input.dtype)
    return _DIV.call((input, other), rounding_mode, out=out)


def relu(input: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return ``max(input, 0)``; NaN stays NaN."""
    return _RELU.call((input,), out=out)


def gelu(input: Tensor, approximate: str = "none", *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return ``x * Phi(x)``, the Gaussian error linear unit: with erf (``"none"``), or in its tanh form (``"tanh"``)."""
    return _GELU.call((input,), approximate, out=out)


def silu(input: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return ``x * sigmoid(x)``, the sigmoid linear unit."""
    return _SILU.call((input,), out=out)


def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return the logistic function ``1 / (1 + exp(-x))``."""
    return _SIGMOID.call((input,), out=out)


def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return the hyperbolic tangent."""
    return _TANH.call((input,), out=out)


def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return e to the power of `input`."""
    return _EXP.call((input,), out=out)


def swiglu(gate: Tensor, up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``silu(gate) * up`` (Shazeer 2020, https://arxiv.org/abs/2002.05202, without its matmuls)."""
    return _SWIGLU.call((gate, up), out=out)


def geglu(gate: Tensor, up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``gelu(gate) * up``."""
    return _GEGLU.call((gate, up), out=out)


def reglu(gate: Tensor, up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``relu(gate) * up``."""
    return _REGLU.call((gate, up), out=out)


def add_relu(input: Tensor, residual: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return ``relu(input + residual)``."""
    return _ADD_RELU.call((input, residual), out=out)


def add_silu(input: Tensor, residual: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return ``silu(input + residual)``."""
    return _ADD_SILU.call((input, residual), out=out)


def add_gelu(input: Tensor, residual: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Return ``gelu(input + residual)``, computed with erf."""
    return _ADD_GELU.call((input, residual), out=out)


def clamp(
    input: Tensor,  # noqa: A002 - torch's names
    min: float | None = None,  # noqa: A002
    max: float | None = None,  # noqa: A002
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Limit `input` to at least `min` and at most `max`; None means no limit, and at most one of them may be None."""
    if min is None is max:
        refuse_value("min", "a number for min, for max or for both", "neither")
    for name, bound in (("min", min), ("max", max)):
        if isinstance(bound, float) and math.isnan(bound):
            refuse_value(name, "a number to compare with", "NaN")
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    return _CLAMP.call((input,), scalars=(low, high), out=out)


def addcmul(
    input: Tensor,  # noqa: A002 - torch's name
    tensor1: Tensor,
    tensor2: Tensor,
    *,
    value: float = 1.0,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``input + value * tensor1 * tensor2``."""
    return _ADDCMUL.call((input, tensor1, tensor2), scalars=(value,), out=out)


def lerp(
    input: Tensor,  # noqa: A002 - torch's name
    end: Tensor,
    weight: Tensor | float,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``input + weight * (end - input)``."""
    if isinstance(weight, Tensor):
        return _LERP.call((input, end, weight), out=out)
    return _LERP_NUMBER.call((input, end), scalars=(weight,), out=out)
