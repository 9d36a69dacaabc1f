"""Time operators on random shapes against the best library, in one run: mean, tenth percentile and worst of each family.

    python benchmarks/random_shapes.py BUNDLES [--shapes 200] [--seconds 60] [--seed WORDS] [--rounds 8] [--only mm,conv2d,...] [--svg FILE]
                                       [--json FILE]

Nobody tuned for these shapes: sizes are drawn log-uniformly within the range that models use, and the seed is the digest of the
measured bundles, which nobody knows before they are built. Operands are random. Each call runs in a CUDA graph after an L2 flush,
contenders take turns, and figures are medians of device time. A ratio above 1 means that nojit is faster than the fastest library
that supports the call. Calls that take nojit less than 5 us are summed up apart. Several GPUs share the families, and each family has a
process of its own. Exits 1 if a result is wrong or a family breaks off, after the others.

``--json`` writes what docs/random-shapes.json holds, from which ``python -m tests.spec.generate`` writes the pages' tables.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random

import attention
import b2b_gemm
import block_sparse
import conv
import flex_decoding
import gemm
import grouped_mm
import mixed_mm
import pointwise
import scaled_mm
import torch
from contest import OURS, Row
from scatter import Panel, Point, draw_panels
from timing import check, race
from torch import Tensor
from torch.nn import functional

APART = 0.02
"""Largest error, as a share of the largest value."""
WORST = 3
"""The number of slowest shapes to name."""
CLIFF = 0.75
"""No shape should have a lower ratio."""
SHORT_MS = 0.005
"""Calls below this are summed up apart: they measure launches."""


def size(draw: Random, least: int, most: int, step: int = 1) -> int:
    """Draw a size log-uniformly, a multiple of `step`."""
    drawn = math.exp(draw.uniform(math.log(least), math.log(most)))
    return max(least, round(drawn / step) * step)


def mm(rows: tuple[int, int], draw: Random, rounds: int) -> Row:
    """Measure a bf16 product whose number of rows lies between two."""
    from nojit.kernels.products.problem_shapes import Shape

    m, n, k = size(draw, *rows), size(draw, 256, 16384, 8), size(draw, 256, 16384, 8)
    columns = draw.random() < 0.5
    name = f"{m} x {n} x {k}{', b by columns' if columns else ''}"
    return gemm.bmm_row(Shape(name, 1, m, n, k, trans_b=columns), rounds, compile_too=False)


def bmm(draw: Random, rounds: int) -> Row:
    """Measure a batch of bf16 products."""
    from nojit.kernels.products.problem_shapes import Shape

    batch = size(draw, 2, 256)
    m, n, k = (size(draw, 32, 2048 if batch < 32 else 512, 8) for _ in range(3))
    return gemm.bmm_row(Shape(f"{batch} of {m} x {n} x {k}", batch, m, n, k), rounds, compile_too=False)


def pair(draw: Random, rounds: int) -> Row:
    """Measure a sum of two bf16 products."""
    from nojit.kernels.products.problem_shapes import Shape

    m, n, k = size(draw, 1, 8192), size(draw, 256, 8192, 8), size(draw, 256, 8192, 8)
    more = size(draw, 16, 4096, 8)
    return gemm.pair_row(Shape(f"{m} x {n}, {k} and {more} deep", 1, m, n, k), more, rounds, compile_too=False)


def gated(draw: Random, rounds: int) -> Row:
    """Measure a gated bf16 product, the first layer of a feed-forward block."""
    sizes = size(draw, 1, 8192), size(draw, 256, 16384, 8), size(draw, 256, 8192, 8)
    return gemm.gated_row(sizes, rounds, compile_too=False)


def chain(draw: Random, rounds: int) -> Row:
    """Measure two narrow fp16 products, one after the other, with gelu between them."""
    sides = (size(draw, 16, 128, 8) for _ in range(3))
    return b2b_gemm.measure((size(draw, 256, 1 << 18), *sides), rounds, compile_too=False)


def scaled(group: str, draw: Random, rounds: int) -> Row:
    """Measure an fp8 product with one scale (`whole`), scales of rows and columns (`ends`), or of blocks of 128 (`blocks`)."""
    if group != "blocks":
        sizes = (size(draw, 16, 8192), size(draw, 256, 16384, 16), size(draw, 256, 16384, 16))
    else:
        # torch refuses other numbers of rows, and its result is wrong where K is not a multiple of four blocks
        sizes = (size(draw, 4, 8192, 4), size(draw, 256, 16384, 128), size(draw, 512, 16384, 512))
    return scaled_mm.measure(group, sizes, rounds, compile_too=False)


def grouped(kind: str, draw: Random, rounds: int) -> Row:
    """Measure a grouped product of a `kind` of operands against torch's; the bound counts as a library, too."""
    group = "grouped" + (f"_{kind}" if kind else "")
    return grouped_mm.measure(group, grouped_mm.drawn(draw, kind), rounds, compile_too=False)


