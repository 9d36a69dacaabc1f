"""The pointwise operators: arguments checked, then one launch over the memory of dense tensors.

All tensors of a call have one shape, dtype and device, and one dense memory layout (contiguous, channels-last,
transposed: any order of dimensions without gaps or overlaps). There is no broadcasting. Each is differentiable; the
gradients are computed by torch's own operators.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.arguments import check_choice, check_dtype, check_like, check_tensor, refuse_value
from nojit.kernels.dispatch import is_plain, written
from torch import Tensor

__all__ = ["gelu", "silu", "swiglu", "vector_add"]

APPROXIMATIONS: Final = ("none", "tanh")

_LIBRARY: Final = torch.library.Library("nojit", "FRAGMENT")
_TAGS: Final = (torch.Tag.pt2_compliant_tag,)


def vector_add(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Add two tensors elementwise.

    Args:
        input: fp16, bf16 or fp32, of any shape, dense in memory.
        other: a tensor of the same shape, dtype, device and memory layout.
        out: where to write, likewise; it may be one of the inputs. Not differentiable.

    Returns:
        The sum, in the layout of `input`; `out` itself if that was given.

    Raises:
        ArgumentError: a dtype or device that does not fit.
        ValueError: a shape or memory layout that does not fit.
    """
    if out is None:
        result: Tensor = (_vector_add if is_plain(input, other) else _vector_add_op)(input, other)
        return result
    if torch.is_grad_enabled() and (input.requires_grad or other.requires_grad or out.requires_grad):
        refuse_value("out", "no tensor that requires grad among the arguments", "one: out= is not differentiable")
    _vector_add_out_op(input, other, out)
    return written(out)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:  # noqa: A002 - torch's name
    """Apply the Gaussian error linear unit, ``x * Phi(x)``.

    Args:
        input: fp16, bf16 or fp32, of any shape, dense in memory.
        approximate: ``"none"`` for the exact form through erf, ``"tanh"`` for the tanh form.

    Returns:
        A new tensor in the layout of `input`.

    Raises:
        ArgumentError: a dtype or device that does not fit.
        ValueError: a memory layout with gaps or overlaps, or another word for `approximate`.
    """
    result: Tensor = (_gelu if is_plain(input) else _gelu_op)(input, approximate)
    return result


