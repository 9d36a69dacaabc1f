"""Time dense products against cuBLAS and torch.compile, in one run: ratios, bars, and a chart.

    python benchmarks/gemm.py BUNDLES [--rounds 12] [--only bmm,mm_plus_mm,gated_mm] [--svg FILE] [--compile]

The shapes are those with promised speed: squares, batches, the projections of models of width 4k and 8k, and sums of two products; and
gated products, which have no bars.
Operands are random bf16. Each call runs in a CUDA graph after an L2 flush, contenders take turns, and figures are medians of
device time. `--compile` adds torch.compile(mode="max-autotune"); it needs Triton and takes minutes. Exits 1 if a result is
wrong, if the geometric mean of a family's ratios to the best contender is below 1, if a ratio is below 0.8, or if a sum of
products of depth 64 is less than 1.3 times as fast as torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from contest import BEST, OURS, Promise, Row, arguments, report
from timing import check, compiled, race
from torch import Tensor

PROMISED = ("bmm", "mm_plus_mm")
GROUPS = (*PROMISED, "gated_mm")
PROMISES = {(family, BEST): Promise(mean=1.0, least=0.8) for family in PROMISED}
GATED = tuple((tokens, *sides) for sides in ((14336, 4096), (28672, 8192)) for tokens in (1, 16, 512, 8192))
"""M, N and K of the measured gated products: the feed-forward layers of models of width 4k and 8k."""
FLAT = 64
"""The largest depth of both products at which writing the result dominates."""
OF_TORCH = 1.3
"""Least ratio to torch for sums of such depth."""
APART = 0.02
"""Largest error, as a share of the largest value."""


def random(*shape: int) -> Tensor:
    """Return a random operand."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def measure(  # noqa: PLR0917 - all fields of a row
    family: str,
    label: str,
    functions: Mapping[str, Callable[..., Tensor]],
    given: Sequence[Tensor],
    flops: int,
    rounds: int,
    bars: Mapping[str, float],
) -> Row:
    """Check the results, and time them."""
    calls = {name: lambda function=function: function(*given) for name, function in functions.items()}
    where, result = f"{family}, {label}", calls[OURS]()
    check(where, result, calls["torch"](), APART)
    moved = sum(value.numel() * value.itemsize for value in (*given, result))
    del result
    ms = race(calls, rounds, where)
    return Row(family, label, ms, flops, moved, bars, rivals=[name for name in calls if name != OURS])


def bmm_row(shape: object, rounds: int, compile_too: bool) -> Row:
    """Measure one shape of `nojit.kernels.products.problem_shapes`."""
    from nojit.kernels.bmm import bmm, mm

    one = shape
    a = random(one.batch, one.m, one.k)
    b = random(one.batch, one.n, one.k).mT if one.trans_b else random(one.batch, one.k, one.n)
    ours, torchs = bmm, torch.bmm
    if one.batch == 1:
        a, b, ours, torchs = a[0], b[0], mm, torch.mm
    functions = {OURS: ours, "torch": torchs} | ({"compiled": compiled(torchs)} if compile_too else {})
    return measure("bmm", one.name, functions, (a, b), one.flops, rounds, {})


def pair_row(shape: object, more: int, rounds: int, compile_too: bool) -> Row:
    """Measure one sum of two products of `nojit.kernels.mm_plus_mm.problems`."""
    from nojit.kernels.mm_plus_mm import mm_plus_mm

    one = shape

    def factors(depth: int) -> tuple[Tensor, Tensor]:
        return random(one.m, depth), random(one.n, depth).mT if one.trans_b else random(depth, one.n)

    def torchs(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return torch.mm(a, b) + torch.mm(c, d)

    functions = {OURS: mm_plus_mm, "torch": torchs} | ({"compiled": compiled(torchs)} if compile_too else {})
    flops, bars = one.flops + 2 * one.m * one.n * more, {"torch": OF_TORCH} if max(one.k, more) <= FLAT else {}
    return measure("mm_plus_mm", one.name, functions, (*factors(one.k), *factors(more)), flops, rounds, bars)


def gated_row(sizes: tuple[int, int, int], rounds: int, compile_too: bool) -> Row:
    """Measure one gated product, [M, K] by [K, 2 * N] stored by columns."""
    from nojit.kernels.gated_mm import gated_mm, reference

    m, n, k = sizes
    torchs = reference.gated_mm
    functions = {OURS: gated_mm, "torch": torchs} | ({"compiled": compiled(torchs)} if compile_too else {})
    # outputs near one: the products of large factors would be rounded too coarsely to compare
    given = (random(m, k), random(2 * n, k).mul_(k**-0.5).mT)
    return measure("gated_mm", f"{m} x {n} x {k}", functions, given, 4 * m * n * k, rounds, {})


def list_rows(only: Sequence[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the shapes of the requested families, one after the other."""
    from nojit.kernels.mm_plus_mm.problems import BARS as PAIRS
    from nojit.kernels.products.problem_shapes import BARS

    if "bmm" in only:
        for shape in BARS:
            yield bmm_row(shape, rounds, compile_too)
            torch.cuda.empty_cache()
    if "mm_plus_mm" in only:
        for shape, more in PAIRS:
            yield pair_row(shape, more, rounds, compile_too)
            torch.cuda.empty_cache()
    if "gated_mm" in only:
        for sizes in GATED:
            yield gated_row(sizes, rounds, compile_too)
            torch.cuda.empty_cache()


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    given = arguments(__doc__, GROUPS, rounds=12)
    torch.manual_seed(0)
    rows = list_rows(given.only, given.rounds, given.compile)
    report(rows, PROMISES, "Dense products", f"bf16; {torch.cuda.get_device_name()}", given.svg)


if __name__ == "__main__":
    main()
