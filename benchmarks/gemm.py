"""Time dense products beside cuBLAS and torch.compile, in one run: ratios, bars, and a chart.

    python benchmarks/gemm.py BUNDLES [--rounds 12] [--only bmm,mm_plus_mm] [--svg FILE] [--compile]

The shapes are those that speed is promised for: squares, batches, the projections of models of 4k and 8k, and sums of two
products. Random
operands of bf16; each call runs in a CUDA graph after a flush of the L2, the contenders in turn: medians of device
time alone. `--compile` adds torch.compile(mode="max-autotune"), which needs Triton and minutes. Exits 1 if a result is
wrong, the geometric mean of a family's ratios is below its bar, or one of them is below 0.8.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from nojit.aot.bench.plot import Bar, Chart, Group, svg
from timing import compiled, device_ms
from torch import Tensor

BAR = 1.0
"""Least geometric mean of TFLOP/s, as a share of the best of the others'."""
LEAST = 0.8
"""Least share of any shape."""
APART = 0.02
"""Largest error, as a share of the largest value."""

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Row:
    """One measured shape."""

    family: str
    label: str
    rates: dict[str, float]
    """TFLOP/s of each contender."""
    bytes_per_s: float
    """What nojit must have moved at least."""

    @property
    def ratio(self) -> float:
        """Of nojit to the best of the others."""
        return self.rates["nojit"] / max(rate for name, rate in self.rates.items() if name != "nojit")

    def line(self) -> str:
        """Say it in one line."""
        rates = "  ".join(f"{name} {rate:7.1f}" for name, rate in self.rates.items())
        low = "  LOW" if self.ratio < LEAST else ""
        return f"{self.family:<12} {self.label:<36} {rates}  {self.bytes_per_s / 1e12:5.2f} TB/s  ratio {self.ratio:.2f}{low}"


def random(*shape: int) -> Tensor:
    """Make an operand."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def measure(  # noqa: PLR0917 - what a row is made of
    family: str, label: str, calls: dict[str, Call], flops: int, moved_bytes: int, rounds: int
) -> Row:
    """Compare what is computed, and time it."""
    expected = calls["torch"]().float()
    apart = float((calls["nojit"]().float() - expected).abs().max() / expected.abs().max())
    if not apart <= APART:
        raise SystemExit(f"{family} {label}: off by {apart:.3g} of the largest value")
    del expected
    ms = device_ms(calls, rounds)
    return Row(family, label, {name: flops / time / 1e9 for name, time in ms.items()}, moved_bytes / ms["nojit"] * 1e3)


def bmm_row(shape: object, rounds: int, compile_too: bool) -> Row:
    """Measure one shape of `nojit.kernels.gemm.shapes`."""
    from nojit.kernels.bmm import bmm, mm

    one = shape
    a = random(one.batch, one.m, one.k)
    b = random(one.batch, one.n, one.k).mT if one.trans_b else random(one.batch, one.k, one.n)
    ours, torchs = bmm, torch.bmm
    if one.batch == 1:
        a, b, ours, torchs = a[0], b[0], mm, torch.mm
    calls: dict[str, Call] = {"nojit": lambda: ours(a, b), "torch": lambda: torchs(a, b)}
    if compile_too:
        tuned = compiled(torchs)
        calls["compiled"] = lambda: tuned(a, b)
    return measure("bmm", one.name, calls, one.flops, one.elements * 2, rounds)


def pair_row(shape: object, more: int, rounds: int, compile_too: bool) -> Row:
    """Measure one sum of two products of `nojit.kernels.mm_plus_mm.problems`."""
    from nojit.kernels.mm_plus_mm import mm_plus_mm

    one = shape

    def factors(depth: int) -> tuple[Tensor, Tensor]:
        return random(one.m, depth), random(one.n, depth).mT if one.trans_b else random(depth, one.n)

    given = (*factors(one.k), *factors(more))

    def torchs(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return torch.mm(a, b) + torch.mm(c, d)

    calls: dict[str, Call] = {"nojit": lambda: mm_plus_mm(*given), "torch": lambda: torchs(*given)}
    if compile_too:
        tuned = compiled(torchs)
        calls["compiled"] = lambda: tuned(*given)
    moved = sum(value.numel() for value in given) + one.m * one.n
    return measure("mm_plus_mm", one.name, calls, one.flops + 2 * one.m * one.n * more, moved * 2, rounds)


def list_rows(only: list[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the shapes of the families that are asked for, one after the other."""
    from nojit.kernels.gemm.shapes import BARS
    from nojit.kernels.mm_plus_mm.problems import BARS as PAIRS

    if "bmm" in only:
        for shape in BARS:
            yield bmm_row(shape, rounds, compile_too)
    if "mm_plus_mm" in only:
        for shape, more in PAIRS:
            yield pair_row(shape, more, rounds, compile_too)


def chart(rows: list[Row]) -> Chart:
    """Draw every rate, the contenders of a row together."""
    groups = [
        Group(
            f"{row.family}, {row.label}",
            tuple(Bar(name, (("rate", rate),), f"{rate:.0f}") for name, rate in row.rates.items()),
        )
        for row in rows
    ]
    return Chart("Dense products", f"TFLOP/s of bf16; {torch.cuda.get_device_name()}", tuple(groups))


def judge(rows: list[Row]) -> bool:
    """Say for each family whether its bar is kept."""
    kept = True
    for family in dict.fromkeys(row.family for row in rows):
        ratios = [row.ratio for row in rows if row.family == family]
        mean = statistics.geometric_mean(ratios)
        good = mean >= BAR and min(ratios) >= LEAST
        kept = kept and good
        print(f"{family}: geometric mean {mean:.3f}, least {min(ratios):.2f}: {'kept' if good else 'MISSED'}")
    return kept


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default="bmm,mm_plus_mm")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    print(torch.cuda.get_device_name())
    rows: list[Row] = []
    for row in list_rows(given.only.split(","), given.rounds, given.compile):
        rows.append(row)
        print(row.line(), flush=True)
        torch.cuda.empty_cache()
    if given.svg:
        given.svg.write_text(svg(chart(rows)), encoding="utf-8")
    sys.exit(0 if judge(rows) else 1)


if __name__ == "__main__":
    main()
