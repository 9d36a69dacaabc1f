"""Time scaled fp8 products against torch._scaled_mm, in one run: ratios, bars, and a chart.

    python benchmarks/scaled_mm.py BUNDLES [--rounds 12] [--only whole,ends,bias,fast,blocks,decode] [--svg FILE] [--compile]

The shapes are squares and projections of models, e4m3 to bf16. Groups: scales per tensor (`whole`), per row and column (`ends`),
those with a bias (`bias`), tensor-core accumulation (`fast`), block scales (`blocks`); and few rows by wide weights (`decode`),
against a copy of the weights. Operands are random. Each call runs in a CUDA graph after an L2 flush, contenders take turns, and
figures are medians of device time. `--compile` adds torch.compile(mode="max-autotune"); it needs Triton and takes minutes. A
contender that refuses a call is left out. Exits 1 if a result is wrong, if the geometric mean of a group's ratios is below its
bar, or if a ratio is below 0.8 of that bar. Bars: 1.0 of torch's speed; for few rows 0.8 of a copy's bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from contest import OURS, Promise, Row, arguments, report
from timing import check, compiled, race
from torch import Tensor

PROMISES = {(group, "torch"): Promise(mean=1.0, least=0.8) for group in ("whole", "ends", "bias", "fast", "blocks")} | {
    ("decode", "copy"): Promise(mean=0.8, least=0.64)
}
GROUPS = tuple(group for group, _ in PROMISES)
APART = 0.02
"""Largest error, as a share of the largest value."""
LARGE = (
    *((size, size, size) for size in (1024, 2048, 4096, 8192)),
    (4096, 1024, 4096),
    (2048, 4096, 4096),
    (2048, 4096, 14336),
    (4096, 28672, 4096),
    (8192, 10240, 8192),
)
FEW = tuple((rows, n, k) for n, k in ((8192, 8192), (28672, 4096), (4096, 4096)) for rows in (1, 16, 64))
"""M, N, K."""


def operands(group: str, m: int, n: int, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Return the operands of a product, with the scales and the bias of a group."""

    def fp8(rows: int, cols: int) -> Tensor:
        return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)

    def scale(*shape: int) -> Tensor:
        return torch.rand(shape, device="cuda") + 0.5

    a, b = fp8(m, k), fp8(n, k).t()
    if group in {"ends", "bias"}:
        bias = torch.randn(n, device="cuda", dtype=torch.bfloat16) if group == "bias" else None
        return a, b, scale(m, 1), scale(1, n), bias
    if group == "blocks":
        # torch's layout: column-major for a's scales; b's in the order of its weights
        return a, b, scale(k // 128, m).t(), scale(n // 128, k // 128).t(), None
    return a, b, scale(), scale(), None


def measure(group: str, sizes: tuple[int, int, int], rounds: int, compile_too: bool) -> Row:
    """Time a product, and check its result."""
    from nojit.kernels.scaled_mm import scaled_mm

    m, n, k = sizes
    given = operands(group, m, n, k)
    words = {"out_dtype": torch.bfloat16, "use_fast_accum": group == "fast"}

    def torchs(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None) -> Tensor:
        return torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, **words)  # noqa: SLF001 - torch's only interface

    calls: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: scaled_mm(*given, **words),
        "torch": lambda: torchs(*given),
    }
    if compile_too:
        tuned = compiled(torchs)
        calls["compiled"] = lambda: tuned(*given)
    if group == "decode":
        # half is read and half is written: together the bytes of the weights
        source = torch.empty(n * k // 2, dtype=torch.uint8, device="cuda").random_()
        target = torch.empty_like(source)
        calls["copy"] = lambda: target.copy_(source)
    label = f"{m} x {n} x {k}"
    where = f"{group}, {label}"
    ms = race(calls, rounds, where)
    if ms["torch"] is not None:
        check(where, calls[OURS](), calls["torch"](), APART)
    # bound by loading weights: show the bandwidth, not the rate of products
    flops = 0 if group == "decode" else 2 * m * n * k
    return Row(group, label, ms, flops, m * k + k * n + 2 * m * n)


def list_rows(only: Sequence[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the requested groups, one after the other."""
    for group in only:
        for sizes in FEW if group == "decode" else LARGE:
            yield measure(group, sizes, rounds, compile_too)
            torch.cuda.empty_cache()


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    given = arguments(__doc__, GROUPS, rounds=12)
    torch.manual_seed(0)
    rows = list_rows(given.only, given.rounds, given.compile)
    report(rows, PROMISES, "Scaled products", f"e4m3 to bf16; {torch.cuda.get_device_name()}", given.svg)


if __name__ == "__main__":
    main()
