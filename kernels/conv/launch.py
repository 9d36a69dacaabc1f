"""Run validated convolutions and their gradients: allocate results, choose kernels, launch."""

# ruff: noqa: PLR0917 - a convolution has many facts

from __future__ import annotations

import torch
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.conv.launch_few import is_few, is_uneven, launch_few
from nojit.kernels.conv.launch_pointers import Sum, launch, launch_product, launch_weight_grad
from nojit.kernels.conv.launch_sm90 import launch_mapped, launch_mapped_weight_grad
from nojit.kernels.conv.layouts import by_channels, formatted, part_of
from nojit.kernels.conv.sweeps import PADDED_DIM, Class, Window, classes_of, forward_sweep
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
    made = out = _allocate(writer, x, shape, by_channels(x, weight), single)
    if single:
        out = writer.stands(made.unsqueeze(0), made)
    if not out.numel():
        return made
    if bias is not None and not bias.is_contiguous():
        bias = writer.make(Tensor.contiguous, bias)
    one = Sum(
        sweep, x.shape[0], groups, weight.shape[1], weight.shape[0] // groups, is_transposed=False, precision=precision
    )
    _sum(writer, one, x, weight, bias, out)
    return made


def _allocate(
    writer: RecipeWriter, like: Tensor, shape: tuple[int, ...], channels: bool, single: bool = False
) -> Tensor:
    """Allocate a tensor, channels-last if `channels`, else contiguous; `single` drops the first dimension, of size 1.

    `writer`: allocates and launches, and records both for replays.
    """
    strides = torch.empty(shape, device="meta", memory_format=formatted(channels, len(shape))).stride()
    # use torch's own function, so that a replayed call runs no Python code of nojit here
    return writer.make(Tensor.new_empty_strided, like, shape[single:], strides[single:])


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
    classes = list(classes_of(forward_sweep(window, shape[2:], weight.shape[2:])))
    # an input position that no tap reads has gradient 0
    zeros = not all(map(_has_taps, classes))
    out = _allocate(writer, grad, shape, by_channels(grad, weight))
    if zeros:
        writer.make(Tensor.zero_, out)
    if not out.numel():
        return out
    c_len, n_len = weight.shape[0] // groups, weight.shape[1]
    for each in filter(_has_taps, classes):
        one = Sum(
            each.sweep,
            shape[0],
            groups,
            c_len,
            n_len,
            is_transposed=True,
            precision=precision,
            is_part=len(classes) > 1,
        )
        target, taps = out, weight
        if one.is_part:
            target = writer.make(part_of, out, *_spans(out, each.first, each.sweep.out, each.apart))
            taps = writer.make(part_of, weight, *_spans(weight, each.first_tap, each.sweep.taps, each.taps_apart))
        _sum(writer, one, grad, taps, None, target)
    return out


def _has_taps(each: Class) -> bool:
    return all(count > 0 for count in each.sweep.taps)


def _spans(value: Tensor, *facts: tuple[int, int, int]) -> tuple[tuple[int, ...], ...]:
    """Return first index, size and step of all dimensions of `value`, given the three tuples for spatial dimensions."""
    first, sizes, apart = (fact[1:] if value.dim() == PADDED_DIM + 2 else fact for fact in facts)
    return (0, 0, *first), (*value.shape[:2], *sizes), (1, 1, *apart)


def _sum(writer: RecipeWriter, one: Sum, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Launch a sum with the fastest kernel that can run it.

    `writer`: allocates and launches, and records both for replays.
    """
    operands = (writer, one, x, w, bias, out)
    # rows of a matrix that are no multiples of 16 bytes apart are slower than a copy that is padded
    if not is_uneven(x) and launch_product(*operands):
        return
    if is_few(one) and launch_few(*operands):
        return
    if launch_mapped(*operands) or launch_few(*operands):
        return
    launch(writer, one, x, w, bias, out)


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
    out = _allocate(writer, grad, shape, by_channels(grad, x))
    if not out.numel():
        return out
    sweep = forward_sweep(window, x.shape[2:], shape[2:])
    one = Sum(sweep, x.shape[0], groups, shape[1], shape[0] // groups, is_transposed=False, precision=precision)
    if not launch_mapped_weight_grad(writer, one, grad, x, out):
        launch_weight_grad(writer, one, grad, x, out)
    return out
