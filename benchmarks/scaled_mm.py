"""Time scaled fp8 products beside torch._scaled_mm, in one run: ratios, bars, and a chart.

    python benchmarks/scaled_mm.py BUNDLES [--rounds 12] [--only whole,ends,bias,fast,blocks,decode] [--svg FILE]

Squares of 4096 and 8192 and projections of models, e4m3 to bf16: one scale for each operand (`whole`), scales of rows and columns
(`ends`), those with a bias (`bias`), sums that tensor cores keep (`fast`), scales of blocks (`blocks`); and a few rows by wide weights
(`decode`), beside what a copy of the weights takes. Random operands; each call runs in a CUDA graph after a flush of the L2,
the contenders in turn: medians of device time alone. A contender that refuses a call is left out. Exits 1 if a result is wrong,
the geometric mean of a group's ratios is below its bar, or one of them is below 0.8.
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
from timing import device_ms
from torch import Tensor

BARS = {"whole": 1.0, "ends": 1.0, "bias": 1.0, "fast": 1.0, "blocks": 1.0, "decode": 0.8}
"""Least geometric mean of a group's ratios: of speeds to torch's, for `decode` of bandwidth to that of a copy."""
LEAST = 0.8
"""Least ratio of any shape, as a share of its bar."""
APART = 0.02
"""Largest error, as a share of the largest value."""
LARGE = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 28672, 4096), (8192, 10240, 8192), (2048, 4096, 4096))
FEW = tuple((rows, n, k) for n, k in ((8192, 8192), (28672, 4096), (4096, 4096)) for rows in (1, 16, 64))
"""M, N, K."""

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Row:
    """One measured shape."""

    group: str
    label: str
    ms: dict[str, float]
    flops: int
    moved_bytes: int

    @property
    def ratio(self) -> float:
        """Of nojit's speed to torch's, or, of few rows, of its bandwidth to that of a copy; 1 where there is nothing beside it."""
        other = "copy" if self.group == "decode" else "torch"
        return self.ms[other] / self.ms["nojit"] if other in self.ms else 1.0

    def line(self) -> str:
        """Say it in one line."""
        rates = "  ".join(f"{name} {self.flops / ms / 1e9:7.1f}" for name, ms in self.ms.items() if name != "copy")
        speed = self.moved_bytes / self.ms["nojit"] / 1e9
        return f"{self.group:<7} {self.label:<22} {rates} TFLOP/s  {speed:5.2f} TB/s  ratio {self.ratio:.2f}"


def operands(group: str, m: int, n: int, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Make what is multiplied, with the scales and the bias of a group."""

    def fp8(rows: int, cols: int) -> Tensor:
        return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)

    def scale(*shape: int) -> Tensor:
        return torch.rand(shape, device="cuda") + 0.5

    a, b = fp8(m, k), fp8(n, k).t()
    if group in {"ends", "bias"}:
        bias = torch.randn(n, device="cuda", dtype=torch.bfloat16) if group == "bias" else None
        return a, b, scale(m, 1), scale(1, n), bias
    if group == "blocks":
        # as torch wants them: those of a by columns, those of b as its weights lie
        return a, b, scale(k // 128, m).t(), scale(n // 128, k // 128).t(), None
    return a, b, scale(), scale(), None


def measure(group: str, sizes: tuple[int, int, int], rounds: int) -> Row:
    """Compare what is computed, and time it."""
    from nojit.kernels.scaled_mm import scaled_mm

    m, n, k = sizes
    given = operands(group, m, n, k)
    words = {"out_dtype": torch.bfloat16, "use_fast_accum": group == "fast"}

    def torchs() -> Tensor:
        a, b, scale_a, scale_b, bias = given
        return torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, **words)  # noqa: SLF001 - what torch offers

    calls: dict[str, Call] = {"nojit": lambda: scaled_mm(*given, **words), "torch": torchs}
    label = f"{m} x {n} x {k}"
    try:
        expected = torchs().float()
    except (RuntimeError, ValueError) as refused:
        print(f"{group} {label}: torch refuses: {str(refused).splitlines()[0]}")
        del calls["torch"]
    else:
        apart = float((calls["nojit"]().float() - expected).abs().max() / expected.abs().max())
        if not apart <= APART:
            raise SystemExit(f"{group} {label}: off by {apart:.3g} of the largest value")
    if group == "decode":
        # half of it is read and half written: as many bytes as the weights are
        source = torch.empty(n * k // 2, dtype=torch.uint8, device="cuda").random_()
        target = torch.empty_like(source)
        calls["copy"] = lambda: target.copy_(source)
    ms = device_ms(calls, rounds)
    return Row(group, label, ms, 2 * m * n * k, m * k + k * n + 2 * m * n)


def list_rows(only: list[str], rounds: int) -> Iterator[Row]:
    """Measure the groups that are asked for, one after the other."""
    for group in only:
        for sizes in FEW if group == "decode" else LARGE:
            yield measure(group, sizes, rounds)


def chart(rows: list[Row]) -> Chart:
    """Draw every rate, the contenders of a row together."""
    groups = []
    for row in rows:
        rates = {name: row.flops / ms / 1e9 for name, ms in row.ms.items() if name != "copy"}
        bars = tuple(Bar(name, (("rate", rate),), f"{rate:.0f}") for name, rate in rates.items())
        groups.append(Group(f"{row.group}, {row.label}", bars))
    return Chart("Scaled products", f"TFLOP/s of fp8; {torch.cuda.get_device_name()}", tuple(groups))


def judge(rows: list[Row]) -> bool:
    """Say for each group whether its bar is kept."""
    kept = True
    for group in dict.fromkeys(row.group for row in rows):
        ratios = [row.ratio for row in rows if row.group == group]
        mean = statistics.geometric_mean(ratios)
        good = mean >= BARS[group] and min(ratios) >= LEAST * BARS[group]
        kept = kept and good
        print(f"{group}: geometric mean {mean:.3f}, least {min(ratios):.2f}: {'kept' if good else 'MISSED'}")
    return kept


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default=",".join(BARS))
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    unknown = set(given.only.split(",")) - BARS.keys()
    if unknown:
        parser.error(f"--only: expected some of {','.join(BARS)}, got {','.join(sorted(unknown))}")
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    print(torch.cuda.get_device_name())
    rows: list[Row] = []
    for row in list_rows(given.only.split(","), given.rounds):
        rows.append(row)
        print(row.line(), flush=True)
        torch.cuda.empty_cache()
    if given.svg:
        given.svg.write_text(svg(chart(rows)), encoding="utf-8")
    sys.exit(0 if judge(rows) else 1)


if __name__ == "__main__":
    main()