def attention_shape(draw: Random) -> attention.Shape:
    """Draw a call of attention."""
    dim, group, causal = draw.choice((64, 96, 128, 192, 256)), draw.choice((1, 1, 4, 8)), draw.random() < 0.5
    length, kv_heads = size(draw, 128, 12288), size(draw, 1, 16)
    batch = max(1, min(16, 32768 // length // kv_heads))
    return attention.Shape(batch, kv_heads * group, kv_heads, length, dim, causal)


def attend(draw: Random, rounds: int) -> Row:
    """Measure a forward pass of attention against cuDNN and FlashAttention-2."""
    shape = attention_shape(draw)
    given = attention.operands(shape)
    calls = {name: partial(each, *given) for name, each in attention.attentions(shape).items()}
    del calls["nojit, pointers"]
    return rated(("attention", shape.name), calls, "FA2", (int(shape.flops), 0), rounds)


def attend_backward(draw: Random, rounds: int) -> Row:
    """Measure a deterministic backward pass of attention against those of cuDNN and FlashAttention-2."""
    shape = attention_shape(draw)
    # a backward pass runs on the stream of its forward pass, and the default stream cannot be captured
    with torch.cuda.stream(torch.cuda.Stream()):
        calls = {name: partial(_first, call) for name, call in attention.backwards(shape).items()}
        row = rated(("backward", shape.name), calls, "FA2", (int(2.5 * shape.flops), 0), rounds)
        torch.cuda.synchronize()
    return row


def _first(call: attention.Call) -> Tensor:
    return call()[0]


def conv2d(what: str, draw: Random, rounds: int) -> Row:
    """Measure a convolution of images, channels-last, `forward`, or one of its gradients, `input_grad` and `weight_grad`."""
    channels = draw.choice((3, size(draw, 8, 512, 8), size(draw, 8, 512, 8), size(draw, 8, 512, 8)))
    results, side = size(draw, 16, 512, 8), size(draw, 7, 224)
    window = draw.choice((1, 3, 3, 3, 5, 7)), draw.choice((1, 1, 2))
    # at most 2^28 elements in input and output each
    batch = min(size(draw, 1, 64), max(1, (1 << 28) // (side * side * max(channels, results))))
    return convolution(what, (batch, channels, results), (side, side), window, rounds)


def conv3d(draw: Random, rounds: int) -> Row:
    """Measure a convolution of volumes, channels-last."""
    channels, results = draw.choice((3, size(draw, 8, 512, 8), size(draw, 8, 512, 8))), size(draw, 16, 512, 8)
    frames, side = size(draw, 4, 32), size(draw, 7, 112)
    window = draw.choice((1, 3, 3, 3)), draw.choice((1, 1, 2))
    batch = min(size(draw, 1, 16), max(1, (1 << 27) // (frames * side * side * max(channels, results))))
    return convolution("forward", (batch, channels, results), (frames, side, side), window, rounds)


def convolution(
    what: str, sizes: tuple[int, int, int], positions: tuple[int, ...], window: tuple[int, int], rounds: int
) -> Row:
    """Measure a convolution or a gradient of it.

    Args:
        what: as for `conv2d`.
        sizes: batch, channels of the input and of the result.
        positions: spatial sizes; the last two are equal.
        window: taps in each dimension, and the stride.
        rounds: the number of turns.
    """
    from nojit.kernels.conv.problems import Shape

    (batch, channels, results), (*frames, side, _), (taps, stride) = sizes, positions, window
    places = " x ".join((*map(str, frames), f"{side}^2"))
    steps = " x ".join([str(taps)] * len(positions)) + f" by {stride}" * (stride > 1)
    name = f"{batch} x {channels} x {places} to {results}, {steps}"
    return conv.measure(Shape(name, batch, channels, results, positions, taps, stride), what, rounds, compile_too=False)


def sparse(draw: Random, rounds: int) -> Row:
    """Measure a block-sparse product against cuBLAS at its rate for dense matrices."""
    from nojit.kernels.block_sparse.matmul.problems import SparseShape

    block, pattern = draw.choice((32, 64, 128)), draw.choice(("window", "longformer", "bigbird"))
    count, reach = size(draw, 1024, 8192) // block, size(draw, 1, 256 // block)
    batch, heads = draw.choice((1, 2, 4)), size(draw, 1, 16)
    free, mode = size(draw, 64, 2048, 64), draw.choice(("sdd", "dsd", "dds"))
    name = f"{pattern} {reach}, {batch} x {heads} x {count} of {block}"
    shape = SparseShape(name, batch, heads, count, count, block, pattern, reach)
    product = block_sparse.Product(shape, free, mode, torch.bfloat16)
    ms, active, whole = product.times(rounds)
    moved = 2 * (active // (2 * free) + 2 * batch * heads * count * block * free)
    return Row("block_sparse", product.label, ms | {"cuBLAS": ms["cuBLAS"] * active / whole}, active, moved)


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


def gate(draw: Random, rounds: int) -> Row:
    """Measure the gate of a feed-forward layer against a copy of as many bytes, and against torch."""
    from nojit.kernels import pointwise as ours

    rows, width = size(draw, 1, 16384), size(draw, 256, 16384, 8)
    operands = (pointwise.random(rows, width), pointwise.random(rows, width))
    case = pointwise.Case(f"{rows} x {width}", operands, ours.swiglu, pointwise.swiglu)
    return pointwise.measure("swiglu", case, rounds, compile_too=False)


def rotary(draw: Random, rounds: int) -> Row:
    """Measure the rotation of query and key against a copy of as many bytes."""
    import rotary as rotations

    kv_heads, dim = draw.choice((1, 2, 4, 8)), draw.choice((64, 80, 96, 128, 256))
    shape = rotations.Shape(size(draw, 1, 8192), kv_heads * draw.choice((1, 3, 4, 5, 7, 8)), kv_heads, dim)
    calls = rotations.contenders(shape, "pair", compile_too=False)
    return rated(("rotary", shape.name), calls, "", (0, shape.moved_bytes("pair")), rounds)


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


TITLES = {
    "mm": "bf16 products",
    "mm_few": "bf16 products of 1 to 16 rows",
    "bmm": "batched bf16 products",
    "mm_plus_mm": "sums of two bf16 products",
    "gated_mm": "gated bf16 products",
    "b2b_gemm": "two narrow fp16 products with gelu between",
    "scaled": "fp8 products, one scale",
    "scaled_rows": "fp8 products, one scale for each row and column",
    "scaled_blocks": "fp8 products, one scale for each block of 128",
    "grouped": "mixtures of experts, bf16",
    "grouped_fp8": "mixtures of experts, fp8",
    "grouped_blocks": "mixtures of experts, fp8 with blocks",
    "attention": "attention, forward",
    "attention_backward": "attention, backward",
    "conv2d": "convolutions of images",
    "conv2d_input_grad": "gradients of convolutions by input",
    "conv2d_weight_grad": "gradients of convolutions by weight",
    "conv3d": "convolutions of volumes",
    "block_sparse": "block-sparse products, relative to cuBLAS's rate on dense matrices",
    "int4": "int4 weights, 1 to 512 rows",
    "decoding": "decoding",
    "rms_norm": "norms, relative to a copy",
    "rotary": "rotary embedding, relative to a copy",
    "swiglu": "gates",
}
"""Titles of the families on the pages."""

FAMILIES: dict[str, Callable[[Random, int], Row]] = {
    "mm": partial(mm, (1, 8192)),
    "mm_few": partial(mm, (1, 16)),
    "bmm": bmm,
    "mm_plus_mm": pair,
    "gated_mm": gated,
    "b2b_gemm": chain,
    "scaled": partial(scaled, "whole"),
    "scaled_rows": partial(scaled, "ends"),
    "scaled_blocks": partial(scaled, "blocks"),
    "grouped": partial(grouped, ""),
    "grouped_fp8": partial(grouped, "fp8"),
    "grouped_blocks": partial(grouped, "blocks"),
    "attention": attend,
    "attention_backward": attend_backward,
    "conv2d": partial(conv2d, "forward"),
    "conv2d_input_grad": partial(conv2d, "input_grad"),
    "conv2d_weight_grad": partial(conv2d, "weight_grad"),
    "conv3d": conv3d,
    "block_sparse": sparse,
    "int4": int4,
    "decoding": decoding,
    "rms_norm": rms_norm,
    "rotary": rotary,
    "swiglu": gate,
}


def measured(family: str, given: argparse.Namespace) -> Iterator[Row]:
    """Draw shapes of a family and measure them; a seed gives the same shapes for any selection of families."""
    draw = Random(f"{family} {given.seed}")  # noqa: S311 - shapes are no secrets
    end = time.monotonic() + given.seconds
    for _ in range(given.shapes):
        if time.monotonic() > end:
            return
        yield FAMILIES[family](draw, given.rounds)
        torch.cuda.empty_cache()


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of the ratios to the best library over some shapes of a family."""

    shapes: int
    mean: float
    """Geometric mean."""
    tenth: float
    """Tenth percentile."""
    median: float
    cliffs: int
    """Number of ratios below 0.75."""
    worst: tuple[tuple[float, str], ...]
    """The lowest ratios and their shapes, lowest first."""

    def words(self) -> str:
        """Return the spread in words."""
        worst = "; ".join(f"{label} {ratio:.2f}" for ratio, label in self.worst)
        return (
            f"geometric mean {self.mean:.2f} of {self.shapes}, tenth percentile {self.tenth:.2f}, "
            f"median {self.median:.2f}, {self.cliffs} below {CLIFF}, worst {worst}"
        )


def spread_of(found: Sequence[tuple[float, str]]) -> Spread | None:
    """Return the spread of (ratio, shape) pairs; None if there are none."""
    if not found:
        return None
    ordered = sorted(found)
    ratios = [ratio for ratio, _ in ordered]
    return Spread(
        len(ratios),
        statistics.geometric_mean(ratios),
        ratios[len(ratios) // 10],
        statistics.median(ratios),
        sum(ratio < CLIFF for ratio in ratios),
        tuple(ordered[:WORST]),
    )


def spreads(rows: Sequence[Row]) -> dict[str, Spread | None]:
    """Return the spread over the calls of at least 5 us, and that over the shorter ones, by the names of the JSON."""
    found = [(min(row.ratios.values()), row.label, row.ms[OURS] or 0.0) for row in rows if row.ratios]
    return {
        "from_5_us": spread_of([each[:2] for each in found if each[2] >= SHORT_MS]),
        "below_5_us": spread_of([each[:2] for each in found if each[2] < SHORT_MS]),
    }


def summary(family: str, rows: Sequence[Row]) -> str:
    """Return a family's results against the fastest of the others, in words."""
    own = spreads(rows)
    parts = [f"{words}{each.words()}" for words, each in zip(("", "below 5 us: "), own.values(), strict=True) if each]
    return f"{family}: " + ("\n  ".join(parts) or "no library took a call")


def panel_of(family: str, rows: Sequence[Row]) -> Panel | None:
    """Return a family's panel of the chart; None if no library took a call."""
    points = tuple(
        Point(row.label, row.flops or row.moved_bytes, min(row.ratios.values())) for row in rows if row.ratios
    )
    return Panel(family, "FLOP" if rows[0].flops else "B", points) if points else None


def digest_of(bundles: str) -> str:
    """Return the digest of the bundles' files, the seed of their measurement."""
    path = Path(bundles)
    files = sorted(path.glob("*.nojit")) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()[:12]


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", help="a file or folder that holds the kernels")
    parser.add_argument("--shapes", type=int, default=200, help="number of shapes per family")
    parser.add_argument("--seconds", type=float, default=math.inf, help="at most, per family")
    parser.add_argument("--seed", help="by default the digest of the bundles")
    parser.add_argument("--rounds", type=int, default=8, help="number of rounds; each contender runs once per round")
    parser.add_argument("--only", default=",".join(FAMILIES), metavar="FAMILIES", help=f"some of {','.join(FAMILIES)}")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="file for a chart of every shape")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the figures of each family")
    given = parser.parse_args()
    families = given.only.split(",")
    if unknown := [name for name in families if name not in FAMILIES]:
        parser.error(f"--only: expected some of {','.join(FAMILIES)}, got {','.join(unknown)}")
    given.seed = given.seed or digest_of(given.bundles)
    os.environ["NOJIT_BUNDLES"] = given.bundles
    print(f"{torch.cuda.get_device_name()}, seed {given.seed}", flush=True)
    free: SimpleQueue[int] = SimpleQueue()
    for number in range(torch.cuda.device_count()):
        free.put(number)
    done: dict[str, list[Row]] = {}
    broken: list[str] = []
    with ThreadPoolExecutor(torch.cuda.device_count()) as pool:
        for family, future in [(family, pool.submit(in_process, free, family, given)) for family in families]:
            try:
                rows = future.result()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the other families still count
                broken.append(f"{family}: {error}")
                continue
            done[family] = rows
            write(given, done)
    print("\n".join(summary(*each) for each in done.items()))
    if broken:
        sys.exit("broken off: " + "; ".join(broken))


def write(given: argparse.Namespace, done: dict[str, list[Row]]) -> None:
    """Write the files for the families measured so far: a run that is cut off leaves what it found."""
    device = torch.cuda.get_device_name()
    if given.svg:
        where = f"Speed relative to the best library over work; {device}, seed {given.seed}"
        panels = [panel for each in done.items() if (panel := panel_of(*each))]
        given.svg.write_text(draw_panels("Random shapes", where, panels), encoding="utf-8")
    if given.json:
        families = {
            name: {"title": TITLES[name]} | {key: each and asdict(each) for key, each in spreads(rows).items()}
            for name, rows in done.items()
        }
        run = {"device": device, "date": f"{datetime.now(UTC):%Y-%m-%d}", "seed": given.seed}
        given.json.write_text(json_text(run, families), encoding="utf-8")


def json_text(run: dict[str, str], families: dict[str, dict[str, object]]) -> str:
    """Return the facts of the run and its families as JSON, a family to a line."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in families.items())
    return f'{json.dumps(run)[:-1]}, "families": {{\n{lines}\n}}}}\n'


def in_process(free: SimpleQueue[int], family: str, given: argparse.Namespace) -> list[Row]:
    """Measure a family in a process of its own, on a GPU that is free."""
    device = free.get()
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(rows_of, family, given, device).result()
    finally:
        free.put(device)


def rows_of(family: str, given: argparse.Namespace, device: int) -> list[Row]:
    """Measure a family on a GPU, and print each row."""
    torch.cuda.set_device(device)
    torch.manual_seed(int.from_bytes(given.seed.encode(), "little") % 2**63)
    torch.backends.cudnn.benchmark = True
    rows = []
    for row in measured(family, given):
        rows.append(row)
        print(row.line(), flush=True)
    # a run that is cut off has said what it found
    print(summary(family, rows), flush=True)
    return rows


if __name__ == "__main__":
    main()
