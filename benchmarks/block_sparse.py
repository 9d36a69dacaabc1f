"""Time block-sparse operators against their limits, in one run: ratios, bars, and a chart.

    python benchmarks/block_sparse.py BUNDLES [--rounds 8] [--only sdd,dsd,dds,softmax] [--svg FILE] [--all]

Products are rated in TFLOP/s over active blocks, against cuBLAS on dense matrices of the same sizes and torch's BSR matrices.
The softmax is rated in bytes that it must move, against a copy. Operands are random. Each call follows an L2 flush, contenders
take turns, and figures are medians of device time from events. `--all` adds fp16 and more block sizes. Exits 1 if a result is
wrong or a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from nojit.aot.bench.plot import Bar, Chart, Group, svg
from timing import check, device_ms, time_ms
from torch import Tensor

BARS = {128: 0.85, 64: 0.70, 32: 0.45}
"""Least TFLOP/s of windows and BigBird, and of windows with a global row and column, as a share of cuBLAS's, by block size."""
COPIED = 0.90
"""Least bandwidth of the softmax, as a share of a copy's."""
ROOFLINE = 0.80
"""Least share of the rate that L2 bandwidth allows for random layouts."""
APART = 0.02
"""Largest error, as a share of the largest value."""
CACHED_BYTES = 1 << 23
DRAWN = 1024
"""The width of dense factors in the charted products."""


@dataclass(frozen=True)
class Row:
    """One measured operator."""

    label: str
    rates: dict[str, float]
    """TFLOP/s, or TB/s, of each contender."""
    ratio: float
    """The ratio of nojit to the next contender."""
    bar: float | None
    note: str = ""

    @property
    def kept(self) -> bool:
        """Whether the bar is kept, or absent."""
        return self.bar is None or self.ratio >= self.bar

    def line(self) -> str:
        """Return the row as one line."""
        rates = "  ".join(
            f"{name} {rate:6.2f}" if rate < 10 else f"{name} {rate:6.0f}" for name, rate in self.rates.items()
        )
        judged = "" if self.bar is None else f"  bar {self.bar:.2f} {'kept' if self.kept else 'MISSED'}"
        return f"{self.label:<52} {rates}  ratio {self.ratio:.2f}{judged}{self.note}"


@dataclass(frozen=True)
class Product:
    """One product of a layout of `nojit.kernels.block_sparse.matmul.problems`."""

    problem: object
    free: int
    mode: str
    dtype: torch.dtype

    @property
    def label(self) -> str:
        """The product in words."""
        return f"{self.mode} {self.problem.name}, {self.free}, {str(self.dtype)[6:]}"

    def measure(self, rounds: int, l2_bytes_per_s: float) -> Row:
        """Check the result, and time it."""
        one = self.problem
        ms, active, whole = self.times(rounds)
        rates = {"nojit": active / ms["nojit"] / 1e9, "cuBLAS": whole / ms["cuBLAS"] / 1e9}
        density = active / whole
        note = f"  {ms['cuBLAS'] / ms['nojit']:.1f} x faster than dense at {density:.0%}"
        if one.pattern == "random":
            limit = min(rates["cuBLAS"], self._intensity() * l2_bytes_per_s / 1e12)
            return Row(self.label, rates, rates["nojit"] / limit, ROOFLINE, f" of the roofline, {limit:.0f}{note}")
        bar = BARS.get(one.block) if self.free >= 1024 else None
        return Row(self.label, rates, rates["nojit"] / rates["cuBLAS"], bar, note)

    def times(self, rounds: int) -> tuple[dict[str, float], int, int]:
        """Check the result; return the milliseconds of each contender, the flops of active blocks, and those of dense matrices."""
        from nojit.kernels.block_sparse import block_sparse_matmul, reference

        one, layout = self.problem, layout_of(self.problem)
        (m, n), make = layout.shape, self._random
        sparse = make(one.batch, layout.nnz, one.block, one.block)
        if self.mode == "sdd":
            a, b = make(one.batch, one.heads, m, self.free), make(one.batch, one.heads, n, self.free)
            dense = (a, b.mT)
            ours = lambda: block_sparse_matmul(a, b, layout, "sdd", trans_b=True)  # noqa: E731 - one of three
        elif self.mode == "dsd":
            d = make(one.batch, one.heads, n, self.free)
            dense = (make(one.batch, one.heads, m, n), d)
            ours = lambda: block_sparse_matmul(sparse, d, layout, "dsd")  # noqa: E731
        else:
            d = make(one.batch, one.heads, self.free, m)
            dense = (d, make(one.batch, one.heads, m, n))
            ours = lambda: block_sparse_matmul(d, sparse, layout, "dds")  # noqa: E731
        self._check(ours(), (a, b) if self.mode == "sdd" else (sparse, d), layout, reference)
        ms = device_ms({"nojit": ours, "cuBLAS": lambda: torch.matmul(*dense)}, rounds)
        flops = 2 * one.batch * self.free
        return ms, flops * layout.nnz * one.block**2, flops * one.heads * m * n

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", dtype=self.dtype)

    def _intensity(self) -> float:
        """Return flops per byte that a product reads from both operands, block by block, without packing."""
        block, free = self.problem.block, self.free
        if self.mode == "sdd":
            return block / 2
        return block * free / (block + free)

    def _check(self, result: Tensor, operands: tuple[Tensor, Tensor], layout: object, reference: object) -> None:
        """Compare the first head of the first batch."""
        first = type(layout)(layout.active[:1], layout.block)
        cut = [x[:1, : first.nnz] if x.shape[1] == layout.nnz else x[:1, :1] for x in operands]
        if self.mode == "dds":
            cut.reverse()
        words = {"trans_b": True} if self.mode == "sdd" else {}
        exact = reference.block_sparse_matmul(*(x.float() for x in cut), first, self.mode, **words)
        part = result[:1, : first.nnz] if self.mode == "sdd" else result[:1, :1]
        check(self.label, part, exact, APART)


