"""Time decoding against torch's SDPA, compiled flex_attention, and a copy of as many bytes, in one run: TB/s and ratios.

    python benchmarks/flex_decoding.py BUNDLES [--rounds 30] [--sweep] [--svg FILE]

Operands are random bf16, 32 query heads over 8 key heads of dimension 128. Each call follows an L2 flush, contenders take turns,
and figures are medians of device time from events. Bytes are those of visible keys and values. The last lines are nojit's
alone: paged keys, lengths on the device, several queries, a window, and other numbers of splits. `--sweep` instead times one
query over batches and sequence lengths, without torch's compiler. Exits 1 if a result differs from SDPA's by more than
rounding, or if a promise is missed: the first three lines as fast as SDPA, and 0.9 of the copy.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from nojit.aot.bench.plot import Bar, Chart, Group, svg
from timing import device_ms
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention as torchs_flex

APART = 0.02
HEADS, KV_HEADS, DIM = 32, 8, 128
OF_SDPA, OF_COPY = 1.0, 0.9
RIVALS = ("SDPA", "torch flex")

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Shape:
    """One call."""

    batch: int
    kv_len: int
    q_len: int = 1
    page: int = 0
    lens: bool = False
    window: int | None = None
    splits: int | None = None

    @property
    def name(self) -> str:
        """The unusual options of the call."""
        words = [f"B{self.batch} KV{self.kv_len}"]
        words += [f"{self.q_len} queries"] * (self.q_len > 1)
        words += [f"pages of {self.page}"] * (self.page > 0)
        words += ["lengths on the device"] * self.lens
        words += [f"window {self.window}"] * (self.window is not None)
        words += [f"{self.splits} splits"] * (self.splits is not None)
        return ", ".join(words)

    @property
    def moved_bytes(self) -> int:
        """The bytes of visible keys and values."""
        keys = self.kv_len if self.window is None else min(self.kv_len, self.window + self.q_len)
        return 2 * self.batch * KV_HEADS * keys * DIM * 2


BARS = (Shape(16, 8192), Shape(64, 4096), Shape(1, 65536))
BESIDE = (*BARS, Shape(1, 8192), Shape(4, 2048), Shape(256, 1024), Shape(16, 8192, q_len=4))
ALONE = (
    *(Shape(16, 8192, page=page, lens=True) for page in (16, 64, 256)),
    Shape(16, 8192, lens=True),
    Shape(16, 8192, q_len=4, page=16, lens=True),
    Shape(16, 8192, window=2048),
    *(Shape(16, 8192, splits=splits) for splits in (1, 2, 4, 8)),
    *(Shape(64, 4096, splits=splits) for splits in (1, 2, 4)),
    *(Shape(1, 65536, splits=splits) for splits in (16, 33, 66, 132)),
)
SWEEP = tuple(
    Shape(batch, kv_len)
    for kv_len in (1024, 4096, 16384, 65536)
    for batch in (1, 4, 16, 64, 256)
    if batch * kv_len <= 1 << 20
)


def operands(shape: Shape) -> tuple[list[Tensor], dict[str, Any]]:
    """Return random queries, keys and values, and the call's options."""
    lead, rows, words = shape.batch, shape.kv_len, {}
    if shape.page:
        lead, rows = shape.batch * shape.kv_len // shape.page, shape.page
        words["page_table"] = torch.randperm(lead, device="cuda").view(shape.batch, -1).to(torch.int32)
    if shape.lens:
        words["kv_lens"] = torch.full((shape.batch,), shape.kv_len, dtype=torch.int32, device="cuda")
    if shape.window is not None:
        words["window"] = (shape.window, 0)
    if shape.splits is not None:
        words["splits"] = shape.splits
    sizes = ((shape.batch, HEADS, shape.q_len), (lead, KV_HEADS, rows), (lead, KV_HEADS, rows))
    return [torch.randn(*size, DIM, device="cuda", dtype=torch.bfloat16) for size in sizes], words


