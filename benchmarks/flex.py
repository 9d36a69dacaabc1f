"""Time flex attention, forward and backward, against torch's compiled one, in one run: TFLOP/s over visible pairs, and ratios.

    python benchmarks/flex.py BUNDLES [--rounds 12] [--passes forward,backward] [--only window,alibi] [--shares] [--svg FILE]

Operands are random bf16. Each call follows an L2 flush, contenders take turns, and figures are medians of device time. For
masks that SDPA supports, none or causal, cuDNN's and FlashAttention-2's kernels take part. Flops count the pairs in partly
visible blocks of 128; a backward pass counts as 2.5 forward passes. The last table is time over the share of active blocks,
from 100% to 5%. It must be a straight line within 10%, also for longer sequences; at no blocks the line shows the cost of
rows alone. Exits 1 if it is not straight, or if a result differs from torch's by more than rounding.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import attention
import torch
from nojit.aot.bench.plot import Bar, Chart, Group, svg
from timing import device_ms, time_ms
from torch import Tensor
from torch.nn.attention import flex_attention as torchs

APART = 0.02
STRAIGHT = 0.1
BATCH, HEADS, LENGTH = 4, 32, 4096
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05)
SHARED_LENGTHS = (LENGTH, 4 * LENGTH)
POINTERS = "nojit, pointers"

Call = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """A mask and a score modification, for torch and for nojit."""

    name: str
    mask_mod: Any
    mod: Any = None
    dim: int = 128
    kv_heads: int = HEADS


def dilated(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
    """Return whether a query sees a key: every fourth one before it."""
    return ((q - k) % 4 == 0) & (k <= q)


def of_blocks(active: Tensor) -> Callable[..., Tensor]:
    """Return the mask function that shows queries of a block the keys of its active blocks."""

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
        return active[q // 128, k // 128]

    return seen


def cases() -> list[Case]:
    """List the cases to measure; the first four have promised speed."""
    from nojit.kernels.flex import Alibi, Causal, Chain, Documents, Prefix, SoftCap, Window, alibi_slopes, and_masks

    places = torch.arange(LENGTH, device="cuda")
    documents = Documents((places >= 1000).int() + (places >= 1700).int() + (places >= 3300).int())
    slopes = alibi_slopes(HEADS, "cuda")
    return [
        Case("dense", None),
        Case("causal", Causal()),
        Case("window of 1024", Window(1024, 0)),
        Case("documents", documents),
        Case("causal documents", and_masks(Causal(), documents)),
        Case("prefix of 1024", Prefix(torch.tensor(1024, device="cuda"))),
        Case("dilated", dilated),
        Case("causal, 8 heads of keys", Causal(), kv_heads=8),
        Case("causal, D 64", Causal(), dim=64),
        Case("causal, alibi", Causal(), Alibi(slopes)),
        Case("causal, cap", Causal(), SoftCap(30.0)),
        Case("causal, cap and alibi", Causal(), Chain(SoftCap(30.0), Alibi(slopes))),
    ]


def chosen(only: str) -> list[Case]:
    """List the requested cases: exact names, or parts of names; all by default."""
    found = cases()
    names = {case.name for case in found}
    words = only.split(",")
    return [case for case in found if any(word == case.name if word in names else word in case.name for word in words)]


def share_cases(length: int) -> list[tuple[str, Case, float]]:
    """List masks with about the given shares of active blocks: at random, in the same columns for all rows, or in a band.

    Each is returned with the position of its blocks before it and the share after it. Concurrent queries read the same keys
    with full masks and equal columns, nearly the same with a band, and different ones with random blocks.
    """
    from nojit.kernels.flex import Window

    blocks = length // 128
    generator = torch.Generator("cuda").manual_seed(0)
    counts = [max(1, round(share * blocks)) for share in SHARES]
    found = []
    for count in counts:
        order = torch.rand(blocks, blocks, device="cuda", generator=generator).argsort(-1)
        case = Case(f"{count} of {blocks} blocks, anywhere", of_blocks(order < count))
        found.append(("anywhere", case, count / blocks))
    for count in counts[1:]:
        order = torch.rand(blocks, device="cuda", generator=generator).argsort()
        case = Case(f"{count} of {blocks} columns", of_blocks((order < count).expand(blocks, -1)))
        found.append(("the same keys for all queries", case, count / blocks))
    for count in counts[1:]:
        active = count * blocks - count * (count - 1) // 2
        case = Case(f"a band of {count} of {blocks} blocks", Window(128 * (count - 1), 0))
        found.append(("a band", case, active / blocks**2))
    return found


def operands(case: Case, length: int) -> list[Tensor]:
    """Return random queries, keys and values; the total length is the same for all lengths."""
    heads = (HEADS, case.kv_heads, case.kv_heads)
    batch = max(1, BATCH * LENGTH // length)
    return [torch.randn(batch, count, length, case.dim, device="cuda", dtype=torch.bfloat16) for count in heads]


def attentions(case: Case, length: int) -> tuple[dict[str, Callable[..., Tensor]], float]:
    """Return the contenders, and the share of active blocks."""
    from nojit.kernels.attention.outputs import allocate_output, allocate_sums
    from nojit.kernels.block_mask.masks import tables_of
    from nojit.kernels.flex import create_block_mask, flex_attention
    from nojit.kernels.flex import launch as flex_launch
    from nojit.kernels.score_mod.modification import modification_of

    mask, share = None, 1.0
    if case.mask_mod is not None:
        mask = create_block_mask(case.mask_mod, None, None, length, length, "cuda")
        share = 1.0 - mask.sparsity() / 100.0
    theirs = None if mask is None else torchs.create_block_mask(case.mask_mod, None, None, length, length, "cuda")
    torch.compiler.reset()
    compiled = torch.compile(torchs.flex_attention, fullgraph=True)
    gqa = case.kv_heads != HEADS
    tables = tables_of(mask, length, length, torch.device("cuda", torch.cuda.current_device()))

    def pointers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, lse = allocate_output(q, v), allocate_sums(q)
        flex_launch.launch_over_pointers(q, k, v, out, lse, case.dim**-0.5, tables, modification_of(case.mod), {})
        return out

    return {
        "nojit": lambda *x: flex_attention(*x, case.mod, mask, enable_gqa=gqa),
        POINTERS: pointers,
        "torch": lambda *x: compiled(*x, score_mod=case.mod, block_mask=theirs, enable_gqa=gqa),
        **of_sdpa(case, length),
    }, share


def of_sdpa(case: Case, length: int) -> dict[str, Callable[..., Tensor]]:
    """Return torch's kernels for plain attention, if the case is plain."""
    from nojit.kernels.flex import Causal

    causal = case.mask_mod == Causal()
    if case.mod is not None or not (case.mask_mod is None or causal):
        return {}
    plain = attention.attentions(attention.Shape(BATCH, HEADS, case.kv_heads, length, case.dim, causal))
    return {name: plain[name] for name in ("cuDNN", "FA2")}


