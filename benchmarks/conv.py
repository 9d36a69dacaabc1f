"""Time convolutions and their gradients against cuDNN and torch.compile, in one run: ratios, bars, and a chart.

    python benchmarks/conv.py BUNDLES [--rounds 12] [--only conv2d,conv3d,conv2d_input_grad,...] [--svg FILE] [--compile]

The shapes are those with promised speed. Operands are random fp16, channels-last; cuDNN autotunes its kernels. Each call runs in
a CUDA graph after an L2 flush, contenders take turns, and figures are medians of device time. `--compile` adds
torch.compile(mode="max-autotune") for the forward pass; it needs Triton and takes minutes. Exits 1 if a result is wrong, if
the geometric mean of the ratios to cuDNN is below its bar (0.95 for images, 1.0 for volumes), or if a ratio is below 0.8.
Gradients have no bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from contest import OURS, Promise, Row, arguments, report
from timing import check, compiled, race
from torch import Tensor
from torch.nn import functional

PROMISES = {("conv2d", "cudnn"): Promise(mean=0.95, least=0.8), ("conv3d", "cudnn"): Promise(mean=1.0, least=0.8)}
FAMILIES = tuple(family for family, _ in PROMISES)
WHICH = ("forward", "input_grad", "weight_grad")
APART = 0.02
"""Largest error, as a share of the largest value."""


def group_of(family: str, what: str) -> str:
    """Return the group of a family and a pass: ``conv2d``, ``conv2d_input_grad``."""
    return family if what == "forward" else f"{family}_{what}"


GROUPS = tuple(group_of(family, what) for what in WHICH for family in FAMILIES)


def family_of(one: Any) -> str:
    """Return the family of a shape of `nojit.kernels.conv.problems`: images or volumes."""
    return FAMILIES[len(one.positions) > 2]


def random(*shape: int) -> Tensor:
    """Return a random channels-last operand."""
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return torch.randn(*shape, device="cuda", dtype=torch.float16).contiguous(memory_format=last)


def functions(one: Any, what: str) -> tuple[dict[str, Callable[..., Tensor]], tuple[Tensor, ...]]:
    """Return the contenders for a shape of `nojit.kernels.conv.problems`, by name, and its operands."""
    from nojit.kernels.conv import conv2d, conv3d

    three = len(one.positions) > 2
    words: dict[str, Any] = {"stride": one.stride, "padding": one.taps // 2}
    x = random(one.batch, one.channels, *one.positions)
    w = random(one.results, one.channels, *one.kernel).mul_(one.depth**-0.5)
    grad = random(one.batch, one.results, *one.sizes)
    if what == "forward":
        pair = {OURS: conv3d if three else conv2d, "cudnn": functional.conv3d if three else functional.conv2d}
        made = {name: _bound(function, words) for name, function in pair.items()}
        return made, (x, w)
    window = [list(each) for each in one.window]
    theirs = [
        list(one.window.stride),
        list(one.window.before),
        list(one.window.dilation),
        False,
        [0] * len(one.positions),
        1,
    ]

    def cudnn(grad: Tensor, x: Tensor, w: Tensor) -> Tensor:
        mask = [what == "input_grad", what == "weight_grad", False]
        both = torch.ops.aten.convolution_backward(grad, x, w, None, *theirs, mask)
        result: Tensor = both[0] if mask[0] else both[1]
        return result

    def ours(grad: Tensor, x: Tensor, w: Tensor) -> Tensor:
        operator = getattr(torch.ops.nojit, f"conv_{what}")
        other, shape = (w, x.shape) if what == "input_grad" else (x, w.shape)
        result: Tensor = operator(grad, other, shape, *window, 1, "switch")
        return result

    return {OURS: ours, "cudnn": cudnn}, (grad, x, w)


def _bound(function: Callable[..., Tensor], words: dict[str, Any]) -> Callable[..., Tensor]:
    return lambda x, w: function(x, w, **words)


def measure(one: Any, what: str, rounds: int, compile_too: bool) -> Row:
    """Check the results of a shape, and time it."""
    given, operands = functions(one, what)
    if compile_too and what == "forward":
        given["compiled"] = compiled(given["cudnn"])
    calls = {name: lambda function=function: function(*operands) for name, function in given.items()}
    group = group_of(family_of(one), what)
    where = f"{group}, {one.name}"
    check(where, calls[OURS](), calls["cudnn"](), APART)
    ms = race(calls, rounds, where)
    return Row(group, one.name, ms, one.flops, 2 * one.elements)


def list_rows(only: Sequence[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the requested groups, one shape after the other."""
    from nojit.kernels.conv.problems import BARS

    for what in WHICH:
        for shape in BARS:
            if group_of(family_of(shape), what) in only:
                yield measure(shape, what, rounds, compile_too)
                torch.cuda.empty_cache()


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    given = arguments(__doc__, GROUPS, rounds=12)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    rows = list_rows(given.only, given.rounds, given.compile)
    report(rows, PROMISES, "Convolutions", f"fp16, by channels; {torch.cuda.get_device_name()}", given.svg)


if __name__ == "__main__":
    main()