def silu(input: Tensor) -> Tensor:  # noqa: A002 - torch's name
    """Apply the sigmoid linear unit, ``x * sigmoid(x)``.

    Args:
        input: fp16, bf16 or fp32, of any shape, dense in memory.

    Returns:
        A new tensor in the layout of `input`.

    Raises:
        ArgumentError: a dtype or device that does not fit.
        ValueError: a memory layout with gaps or overlaps.
    """
    result: Tensor = (_silu if is_plain(input) else _silu_op)(input)
    return result


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Multiply ``silu(gate)`` by `up`, with one rounding at the end.

    Args:
        gate: fp16, bf16 or fp32, of any shape, dense in memory.
        up: a tensor of the same shape, dtype, device and memory layout.

    Returns:
        A new tensor in the layout of `gate`.

    Raises:
        ArgumentError: a dtype or device that does not fit.
        ValueError: a shape or memory layout that does not fit.
    """
    result: Tensor = (_swiglu if is_plain(gate, up) else _swiglu_op)(gate, up)
    return result


def _check_dense(argument: str, value: Tensor) -> None:
    """Require that the elements fill their memory without gaps or overlaps, in any order of dimensions."""
    if value.is_contiguous():
        return
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(value.shape, value.stride(), strict=True)):
        if size == 1:
            continue
        if stride != expected:
            refuse_value(
                argument,
                "a dense memory layout (try .contiguous())",
                f"shape {tuple(value.shape)}, strides {value.stride()}",
            )
        expected *= size


def _check_operand(argument: str, value: Tensor) -> None:
    check_tensor(argument, value)
    check_dtype(argument, value)
    _check_dense(argument, value)


def _check_twin(argument: str, value: Tensor, first: str, like: Tensor) -> None:
    """Require a tensor that lies in memory just as `like`, the argument `first`, does."""
    check_like(argument, value, first, like)
    if value.shape != like.shape:
        refuse_value(argument, f"shape {tuple(like.shape)} as {first} has", tuple(value.shape))
    if value.is_contiguous() and like.is_contiguous():
        return
    strides = [
        (mine, theirs)
        for mine, theirs, size in zip(value.stride(), like.stride(), like.shape, strict=True)
        if size != 1
    ]
    if any(mine != theirs for mine, theirs in strides):
        refuse_value(argument, f"strides {like.stride()} as {first} has", value.stride())


def _check_overlap(argument: str, out: Tensor, first: str, operand: Tensor) -> None:
    """Require that `out` is `operand` or shares no memory with it; both are dense and of one size."""
    distance = abs(out.data_ptr() - operand.data_ptr())
    if 0 < distance < out.numel() * out.element_size():
        refuse_value(argument, f"the memory of {first} or none of it", f"an overlap, {distance} bytes apart")


def _launch_vector_add(input: Tensor, other: Tensor, out: Tensor) -> None:  # noqa: A002 - torch's name
    if n := input.numel():
        library.get("vector_add")(input, other, out, n)


def _vector_add(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002 - torch's name
    _check_operand("input", input)
    _check_twin("other", other, "input", input)
    out = torch.empty_like(input)
    _launch_vector_add(input, other, out)
    return out


def _vector_add_out(input: Tensor, other: Tensor, out: Tensor) -> None:  # noqa: A002 - torch's name
    _check_operand("input", input)
    _check_twin("other", other, "input", input)
    _check_twin("out", out, "input", input)
    _check_overlap("out", out, "input", input)
    _check_overlap("out", out, "other", other)
    _launch_vector_add(input, other, out)


def _gelu(input: Tensor, approximate: str) -> Tensor:  # noqa: A002 - torch's name
    check_choice("approximate", approximate, APPROXIMATIONS)
    _check_operand("input", input)
    out = torch.empty_like(input)
    if n := input.numel():
        library.get("gelu")(input, out, n, APPROXIMATE=approximate)
    return out


def _silu(input: Tensor) -> Tensor:  # noqa: A002 - torch's name
    _check_operand("input", input)
    out = torch.empty_like(input)
    if n := input.numel():
        library.get("silu")(input, out, n)
    return out


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    _check_operand("gate", gate)
    _check_twin("up", up, "gate", gate)
    out = torch.empty_like(gate)
    if n := gate.numel():
        library.get("swiglu")(gate, up, out, n)
    return out


def _like_first(first: Tensor, *_: object) -> Tensor:
    """Return what torch traces in place of a launch: a result like the first operand."""
    return torch.empty_like(first)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 - torch's signature
    ctx.save_for_backward(*(value for value in inputs if isinstance(value, Tensor)))
    ctx.words = [value for value in inputs if isinstance(value, str)]


def _vector_add_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001 - torch's signature
    return grad, grad


def _gelu_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    return torch.ops.aten.gelu_backward(grad, x, approximate=ctx.words[0]), None


def _silu_backward(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    result: Tensor = torch.ops.aten.silu_backward(grad, x)
    return result


def _swiglu_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    gate, up = (value.float() for value in ctx.saved_tensors)
    wide, sigmoid = grad.float(), torch.sigmoid(gate)
    to_gate = wide * up * sigmoid * (1 + gate * (1 - sigmoid))
    return to_gate.to(grad.dtype), (wide * gate * sigmoid).to(grad.dtype)


def _register(name: str, schema: str, launch: Any, backward: Any, save: Any = _save_inputs) -> Any:
    """Define an operator of the namespace ``nojit`` whose one result is like its first operand."""
    _LIBRARY.define(f"{name}{schema}", tags=_TAGS)
    _LIBRARY.impl(name, launch, "CompositeExplicitAutograd")
    torch.library.register_fake(f"nojit::{name}", _like_first, lib=_LIBRARY)
    torch.library.register_autograd(f"nojit::{name}", backward, setup_context=save, lib=_LIBRARY)
    return getattr(torch.ops.nojit, name).default


_vector_add_op = _register(
    "vector_add", "(Tensor input, Tensor other) -> Tensor", _vector_add, _vector_add_backward, save=None
)
_gelu_op = _register("gelu", "(Tensor input, str approximate) -> Tensor", _gelu, _gelu_backward)
_silu_op = _register("silu", "(Tensor input) -> Tensor", _silu, _silu_backward)
_swiglu_op = _register("swiglu", "(Tensor gate, Tensor up) -> Tensor", _swiglu, _swiglu_backward)

_LIBRARY.define("vector_add_out(Tensor input, Tensor other, Tensor(a!) out) -> ()", tags=_TAGS)
_LIBRARY.impl("vector_add_out", _vector_add_out, "CompositeExplicitAutograd")
torch.library.register_fake("nojit::vector_add_out", lambda input, other, out: None, lib=_LIBRARY)  # noqa: A006, ARG005
_vector_add_out_op = torch.ops.nojit.vector_add_out.default
