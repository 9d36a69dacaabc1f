"""Time pairs of products against torch and torch.compile, in one run: ratios, bars, and a chart.

    python benchmarks/b2b_gemm.py BUNDLES [--rounds 40] [--only b2b_gemm] [--svg FILE] [--compile]

The shapes are those with promised speed: many rows through narrow fp16 layers with gelu in between. Each call runs in a CUDA
graph after an L2 flush, contenders take turns, and figures are medians of device time. `--compile` adds
torch.compile(mode="max-autotune") with its own pass for such pairs; it needs Triton and takes minutes. Exits 1 if a result is
wrong; if one of the two shapes with bars is less than 3 times as fast as torch or 1.5 times as fast as torch.compile; or if
any shape is less than 0.8 times as fast as either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from contest import OURS, Promise, Row, arguments, report
from timing import check, compiled, race
from torch import Tensor

FAMILY = "b2b_gemm"
BARS = {"torch": 3.0, "compiled": 1.5}
"""Least speed relative to each contender."""
BARRED = ((65536, 64, 64, 64), (8192, 32, 32, 32))
PROMISES = {(FAMILY, other): Promise(least=0.8) for other in BARS}
APART = 0.01
"""Largest error, as a share of the largest value."""


def torchs(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Compute the same with torch."""
    return torch.nn.functional.gelu(a @ b) @ c


def measure(shape: tuple[int, int, int, int], rounds: int, compile_too: bool) -> Row:
    """Check the result of a shape, and time it."""
    from nojit.kernels.b2b_gemm import b2b_gemm

    rows, depth, middle, cols = shape
    label = " x ".join(map(str, shape))

    def factor(height: int, width: int, scale: float) -> Tensor:
        return torch.randn(height, width, device="cuda", dtype=torch.float16) * scale

    given = factor(rows, depth, 1.0), factor(depth, middle, depth**-0.5), factor(middle, cols, middle**-0.5)
    calls: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: b2b_gemm(*given, activation="gelu"),
        "torch": lambda: torchs(*given),
    }
    if compile_too:
        import torch._inductor.config as inductor

        inductor.b2b_gemm_pass = True
        tuned = compiled(torchs)
        calls["compiled"] = lambda: tuned(*given)
    where = f"{FAMILY}, {label}"
    check(where, calls[OURS](), torchs(*(value.double() for value in given)), APART)
    ms = race(calls, rounds, where)
    moved = 2 * (sum(value.numel() for value in given) + rows * cols)
    return Row(FAMILY, label, ms, 0, moved, BARS if shape in BARRED else {})


def list_rows(rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure one shape after the other."""
    from nojit.kernels.b2b_gemm.problems import BARS as SHAPES

    for shape in SHAPES:
        yield measure(shape, rounds, compile_too)


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    given = arguments(__doc__, (FAMILY,), rounds=40)
    torch.manual_seed(0)
    rows = list_rows(given.rounds, given.compile)
    report(rows, PROMISES, "Two products in one launch", f"us of fp16; {torch.cuda.get_device_name()}", given.svg)


if __name__ == "__main__":
    main()