@lru_cache(16)
def layout_of(problem: object) -> object:
    """Return a layout with its tables, cached for the products that follow."""
    return problem.layout()


def products(everything: bool, modes: list[str]) -> Iterator[Product]:
    """List the products to measure: windows, Longformer, BigBird and random layouts, with a head's and a model's width."""
    from nojit.kernels.block_sparse.matmul.problems import BARS as SHAPES

    dtypes = (torch.bfloat16, torch.float16) if everything else (torch.bfloat16,)
    shapes = [*SHAPES]
    if everything:
        small = next(shape for shape in SHAPES if shape.name == "window 32")
        shapes += [replace(small, name="window 16", block=16, rows=256, cols=256, reach=16)]
    for dtype in dtypes:
        for shape in shapes:
            for free in (64, 1024):
                yield from (Product(shape, free, mode, dtype) for mode in modes if mode != "softmax")


def bsr_row(rounds: int) -> Row | None:
    """Measure one head of a window against torch's BSR product; None if torch lacks it."""
    from nojit.kernels.block_sparse import block_sparse_matmul, reference
    from nojit.kernels.block_sparse.matmul.problems import SparseShape

    one = SparseShape("window 64", 1, 1, 128, 128, 64, "window", 4)
    layout = one.layout()
    s = torch.randn(1, layout.nnz, 64, 64, device="cuda", dtype=torch.bfloat16)
    d = torch.randn(1, 1, layout.shape[1], 1024, device="cuda", dtype=torch.bfloat16)
    try:
        bsr = reference.to_dense(s, layout)[0, 0].to_sparse_bsr((64, 64))
        bsr @ d[0, 0]
    except (RuntimeError, NotImplementedError) as error:
        print(f"torch's BSR: not measured: {str(error).splitlines()[0]}")
        return None
    calls = {"nojit": lambda: block_sparse_matmul(s, d, layout, "dsd"), "torch BSR": lambda: bsr @ d[0, 0]}
    ms = time_ms(calls, rounds)
    rates = {name: 2 * s.numel() * 1024 / time / 1e9 for name, time in ms.items()}
    return Row("dsd window 64 of one head, 1024, bfloat16", rates, rates["nojit"] / rates["torch BSR"], 1.0)


