"""Time flex attention, forward and backward, beside torch's compiled one, in one run: TFLOP/s over what is seen, and ratios.

    python benchmarks/flex.py BUNDLES [--rounds 12] [--passes forward,backward] [--only window,alibi] [--shares] [--svg FILE]

Random bf16 operands; each call after a flush of the L2, the contenders in turn, medians of device time. Where a mask is one
that SDPA knows, none or a causal one, cuDNN's and FlashAttention-2's kernels are beside it too. Flops count the pairs in
blocks of 128 where anything is seen; a backward pass counts as 2.5 forward ones. The last table is time over the share of
active blocks, from all of them to 5%, which is to be a straight line within 10%, also of longer sequences: where it meets
no blocks, it is what rows cost apart from their blocks. Exits 1 if it is not, or if a result differs from torch's by more
than rounding explains.
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
    """A mask and a modification of scores, in torch's words and in nojit's."""

    name: str
    mask_mod: Any
    mod: Any = None
    dim: int = 128
    kv_heads: int = HEADS


def dilated(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
    """Let a query see every fourth key before it."""
    return ((q - k) % 4 == 0) & (k <= q)


def of_blocks(active: Tensor) -> Callable[..., Tensor]:
    """Let queries of a block see the keys of its active blocks."""

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
        return active[q // 128, k // 128]

    return seen


def cases() -> list[Case]:
    """List what is measured; the first four are what speed is promised for."""
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
    """List the cases that words ask for: the one that is named so, or else those whose names have it; all by default."""
    found = cases()
    names = {case.name for case in found}
    words = only.split(",")
    return [case for case in found if any(word == case.name if word in names else word in case.name for word in words)]


def share_cases(length: int) -> list[tuple[str, Case, float]]:
    """List masks of which nearly a share of all blocks is active: anywhere, in the same columns for all rows, or in a band.

    Each comes behind where its blocks are, and before the share.

    Queries that are computed at the same time read the same keys of all blocks and of equal columns, nearly the same of
    a band, and different ones of blocks that lie anywhere.
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
    """Make random queries, keys and values; as many in all, however long."""
    heads = (HEADS, case.kv_heads, case.kv_heads)
    batch = max(1, BATCH * LENGTH // length)
    return [torch.randn(batch, count, length, case.dim, device="cuda", dtype=torch.bfloat16) for count in heads]


def attentions(case: Case, length: int) -> tuple[dict[str, Callable[..., Tensor]], float]:
    """List who takes part, and the share of blocks that are active."""
    from nojit.kernels.flex import create_block_mask, flex_attention, forward
    from nojit.kernels.flex.call import modification_of
    from nojit.kernels.flex.masks import tables_of

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
        out, lse = forward.allocate_output(q, v)
        forward.launch_over_pointers(q, k, v, out, lse, case.dim**-0.5, tables, modification_of(case.mod), {})
        return out

    return {
        "nojit": lambda *x: flex_attention(*x, case.mod, mask, enable_gqa=gqa),
        POINTERS: pointers,
        "torch": lambda *x: compiled(*x, score_mod=case.mod, block_mask=theirs, enable_gqa=gqa),
        **of_sdpa(case, length),
    }, share


def of_sdpa(case: Case, length: int) -> dict[str, Callable[..., Tensor]]:
    """List torch's kernels of plain attention, if a case is that."""
    from nojit.kernels.flex import Causal

    causal = case.mask_mod == Causal()
    if case.mod is not None or not (case.mask_mod is None or causal):
        return {}
    plain = attention.attentions(attention.Shape(BATCH, HEADS, case.kv_heads, length, case.dim, causal))
    return {name: plain[name] for name in ("cuDNN", "FA2")}


def calls_of(case: Case, which: str, length: int = LENGTH) -> tuple[dict[str, Call], float]:
    """List the calls of one pass over one set of operands, and the flops of each."""
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
    """Differentiate without this package's kernel over tensor maps; flash attention's runs where it did."""
    from nojit.kernels.flex import backward_sm90

    with mock.patch.object(backward_sm90, "maps_of", return_value=None):
        return call()


def agree(calls: dict[str, Call]) -> bool:
    """Return whether all results are torch's, but for rounding."""
    expected = calls["torch"]()
    return all(
        float((value.float() - right.float()).abs().max()) <= APART * max(1.0, float(right.abs().max()))
        for call in calls.values()
        for value, right in zip(call(), expected, strict=True)
    )


def measure(case: Case, which: str, rounds: int) -> tuple[Group, bool]:
    """Print one line; return its rates to draw, and whether the results agree."""
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
    """The straight line nearest to some times, by their relative errors: ms of no blocks and, more, of all of them."""

    fixed_ms: float
    blocks_ms: float
    apart: float
    """How far the farthest time is from it, relative to that time."""

    @classmethod
    def nearest(cls, points: Sequence[tuple[float, float]]) -> Line:
        """Return the line of least squares through two points or more, each a share and ms."""
        # of (fixed + blocks * share) / ms - 1, the sum of squares is to be least
        ones, shares = sum(1 / ms for _, ms in points), sum(share / ms for share, ms in points)
        one_one, share_share = sum(1 / ms**2 for _, ms in points), sum((share / ms) ** 2 for share, ms in points)
        one_share = sum(share / ms**2 for share, ms in points)
        scale = one_one * share_share - one_share**2
        fixed = (ones * share_share - shares * one_share) / scale
        blocks = (shares * one_one - ones * one_share) / scale
        return cls(fixed, blocks, max(abs((fixed + blocks * share) / ms - 1) for share, ms in points))


def measure_shares(rounds: int, length: int) -> tuple[list[Group], bool]:
    """Print time over the share of active blocks, and how far it is from a line; return what to draw, and if all is well."""
    good = True
    whole: dict[str, float] = {}
    bars: dict[str, list[Bar]] = {}
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for where, case, share in share_cases(length):
        calls, _ = calls_of(case, "forward", length)
        good &= agree(calls)
        # as little as a host takes for a launch shows where few blocks are active
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
    """Draw what was measured, the contenders of a case together."""
    what = "rates over what is seen by mask, times by share of active blocks"
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
