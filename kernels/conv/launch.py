"""Run validated convolutions and their gradients: allocate results, choose kernels, launch."""

# ruff: noqa: PLR0917 - a convolution has many facts

from __future__ import annotations

from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.conv.launch_few import is_uneven, is_unfolded, serves_few
from nojit.kernels.conv.launch_planes import PLANES, copy_to_channels, copy_to_planes
from nojit.kernels.conv.launch_pointers import Sum, launch_weight_grad
from nojit.kernels.conv.launch_sm90 import serves_channels
from nojit.kernels.conv.launch_sm90_weight_grad import serves_weight_grad_channels
from nojit.kernels.conv.launch_sums import Grad, launch_input_grad, launch_sum
from nojit.kernels.conv.launch_weight_grad import launch_fast_weight_grad
from nojit.kernels.conv.layouts import HALF, allocate, by_channels, has_adjacent_channels
from nojit.kernels.conv.sweeps import Window, classes_of, forward_sweep
from torch import Tensor

__all__ = ["run_conv", "run_input_grad", "run_weight_grad"]


def run_conv(
    writer: RecipeWriter,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
    precision: str,
    *,
    single: bool = False,
) -> Tensor:
    """Convolve x [N, C, ...] by weight [O, C / groups, ...] into a new tensor [N, O, ...].

    Args:
        writer: records the launches for replays.
        x: input.
        weight: weight.
        bias: [O], or None.
        window: stride, padding and dilation.
        groups: number of groups.
        precision: precision of fp32 products.
        single: return [O, ...]; N must be 1.
    """
    sweep = forward_sweep(window, x.shape[2:], weight.shape[2:])
    sizes = window.sizes(x.shape[2:], weight.shape[2:])
    shape = x.shape[0], weight.shape[0], *sizes
    made = out = allocate(writer, x, shape, by_channels(x, weight), single)
    if single:
        out = writer.stands(made.unsqueeze(0), made)
    if not out.numel():
        return made
    if bias is not None and not bias.is_contiguous():
        bias = writer.make(Tensor.contiguous, bias)
    one = Sum(
        sweep, x.shape[0], groups, weight.shape[1], weight.shape[0] // groups, is_transposed=False, precision=precision
    )
    target = out
    if _is_by_planes(x, out) and runs_by_channels(one, x):
        x, target = _read_by_channels(writer, x), _written_by_channels(writer, out)
    launch_sum(writer, one, x, weight, bias, target)
    if target is not out:
        copy_to_planes(writer, target, out)
    return made


def _needs_copy(x: Tensor) -> bool:
    """Return whether kernels that need channels-last take a copy of x; one whose channels are unfolded is copied in any case."""
    return not has_adjacent_channels(x) and not is_unfolded(x)


def _is_by_planes(x: Tensor, out: Tensor) -> bool:
    """Return whether kernels that need channels-last take a copy of x, or write another tensor in place of the result."""
    return _needs_copy(x) or not has_adjacent_channels(out)


def runs_by_channels(one: Sum, x: Tensor) -> bool:
    """Return whether a faster kernel runs a sum over x as soon as operands and result are channels-last.

    Copies cost less than the kernel that reads single elements.
    """
    if one.sweep.is_pointwise and one.groups == 1 and not one.is_part and not is_uneven(x):
        # a product takes planes, too
        return False
    return x.element_size() == HALF and (serves_few(one, x) or serves_channels(one, x)) and library.has(PLANES)


def _read_by_channels(writer: RecipeWriter, x: Tensor) -> Tensor:
    """Return x, or a channels-last copy if kernels need it."""
    return copy_to_channels(writer, x) if _needs_copy(x) else x


def _written_by_channels(writer: RecipeWriter, out: Tensor) -> Tensor:
    """Return `out`, or, if it is not channels-last, such a tensor in its place."""
    return out if has_adjacent_channels(out) else allocate(writer, out, tuple(out.shape), channels=True)


def run_input_grad(
    writer: RecipeWriter,
    grad: Tensor,
    weight: Tensor,
    shape: tuple[int, ...],
    window: Window,
    groups: int,
    precision: str,
) -> Tensor:
    """Compute the gradient by the input, [N, C, ...], from `grad`, the gradient by the output [N, O, ...].

    `writer`: allocates and launches, and records both for replays; `precision`: of fp32 operands: ``"tf32"`` or
    ``"ieee"``.
    """
    sweep = forward_sweep(window, shape[2:], weight.shape[2:])
    classes = list(classes_of(sweep))
    # a single class may use only some of the taps, as where an image is one position high
    is_part = len(classes) > 1 or classes[0].sweep.taps != sweep.taps
    read = [each for each in classes if all(count > 0 for count in each.sweep.taps)]
    out = allocate(writer, grad, shape, by_channels(grad, weight))
    if not out.numel():
        return out
    c_len, n_len = weight.shape[0] // groups, weight.shape[1]
    sums = [
        Sum(
            each.sweep,
            shape[0],
            groups,
            c_len,
            n_len,
            is_transposed=True,
            precision=precision,
            is_part=is_part,
        )
        for each in read
    ]
    whole = out
    if sums and _is_by_planes(grad, out) and all(runs_by_channels(one, grad) for one in sums):
        grad, whole = _read_by_channels(writer, grad), _written_by_channels(writer, out)
    zeroed = len(read) < len(classes)
    launch_input_grad(writer, Grad(sweep, read, sums, zeroed), grad, weight, whole)
    if whole is not out:
        copy_to_planes(writer, whole, out)
    return out


def run_weight_grad(
    writer: RecipeWriter,
    grad: Tensor,
    x: Tensor,
    shape: tuple[int, ...],
    window: Window,
    groups: int,
    precision: str,
) -> Tensor:
    """Compute the gradient by the weight, [O, C / groups, ...], from `grad`, the gradient by the output [N, O, ...].

    `writer`: allocates and launches, and records both for replays; `precision`: of fp32 operands: ``"tf32"`` or
    ``"ieee"``.
    """
    out = allocate(writer, grad, shape, by_channels(grad, x))
    if not out.numel():
        return out
    sweep = forward_sweep(window, x.shape[2:], shape[2:])
    one = Sum(sweep, x.shape[0], groups, shape[1], shape[0] // groups, is_transposed=False, precision=precision)
    target = out
    if (_is_by_planes(grad, out) or _needs_copy(x)) and serves_weight_grad_channels(one, grad) and library.has(PLANES):
        grad, x, target = (
            _read_by_channels(writer, grad),
            _read_by_channels(writer, x),
            _written_by_channels(writer, out),
        )
    if not launch_fast_weight_grad(writer, one, grad, x, target):
        launch_weight_grad(writer, one, grad, x, target)
    if target is not out:
        copy_to_planes(writer, target, out)
    return out
