"""Time convolutions and their gradients beside cuDNN and torch.compile, in one run: ratios, bars, and a chart.

    python benchmarks/conv.py BUNDLES [--rounds 12] [--only forward,input_grad,weight_grad] [--svg FILE] [--compile]

The shapes are those that speed is promised for. Random operands of fp16, by channels; cuDNN chooses its kernels by
measurement. Each call runs in a CUDA graph after a flush of the L2, the contenders in turn: medians of device time
alone. `--compile` adds torch.compile(mode="max-autotune"), which needs Triton and minutes. Exits 1 if a result is
wrong, or a ratio is below its bar: 0.95 of images, 1.0 of volumes; gradients have none.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from nojit.aot.bench.plot import Bar, Chart, Group, svg
from timing import compiled, device_ms
from torch import Tensor
from torch.nn import functional

IMAGES = 0.95
"""Least TFLOP/s of a convolution of images, as a share of cuDNN's."""
VOLUMES = 1.0
APART = 0.02
"""Largest error, as a share of the largest value."""
WHICH = ("forward", "input_grad", "weight_grad")

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Row:
    """One measured shape."""

    what: str
    label: str
    rates: dict[str, float]
    """TFLOP/s of each contender."""
    bar: float
    """Least share of cuDNN's; 0 where nothing is promised."""

    @property
    def ratio(self) -> float:
        """Of nojit to cuDNN."""
        return self.rates["nojit"] / self.rates["cudnn"]

    def line(self) -> str:
        """Say it in one line."""
        rates = "  ".join(f"{name} {rate:7.1f}" for name, rate in self.rates.items())
        low = f"  BELOW {self.bar}" if self.ratio < self.bar else ""
        return f"{self.what:<12} {self.label:<48} {rates}  ratio {self.ratio:.2f}{low}"


def random(*shape: int) -> Tensor:
    """Make an operand, by channels."""
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return torch.randn(*shape, device="cuda", dtype=torch.float16).contiguous(memory_format=last)


def functions(one: Any, what: str) -> tuple[dict[str, Callable[..., Tensor]], tuple[Tensor, ...]]:
    """Return what is measured of a shape of `nojit.kernels.conv.problems`, by name, and its operands."""
    from nojit.kernels.conv import conv2d, conv3d

    three = len(one.positions) > 2
    words: dict[str, Any] = {"stride": one.stride, "padding": one.taps // 2}
    x = random(one.batch, one.channels, *one.positions)
    w = random(one.results, one.channels, *one.kernel).mul_(one.depth**-0.5)
    grad = random(one.batch, one.results, *one.sizes)
    if what == "forward":
        pair = {"nojit": conv3d if three else conv2d, "cudnn": functional.conv3d if three else functional.conv2d}
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

    return {"nojit": ours, "cudnn": cudnn}, (grad, x, w)


def _bound(function: Callable[..., Tensor], words: dict[str, Any]) -> Callable[..., Tensor]:
    return lambda x, w: function(x, w, **words)


def measure(one: Any, what: str, rounds: int, compile_too: bool) -> Row:
    """Compare what is computed of a shape, and time it."""
    given, operands = functions(one, what)
    if compile_too and what == "forward":
        given["compiled"] = compiled(given["cudnn"])
    calls = {name: _call(function, operands) for name, function in given.items()}
    expected = calls["cudnn"]().float()
    apart = float((calls["nojit"]().float() - expected).abs().max() / expected.abs().max())
    if not apart <= APART:
        raise SystemExit(f"{what} {one.name}: off by {apart:.3g} of the largest value")
    del expected
    ms = device_ms(calls, rounds)
    bar = 0.0 if what != "forward" else VOLUMES if len(one.positions) > 2 else IMAGES
    return Row(what, one.name, {name: one.flops / time / 1e9 for name, time in ms.items()}, bar)


def _call(function: Callable[..., Tensor], operands: tuple[Tensor, ...]) -> Call:
    return lambda: function(*operands)


def list_rows(only: list[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the shapes, one after the other."""
    from nojit.kernels.conv.problems import BARS

    for what in only:
        for shape in BARS:
            yield measure(shape, what, rounds, compile_too)


def chart(rows: list[Row]) -> Chart:
    """Draw every rate, the contenders of a row together."""
    groups = [
        Group(
            f"{row.what}, {row.label}",
            tuple(Bar(name, (("rate", rate),), f"{rate:.0f}") for name, rate in row.rates.items()),
        )
        for row in rows
    ]
    return Chart("Convolutions", f"TFLOP/s of fp16, by channels; {torch.cuda.get_device_name()}", tuple(groups))


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default=",".join(WHICH))
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    print(torch.cuda.get_device_name())
    rows: list[Row] = []
    for row in list_rows(given.only.split(","), given.rounds, given.compile):
        rows.append(row)
        print(row.line(), flush=True)
        torch.cuda.empty_cache()
    if given.svg:
        given.svg.write_text(svg(chart(rows)), encoding="utf-8")
    kept = all(row.ratio >= row.bar for row in rows)
    print(f"bars: {'kept' if kept else 'MISSED'}")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