def contenders(shape: Shape, given: list[Tensor], words: dict[str, Any], rivals: Sequence[str]) -> dict[str, Call]:
    """Return the contenders: nojit, a copy, and the requested ones of `RIVALS`."""
    from nojit.kernels.flex_decoding import flex_decoding

    source = torch.randn(shape.moved_bytes // 8, device="cuda")
    target = torch.empty_like(source)
    calls: dict[str, Call] = {
        "nojit": lambda: flex_decoding(*given, enable_gqa=True, **words),
        # half of the bytes are read, half are written
        "copy": lambda: target.copy_(source),
    }
    if "SDPA" in rivals:
        calls["SDPA"] = lambda: functional.scaled_dot_product_attention(*given, enable_gqa=True)
    if "torch flex" in rivals:
        compiled = torch.compile(torchs_flex, fullgraph=True)
        calls["torch flex"] = lambda: compiled(*given, enable_gqa=True)
    return calls


def measure(shape: Shape, rounds: int, rivals: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Measure a shape and print one line; return bytes per time, and whether the results agree and promises are kept."""
    given, words = operands(shape)
    calls = contenders(shape, given, words, rivals)
    results = {name: call() for name, call in calls.items() if name != "copy"}
    apart = max(float((x.float() - results["nojit"].float()).abs().max()) for x in results.values())
    rates = {name: shape.moved_bytes / ms / 1e9 for name, ms in device_ms(calls, rounds).items()}
    kept = "SDPA" in rivals and shape in BARS
    good = apart <= APART and (
        not kept or (rates["nojit"] >= OF_SDPA * rates["SDPA"] and rates["nojit"] >= OF_COPY * rates["copy"])
    )
    ratios = ", ".join(f"{rates['nojit'] / rate:.2f} x {name}" for name, rate in rates.items() if name != "nojit")
    words_of = "  ".join(f"{name} {rate:5.2f}" for name, rate in rates.items())
    print(f"{shape.name:46s} {words_of}  ({ratios}){'' if good else '  MISSED' if apart <= APART else '  DIFFERS'}")
    return rates, good


def chart(groups: list[Group]) -> Chart:
    """Return a chart of every rate, grouped by shape."""
    return Chart("Decoding", f"TB/s of keys and values; {torch.cuda.get_device_name()}", tuple(groups))


def bars(rates: dict[str, float], label: str = "") -> tuple[Bar, ...]:
    """Return the chart's bars for a shape."""
    return tuple(Bar(f"{label}{who}", ((who, rate),), f"{rate:.2f}") for who, rate in rates.items())


def measure_all(rounds: int) -> tuple[list[Group], bool]:
    """Measure the promised shapes, the comparisons, and nojit's own lines."""
    groups, good = [], True
    for rivals, shapes in ((RIVALS, BESIDE), ((), ALONE)):
        for shape in shapes:
            rates, own = measure(shape, rounds, rivals)
            groups.append(Group(shape.name, bars(rates)))
            good &= own
    return groups, good


def measure_sweep(rounds: int) -> tuple[list[Group], bool]:
    """Measure one query over batches and sequence lengths; equal totals of keys share a group of the chart."""
    drawn: dict[int, tuple[Bar, ...]] = {}
    good = True
    for shape in SWEEP:
        rates, own = measure(shape, rounds, RIVALS[:1])
        drawn[shape.kv_len] = (*drawn.get(shape.kv_len, ()), *bars(rates, f"batch {shape.batch}, "))
        good &= own
        torch.cuda.empty_cache()
    return [Group(f"{kv_len} keys", each) for kv_len, each in drawn.items()], good


def main() -> None:
    """Measure every shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--sweep", action="store_true", help="one query over batches and numbers of keys")
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    print("TB/s of keys and values")
    groups, good = (measure_sweep if given.sweep else measure_all)(given.rounds)
    if given.svg:
        given.svg.write_text(svg(chart(groups)), encoding="utf-8")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
