"""Time operators on random shapes against the best library, in one run: mean, tenth percentile and worst of each family.

    python benchmarks/random_shapes.py BUNDLES [--shapes 45] [--seed 0] [--rounds 8] [--only mm,conv2d,...] [--svg FILE]

Nobody tuned for these shapes: sizes are drawn log-uniformly within the range that models use, and a seed names the draw. Operands
are random. Each call runs in a CUDA graph after an L2 flush, contenders take turns, and figures are medians of device time. A
ratio above 1 means that nojit is faster than the fastest library that supports the call. Exits 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

import attention
import conv
import flex_decoding
import gemm
import mixed_mm
import scaled_mm
import torch
from contest import OURS, Row, chart
from nojit.aot.bench.plot import svg
from timing import check, race
from torch import Tensor
from torch.nn import functional

APART = 0.02
"""Largest error, as a share of the largest value."""
WORST = 3
"""The number of slowest shapes to name."""


def size(draw: Random, least: int, most: int, step: int = 1) -> int:
    """Draw a size log-uniformly, a multiple of `step`."""
    drawn = math.exp(draw.uniform(math.log(least), math.log(most)))
    return max(least, round(drawn / step) * step)


def mm(draw: Random, rounds: int) -> Row:
    """Measure a bf16 product."""
    from nojit.kernels.gemm.shapes import Shape

    m, n, k = size(draw, 1, 8192), size(draw, 256, 16384, 8), size(draw, 256, 16384, 8)
    columns = draw.random() < 0.5
    name = f"{m} x {n} x {k}{', b by columns' if columns else ''}"
    return gemm.bmm_row(Shape(name, 1, m, n, k, trans_b=columns), rounds, compile_too=False)


def bmm(draw: Random, rounds: int) -> Row:
    """Measure a batch of bf16 products."""
    from nojit.kernels.gemm.shapes import Shape

    batch = size(draw, 2, 256)
    m, n, k = (size(draw, 32, 2048 if batch < 32 else 512, 8) for _ in range(3))
    return gemm.bmm_row(Shape(f"{batch} of {m} x {n} x {k}", batch, m, n, k), rounds, compile_too=False)


def scaled(group: str, draw: Random, rounds: int) -> Row:
    """Measure an fp8 product with one scale (`whole`), scales of rows and columns (`ends`), or of blocks of 128 (`blocks`)."""
    if group != "blocks":
        sizes = (size(draw, 16, 8192), size(draw, 256, 16384, 16), size(draw, 256, 16384, 16))
    else:
        # torch refuses other numbers of rows, and its result is wrong where K is not a multiple of four blocks
        sizes = (size(draw, 4, 8192, 4), size(draw, 256, 16384, 128), size(draw, 512, 16384, 512))
    return scaled_mm.measure(group, sizes, rounds, compile_too=False)


def attend(draw: Random, rounds: int) -> Row:
    """Measure a forward pass of attention against cuDNN and FlashAttention-2."""
    dim, group, causal = draw.choice((64, 96, 128, 192, 256)), draw.choice((1, 1, 4, 8)), draw.random() < 0.5
    length, kv_heads = size(draw, 128, 12288), size(draw, 1, 16)
    batch = max(1, min(16, 32768 // length // kv_heads))
    shape = attention.Shape(batch, kv_heads * group, kv_heads, length, dim, causal)
    given = attention.operands(shape)
    calls = {name: partial(each, *given) for name, each in attention.attentions(shape).items()}
    del calls["nojit, pointers"]
    return rated(("attention", shape.name), calls, "FA2", (int(shape.flops), 0), rounds)


def conv2d(draw: Random, rounds: int) -> Row:
    """Measure a convolution of images, channels-last."""
    from nojit.kernels.conv.problems import Shape

    channels = draw.choice((3, size(draw, 8, 512, 8), size(draw, 8, 512, 8), size(draw, 8, 512, 8)))
    results, side = size(draw, 16, 512, 8), size(draw, 7, 224)
    taps, stride = draw.choice((1, 3, 3, 3, 5, 7)), draw.choice((1, 1, 2))
    # at most 2^28 elements in input and output each
    batch = min(size(draw, 1, 64), max(1, (1 << 28) // (side * side * max(channels, results))))
    name = f"{batch} x {channels} x {side}^2 to {results}, {taps} x {taps}{f' by {stride}' * (stride > 1)}"
    return conv.measure(
        Shape(name, batch, channels, results, (side, side), taps, stride), "forward", rounds, compile_too=False
    )


def int4(draw: Random, rounds: int) -> Row:
    """Measure a product with 4-bit weights and groups of 128."""
    shape = size(draw, 1, 512), size(draw, 1024, 16384, 128), size(draw, 1024, 16384, 128)
    row = mixed_mm.measure(shape, rounds, compile_too=False)
    times = {name: ms for name, ms in row.ms.items() if name != OURS}
    # models use weights with scales
    return Row("int4", row.label, {OURS: times.pop(f"{OURS}, scaled")} | times, row.flops, row.moved_bytes)


def decoding(draw: Random, rounds: int) -> Row:
    """Measure attention of one query to many keys against torch."""
    shape = flex_decoding.Shape(size(draw, 1, 128), size(draw, 128, 16384))
    given, words = flex_decoding.operands(shape)
    calls = flex_decoding.contenders(shape, given, words, ("SDPA",))
    del calls["copy"]
    return rated(("decoding", shape.name), calls, "SDPA", (0, shape.moved_bytes), rounds)


def rms_norm(draw: Random, rounds: int) -> Row:
    """Measure a norm against a copy of as many bytes."""
    from nojit.kernels.norm import rms_norm as ours

    rows, width = size(draw, 1, 16384), size(draw, 256, 16384, 8)
    x, weight = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((rows, width), (width,)))
    out = torch.empty_like(x)
    right = functional.rms_norm(x.float(), (width,), weight.float(), 1e-6)
    check(f"rms_norm, {rows} x {width}", ours(x, weight, 1e-6), right, APART)
    calls: dict[str, Callable[[], Tensor]] = {OURS: lambda: ours(x, weight, 1e-6), "copy": lambda: out.copy_(x)}
    return rated(("rms_norm", f"{rows} x {width}"), calls, "", (0, 4 * rows * width), rounds)


def rated(
    where: tuple[str, str], calls: dict[str, Callable[[], Tensor]], judge: str, work: tuple[int, int], rounds: int
) -> Row:
    """Time the contenders, and return their row.

    Args:
        where: the family and the shape.
        calls: by contender.
        judge: the contender whose result is the reference; no check if empty.
        work: the number of multiplications and additions, 0 to show time only; and the bytes to move.
        rounds: the number of turns.
    """
    words = ", ".join(where)
    if judge:
        check(words, calls[OURS](), calls[judge](), APART)
    return Row(*where, race(calls, rounds, words), *work)


FAMILIES: dict[str, Callable[[Random, int], Row]] = {
    "mm": mm,
    "bmm": bmm,
    "scaled": partial(scaled, "whole"),
    "scaled_rows": partial(scaled, "ends"),
    "scaled_blocks": partial(scaled, "blocks"),
    "attention": attend,
    "conv2d": conv2d,
    "int4": int4,
    "decoding": decoding,
    "rms_norm": rms_norm,
}


def measured(family: str, count: int, seed: int, rounds: int) -> Iterator[Row]:
    """Draw shapes of a family and measure them; a seed gives the same shapes for any selection of families."""
    draw = Random(f"{family} {seed}")  # noqa: S311 - shapes are no secrets
    for _ in range(count):
        yield FAMILIES[family](draw, rounds)
        torch.cuda.empty_cache()


def summary(family: str, rows: Sequence[Row]) -> str:
    """Return a family's results against the fastest of the others, in words."""
    found = sorted((min(row.ratios.values()), row.label) for row in rows if row.ratios)
    if not found:
        return f"{family}: no library took a call"
    ratios = [ratio for ratio, _ in found]
    tenth = ratios[len(ratios) // 10]
    worst = "; ".join(f"{label} {ratio:.2f}" for ratio, label in found[:WORST])
    return (
        f"{family}: geometric mean {statistics.geometric_mean(ratios):.2f} of {len(ratios)}, "
        f"tenth percentile {tenth:.2f}, median {statistics.median(ratios):.2f}, worst {worst}"
    )


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", help="a file or folder that holds the kernels")
    parser.add_argument("--shapes", type=int, default=45, help="number of shapes per family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=8, help="number of rounds; each contender runs once per round")
    parser.add_argument("--only", default=",".join(FAMILIES), metavar="FAMILIES", help=f"some of {','.join(FAMILIES)}")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="file for a chart of every shape")
    given = parser.parse_args()
    families = given.only.split(",")
    if unknown := [name for name in families if name not in FAMILIES]:
        parser.error(f"--only: expected some of {','.join(FAMILIES)}, got {','.join(unknown)}")
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(given.seed)
    torch.backends.cudnn.benchmark = True
    print(torch.cuda.get_device_name())
    rows, lines = [], []
    for family in families:
        own = []
        for row in measured(family, given.shapes, given.seed, given.rounds):
            own.append(row)
            print(row.line(), flush=True)
        rows += own
        lines.append(summary(family, own))
    if given.svg:
        where = f"random shapes, seed {given.seed}; {torch.cuda.get_device_name()}"
        given.svg.write_text(svg(chart("Random shapes", where, rows)), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