def softmax_rows(rounds: int, everything: bool) -> Iterator[Row]:
    """Measure the softmax, forward and backward, against a copy of as many bytes."""
    from nojit.kernels.block_sparse import block_sparse_softmax, softmax_bwd
    from nojit.kernels.block_sparse.problems import PROBLEMS

    dtypes = (torch.bfloat16, torch.float16) if everything else (torch.bfloat16,)
    for dtype in dtypes:
        for problem in PROBLEMS["bars"]:
            layout = problem.layout()
            x = torch.randn(problem.batch, layout.nnz, problem.block, problem.block, device="cuda", dtype=dtype)
            y, copy = block_sparse_softmax(x, layout, scale=0.125), torch.empty_like(x)
            calls: dict[str, Callable[[], Tensor]] = {
                "forward": lambda x=x, layout=layout: block_sparse_softmax(x, layout, scale=0.125),
                "backward": lambda x=x, y=y, layout=layout: softmax_bwd(y, x, 0.125, layout),
                "copy": lambda x=x, copy=copy: copy.copy_(x),
            }
            ms = device_ms(calls, rounds)
            moved = x.numel() * x.itemsize / 1e9
            rates = {name: count * moved / ms[name] for name, count in (("forward", 2), ("backward", 3), ("copy", 2))}
            for way in ("forward", "backward"):
                label = f"softmax {way} {problem.name}, {str(dtype)[6:]}, TB/s"
                yield Row(label, {"nojit": rates[way], "copy": rates["copy"]}, rates[way] / rates["copy"], COPIED)


def l2_bytes_per_s(rounds: int) -> float:
    """Measure L2 bandwidth: repeated copies of data that fits in it."""
    source = torch.randn(CACHED_BYTES // 4, device="cuda")
    target, times = torch.empty_like(source), 50

    def copies() -> Tensor:
        for _ in range(times):
            target.copy_(source)
        return target

    graph = torch.cuda.CUDAGraph()
    copies()
    with torch.cuda.graph(graph):
        copies()
    return 2 * CACHED_BYTES * times / (time_ms({"copies": graph.replay}, rounds)["copies"] / 1e3)


def chart(rows: list[Row]) -> Chart:
    """Return a chart of rates as a share of cuBLAS's on dense matrices, or of a copy's; products grouped by block size."""
    groups: dict[str, list[Bar]] = {}
    for row in rows:
        what, _, layout = row.label.partition(" ")
        if what == "softmax":
            what, _, layout = layout.partition(" ")
            group, bar = "softmax", f"{layout.partition(', b')[0]}, {what}"
        elif f", {DRAWN}, " in layout:
            pattern, block = layout.partition(",")[0].split(" ")
            group, bar = f"products, blocks of {block}", f"{pattern}, {what}"
        else:
            continue
        nojit, other, *_ = row.rates.values()
        groups.setdefault(group, []).append(Bar(bar, ((what, nojit / other),), f"{nojit / other:.2f}"))
    text = f"share of cuBLAS's rate on dense matrices, or of a copy's; bf16, {torch.cuda.get_device_name()}"
    return Chart("Block-sparse operators", text, tuple(Group(name, tuple(bars)) for name, bars in groups.items()))


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="sdd,dsd,dds,softmax")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    only = given.only.split(",")
    cached = l2_bytes_per_s(given.rounds)
    print(f"{torch.cuda.get_device_name()}; L2: {cached / 1e12:.2f} TB/s read and written")
    rows: list[Row] = []

    def show(row: Row | None) -> None:
        if row is not None:
            rows.append(row)
            print(row.line(), flush=True)

    for product in products(given.all, only):
        show(product.measure(given.rounds, cached))
        torch.cuda.empty_cache()
    if "dsd" in only:
        show(bsr_row(given.rounds))
    if "softmax" in only:
        for row in softmax_rows(given.rounds, given.all):
            show(row)
    if given.svg:
        given.svg.write_text(svg(chart(rows)), encoding="utf-8")
    missed = [row.label for row in rows if not row.kept]
    judged = sum(row.bar is not None for row in rows)
    print(f"{judged - len(missed)} of {judged} bars kept")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
