"""Time products with weights of 4 bits beside cuBLAS and torch's own kernel, in one run: ratios, bars, and a chart.

    python benchmarks/mixed_mm.py BUNDLES [--rounds 20] [--svg FILE]

The shapes are those that speed is promised for: projections of models, for 1 to 4096 tokens. Random operands of bf16, weights
without scales and with groups of 128; cuBLAS multiplies the same weights in bf16, and torch._weight_int4pack_mm, up to 64 tokens,
packs of its own with groups of 128. Each call runs in a CUDA graph after a flush of the L2, the contenders in turn:
medians of device time alone. Exits 1 if a result is wrong or a bar is missed: up to 16 tokens at 8192 x 8192 three times
cuBLAS and 1.3 times torch's kernel, from 1024 tokens on 0.75 times cuBLAS.
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

GROUP = 128
FEW_CUBLAS = 3.0
FEW_TORCH = 1.3
MANY_CUBLAS = 0.75
BARRED = (8192, 8192)
"""Columns and depth that the bars for few tokens are promised at."""
APART = 0.02
"""Largest error, as a share of the largest value."""
MOST_PACKED = 64
"""The most tokens that torch's kernel is timed for."""

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Row:
    """One measured shape."""

    shape: tuple[int, int, int]
    """Tokens, columns and depth."""
    us: dict[str, float]
    """Microseconds of each contender."""
    bytes_per_s: float
    """What nojit must have moved at least."""

    def over(self, name: str) -> float:
        """Say how many times faster nojit is than another."""
        return self.us[name] / self.us["nojit"]

    @property
    def good(self) -> bool:
        """Say whether the bars are kept, if there are any for the shape."""
        tokens, *layer = self.shape
        if tokens >= 1024:
            return self.over("cuBLAS") >= MANY_CUBLAS
        if tokens > 16 or tuple(layer) != BARRED:
            return True
        return self.over("cuBLAS") >= FEW_CUBLAS and ("torch" not in self.us or self.over("torch") >= FEW_TORCH)

    def line(self) -> str:
        """Say it in one line."""
        tokens, cols, depth = self.shape
        rates = "  ".join(f"{name} {us:8.1f} us" for name, us in self.us.items())
        ratios = ", ".join(f"{self.over(name):.2f} x {name}" for name in self.us if not name.startswith("nojit"))
        missed = "" if self.good else "  MISSED"
        return f"{tokens:>5} tokens, {depth} to {cols}: {rates}  {self.bytes_per_s / 1e12:.2f} TB/s  ({ratios}){missed}"


def packed_by_torch(cols: int, depth: int) -> Callable[[Tensor], Tensor] | None:
    """Pack random weights as torch's kernel takes them, and return it; None where this torch has none."""
    try:
        wide = torch.randint(0, 256, (cols, depth // 2), device="cuda", dtype=torch.uint8)
        weights = torch._convert_weight_to_int4pack(wide, 8)  # noqa: SLF001 - torch offers no other way
        scales = torch.rand(depth // GROUP, cols, 2, device="cuda", dtype=torch.bfloat16)
    except (AttributeError, RuntimeError) as error:
        print(f"torch's kernel is left out: {error}")
        return None
    return lambda a: torch._weight_int4pack_mm(a, weights, GROUP, scales)  # noqa: SLF001 - likewise


def measure(shape: tuple[int, int, int], rounds: int) -> Row:
    """Compare what is computed, and time it."""
    from nojit.kernels.mixed_mm import uint4x2_mixed_mm
    from nojit.kernels.mixed_mm.reference import unpack

    tokens, cols, depth = shape
    a = torch.randn(tokens, depth, device="cuda", dtype=torch.bfloat16)
    b = torch.randint(0, 256, (depth // 2, cols), device="cuda", dtype=torch.uint8)
    scales = torch.rand(depth // GROUP, cols, device="cuda", dtype=torch.bfloat16)
    # as the weights of linear layers are, which cuBLAS is fastest with
    weights = unpack(b, torch.bfloat16).T.contiguous().T
    calls: dict[str, Call] = {
        "nojit": lambda: uint4x2_mixed_mm(a, b),
        "nojit, scaled": lambda: uint4x2_mixed_mm(a, b, scales=scales, group_size=GROUP),
        "cuBLAS": lambda: torch.mm(a, weights),
    }
    if tokens <= MOST_PACKED and (torchs := packed_by_torch(cols, depth)) is not None:
        calls["torch"] = lambda: torchs(a)
    check(shape, calls["nojit"](), calls["cuBLAS"]())
    check(shape, calls["nojit, scaled"](), a @ unpack(b, torch.bfloat16, scales, None, GROUP))
    ms = device_ms(calls, rounds)
    moved = b.numel() + 2 * (a.numel() + tokens * cols)
    return Row(shape, {name: 1e3 * time for name, time in ms.items()}, moved / ms["nojit"] * 1e3)


def check(shape: tuple[int, int, int], value: Tensor, expected: Tensor) -> None:
    """End the run where a result is wrong."""
    apart = float((value.float() - expected.float()).abs().max() / expected.float().abs().max())
    if not apart <= APART:
        raise SystemExit(f"{shape}: off by {apart:.3g} of the largest value")


def chart(rows: list[Row]) -> Chart:
    """Draw every time, the contenders of a row together."""
    groups = [
        Group(
            "{} tokens, {} columns, {} deep".format(*row.shape),
            tuple(Bar(name, (("time", us),), f"{us:.1f}") for name, us in row.us.items()),
        )
        for row in rows
    ]
    return Chart("Products with weights of 4 bits", f"us, of bf16; {torch.cuda.get_device_name()}", tuple(groups))


def main() -> None:
    """Measure, print, judge."""
    from nojit.kernels.mixed_mm.problems import BARS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    print(torch.cuda.get_device_name())
    rows: list[Row] = []
    for shape in (*BARS["mixed_mm_few"], *BARS["mixed_mm_sm90"]):
        rows.append(measure(shape, given.rounds))
        print(rows[-1].line(), flush=True)
        torch.cuda.empty_cache()
    if given.svg:
        given.svg.write_text(svg(chart(rows)), encoding="utf-8")
    missed = [row for row in rows if not row.good]
    print(f"{len(missed)} of {len(rows)} shapes missed a bar" if missed else "every bar is kept")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