def calls_of(case: Case, which: str, length: int = LENGTH) -> tuple[dict[str, Call], float]:
    """Return the calls of one pass over one set of operands, and the flops of each."""
    attends, share = attentions(case, length)
    given = operands(case, length)
    flops = 4 * given[0].shape[0] * HEADS * share * length**2 * case.dim
    if which == "forward":
        return {name: lambda attend=attend: (attend(*given),) for name, attend in attends.items()}, flops
    grad = torch.randn_like(given[0])
    calls: dict[str, Call] = {}
    for name, attend in attends.items():
        if name != POINTERS:
            own = tuple(value.detach().requires_grad_() for value in given)
            calls[name] = partial(torch.autograd.grad, attend(*own), own, grad, retain_graph=True)
    calls[POINTERS] = partial(over_pointers, calls["nojit"])
    return calls, 2.5 * flops


def over_pointers(call: Call) -> tuple[Tensor, ...]:
    """Differentiate without this package's TMA kernel; flash attention's TMA kernel runs where it did."""
    from nojit.kernels.flex import launch_sm90_bwd

    with mock.patch.object(launch_sm90_bwd, "maps_of", return_value=None):
        return call()


def agree(calls: dict[str, Call]) -> bool:
    """Return whether all results equal torch's up to rounding."""
    expected = calls["torch"]()
    return all(
        float((value.float() - right.float()).abs().max()) <= APART * max(1.0, float(right.abs().max()))
        for call in calls.values()
        for value, right in zip(call(), expected, strict=True)
    )


