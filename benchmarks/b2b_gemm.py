"""Time pairs of products beside torch and torch.compile, in one run: ratios, bars, and a chart.

    python benchmarks/b2b_gemm.py BUNDLES [--rounds 40] [--svg FILE] [--compile]

The shapes are those that speed is promised for: many rows through narrow layers, with gelu in between, of fp16. Each call runs in a
CUDA graph after a flush of the L2, the contenders in turn: medians of device time alone. `--compile` adds
torch.compile with its own pass for such pairs, which needs Triton and minutes. Exits 1 if a result is wrong, or at one of the
two shapes that bars stand at it is less than 3 times as fast as torch, or 1.5 times as fast as torch.compile.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from nojit.aot.bench.plot import Bar, Chart, Group, svg
from timing import device_ms
from torch import Tensor

BARS = {"torch": 3.0, "compiled": 1.5}
"""How many times as fast as each contender."""
BARRED = ((65536, 64, 64, 64), (8192, 32, 32, 32))
APART = 0.01
"""Largest error, as a share of the largest value."""

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Row:
    """One measured shape."""

    shape: tuple[int, int, int, int]
    """Rows, depth of the first product, depth of the second, columns."""
    us: dict[str, float]
    """Microseconds of each contender."""
    bytes_per_s: float
    """What nojit must have moved at least."""

    @property
    def ratios(self) -> dict[str, float]:
        """How many times faster nojit is than each other."""
        return {name: us / self.us["nojit"] for name, us in self.us.items() if name != "nojit"}

    @property
    def good(self) -> bool:
        """Say whether the bars are kept, if there are any for the shape."""
        return self.shape not in BARRED or all(ratio >= BARS[name] for name, ratio in self.ratios.items())

    def line(self) -> str:
        """Say it in one line."""
        times = "  ".join(f"{name} {us:7.1f} us" for name, us in self.us.items())
        ratios = ", ".join(f"{ratio:.2f} x {name}" for name, ratio in self.ratios.items())
        words = " x ".join(map(str, self.shape))
        return f"{words}: {times}  {self.bytes_per_s / 1e12:.2f} TB/s  ({ratios}){'' if self.good else '  MISSED'}"


def torchs(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Do the same by torch."""
    return torch.nn.functional.gelu(a @ b) @ c


def compiled() -> Callable[..., Tensor]:
    """Compile it for one shape, with what torch finds fastest, its own pass for pairs included."""
    import torch._inductor.config as inductor

    torch.compiler.reset()
    inductor.b2b_gemm_pass = True
    return torch.compile(torchs, mode="max-autotune-no-cudagraphs", dynamic=False)


def measure(shape: tuple[int, int, int, int], rounds: int, compile_too: bool) -> Row:
    """Compare what is computed, and time it."""
    from nojit.kernels.b2b_gemm import b2b_gemm

    rows, depth, middle, cols = shape

    def factor(height: int, width: int, scale: float) -> Tensor:
        return torch.randn(height, width, device="cuda", dtype=torch.float16) * scale

    given = factor(rows, depth, 1.0), factor(depth, middle, depth**-0.5), factor(middle, cols, middle**-0.5)
    calls: dict[str, Call] = {
        "nojit": lambda: b2b_gemm(*given, activation="gelu"),
        "torch": lambda: torchs(*given),
    }
    if compile_too:
        tuned = compiled()
        calls["compiled"] = lambda: tuned(*given)
    expected = torchs(*(value.double() for value in given))
    apart = float((calls["nojit"]().double() - expected).abs().max() / expected.abs().max())
    if not apart <= APART:
        raise SystemExit(f"{shape}: off by {apart:.3g} of the largest value")
    ms = device_ms(calls, rounds)
    moved = 2 * (sum(value.numel() for value in given) + rows * cols)
    return Row(shape, {name: 1e3 * time for name, time in ms.items()}, moved / ms["nojit"] * 1e3)


def chart(rows: list[Row]) -> Chart:
    """Draw every time, the contenders of a row together."""
    groups = [
        Group(
            " x ".join(map(str, row.shape)),
            tuple(Bar(name, (("time", us),), f"{us:.1f}") for name, us in row.us.items()),
        )
        for row in rows
    ]
    return Chart("Two products in one launch", f"us, of fp16; {torch.cuda.get_device_name()}", tuple(groups))


def main() -> None:
    """Measure, print, judge."""
    from nojit.kernels.b2b_gemm.problems import BARS as SHAPES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    print(torch.cuda.get_device_name())
    rows: list[Row] = []
    for shape in SHAPES:
        rows.append(measure(shape, given.rounds, given.compile))
        print(rows[-1].line(), flush=True)
    if given.svg:
        given.svg.write_text(svg(chart(rows)), encoding="utf-8")
    missed = [row for row in rows if not row.good]
    print(f"{len(missed)} shapes missed a bar" if missed else "every bar is kept")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
