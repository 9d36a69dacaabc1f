"""Time pairs of products beside torch and torch.compile, in one run: ratios, bars, and a chart.

    python benchmarks/b2b_gemm.py BUNDLES [--rounds 40] [--only b2b_gemm] [--svg FILE] [--compile]

The shapes are those that speed is promised for: many rows through narrow layers, with gelu in between, of fp16. Each call runs in a
CUDA graph after a flush of the L2, the contenders in turn: medians of device time alone. `--compile` adds
torch.compile(mode="max-autotune") with its own pass for such pairs, which needs Triton and minutes. Exits 1 if a result is
wrong, at one of the two shapes that bars stand at it is less than 3 times as fast as torch, or 1.5 times as fast as
torch.compile, or at any shape less than 0.8 times as fast as either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from contest import OURS, Promise, Row, arguments, report
from timing import check, compiled, race
from torch import Tensor

FAMILY = "b2b_gemm"
BARS = {"torch": 3.0, "compiled": 1.5}
"""How many times as fast as each contender."""
BARRED = ((65536, 64, 64, 64), (8192, 32, 32, 32))
PROMISES = {(FAMILY, other): Promise(least=0.8) for other in BARS}
APART = 0.01
"""Largest error, as a share of the largest value."""


def torchs(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Do the same by torch."""
    return torch.nn.functional.gelu(a @ b) @ c


def measure(shape: tuple[int, int, int, int], rounds: int, compile_too: bool) -> Row:
    """Compare what is computed, and time it."""
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
    """Measure the shapes, one after the other."""
    from nojit.kernels.b2b_gemm.problems import BARS as SHAPES

    for shape in SHAPES:
        yield measure(shape, rounds, compile_too)


def main() -> None:
    """Measure, print, judge."""
    given = arguments(__doc__, (FAMILY,), rounds=40)
    torch.manual_seed(0)
    rows = list_rows(given.rounds, given.compile)
    report(rows, PROMISES, "Two products in one launch", f"us of fp16; {torch.cuda.get_device_name()}", given.svg)


if __name__ == "__main__":
    main()