def measure(case: Case, which: str, rounds: int) -> tuple[Group, bool]:
    """Measure a case and print one line; return its rates for the chart, and whether the results agree."""
    calls, flops = calls_of(case, which)
    same = agree(calls)
    times = (device_ms if which == "forward" else time_ms)(calls, rounds)
    rates = {name: flops / ms / 1e9 for name, ms in times.items()}
    words = "  ".join(f"{name} {rate:4.0f}" for name, rate in rates.items())
    ratios = ", ".join(
        f"{rates['nojit'] / rate:.2f} x {name}" for name, rate in rates.items() if not name.startswith("nojit")
    )
    print(f"{which} {case.name}: {words}  ({ratios}){'' if same else '  DIFFERS'}", flush=True)
    del rates[POINTERS]
    bars = tuple(Bar(name, ((name, rate),), f"{rate:.0f} TFLOP/s") for name, rate in rates.items())
    return Group(f"{which}, {case.name}", bars), same


@dataclass(frozen=True)
class Line:
    """The line closest to some times, by relative error: ms for no blocks, and additional ms for all of them."""

    fixed_ms: float
    blocks_ms: float
    apart: float
    """The largest distance of a time from the line, relative to that time."""

    @classmethod
    def nearest(cls, points: Sequence[tuple[float, float]]) -> Line:
        """Return the least-squares line through two or more points, each a share and ms."""
        # minimizes the sum of squares of (fixed + blocks * share) / ms - 1
        ones, shares = sum(1 / ms for _, ms in points), sum(share / ms for share, ms in points)
        one_one, share_share = sum(1 / ms**2 for _, ms in points), sum((share / ms) ** 2 for share, ms in points)
        one_share = sum(share / ms**2 for share, ms in points)
        scale = one_one * share_share - one_share**2
        fixed = (ones * share_share - shares * one_share) / scale
        blocks = (shares * one_one - ones * one_share) / scale
        return cls(fixed, blocks, max(abs((fixed + blocks * share) / ms - 1) for share, ms in points))


def measure_shares(rounds: int, length: int) -> tuple[list[Group], bool]:
    """Print time over the share of active blocks, and its distance from a line; return the chart's groups, and success."""
    good = True
    whole: dict[str, float] = {}
    bars: dict[str, list[Bar]] = {}
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for where, case, share in share_cases(length):
        calls, _ = calls_of(case, "forward", length)
        good &= agree(calls)
        # with few active blocks even the host's launch overhead would show
        times = device_ms({name: calls[name] for name in ("nojit", "torch")}, rounds)
        whole = whole or times
        notes = {name: f"{ms:.3f} ms, {ms / (whole[name] * share):.2f} x its share" for name, ms in times.items()}
        print(f"forward {length} long, {case.name}: {'  '.join(map(' '.join, notes.items()))}", flush=True)
        bars.setdefault(where, []).extend(
            Bar(f"{share:.0%}, {name}", ((name, ms),), notes[name]) for name, ms in times.items()
        )
        for name, ms in times.items():
            points.setdefault((where, name), [(1.0, whole[name])] if share < 1 else []).append((share, ms))
    for (where, name), measured in points.items():
        line = Line.nearest(measured)
        kept = line.apart <= STRAIGHT
        good &= kept or name != "nojit"
        verdict = f": {'kept' if kept else 'MISSED'}, <= {STRAIGHT:.0%}" if name == "nojit" else ""
        words = f"{line.fixed_ms:.3f} ms + {line.blocks_ms:.3f} ms x share, within {line.apart:.1%}"
        print(f"forward {length} long, {where}, {name}: {words}{verdict}", flush=True)
    return [Group(f"forward, {length} long, {where}", tuple(each)) for where, each in bars.items()], good


def chart(groups: list[Group]) -> Chart:
    """Return a chart of all figures, grouped by case."""
    what = "rates over visible pairs by mask, times by share of active blocks"
    return Chart("Flex attention", f"{what}; bf16, {torch.cuda.get_device_name()}", tuple(groups))


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--passes", default="forward,backward")
    parser.add_argument("--only", default="", help="names of cases, or words that names have; all by default")
    parser.add_argument("--shares", action="store_true", help="only time over the share of active blocks")
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    passes = given.passes.split(",")
    groups: list[Group] = []
    agreed = True
    for which in passes:
        for case in [] if given.shares else chosen(given.only):
            group, same = measure(case, which, given.rounds)
            groups.append(group)
            agreed &= same
    if "forward" in passes and not given.only:
        for length in SHARED_LENGTHS:
            drawn, good = measure_shares(given.rounds, length)
            groups += drawn
            agreed &= good
    if given.svg:
        given.svg.write_text(svg(chart(groups)), encoding="utf-8")
    sys.exit(0 if agreed else 1)


if __name__ == "__main__":
    main()
