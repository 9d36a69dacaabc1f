"""Time flex attention, forward and backward, beside torch's compiled one, in one run: TFLOP/s over what is seen, and ratios.

    python benchmarks/flex.py BUNDLES [--rounds 12] [--passes forward,backward] [--only window,alibi] [--shares] [--plot flex.svg]

Random bf16 operands; each call after a flush of the L2, the contenders in turn, medians of device time. Flops
count the pairs in blocks of 128 where anything is seen; a backward pass counts as 2.5 forward ones. The last table is
time over the share of active blocks, from all of them to 5%, which is to be a straight line, also of longer sequences: what a
row of blocks costs apart from its blocks counts less there. Exits 1 if a result differs
from torch's by more than rounding explains.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from timing import device_ms, time_ms
from torch import Tensor
from torch.nn.attention import flex_attention as torchs

APART = 0.02
BATCH, HEADS, LENGTH = 4, 32, 4096
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05)
SHARED_LENGTHS = (LENGTH, 4 * LENGTH)

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


def share_cases(length: int) -> list[tuple[Case, float]]:
    """List masks of which nearly a share of all blocks is active: anywhere, in the same columns for all rows, or in a band.

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
        found.append((Case(f"{count} of {blocks} blocks, anywhere", of_blocks(order < count)), count / blocks))
    for count in counts[1:]:
        order = torch.rand(blocks, device="cuda", generator=generator).argsort()
        found.append(
            (Case(f"{count} of {blocks} columns", of_blocks((order < count).expand(blocks, -1))), count / blocks)
        )
    for count in counts[1:]:
        active = count * blocks - count * (count - 1) // 2
        band = Case(f"a band of {count} of {blocks} blocks", Window(128 * (count - 1), 0))
        found.append((band, active / blocks**2))
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
        "nojit, pointers": pointers,
        "torch": lambda *x: compiled(*x, score_mod=case.mod, block_mask=theirs, enable_gqa=gqa),
    }, share


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
        if name != "nojit, pointers":
            own = tuple(value.detach().requires_grad_() for value in given)
            calls[name] = partial(torch.autograd.grad, attend(*own), own, grad, retain_graph=True)
    calls["nojit, pointers"] = partial(over_pointers, calls["nojit"])
    return calls, 2.5 * flops


def over_pointers(call: Call) -> tuple[Tensor, ...]:
    """Differentiate without this package's kernel over tensor maps; flash attention's runs where it did."""
    from nojit.kernels.flex import backward_sm90

    with mock.patch.object(backward_sm90, "maps_of", return_value=None):
        return call()


def agree(calls: dict[str, Call]) -> bool:
    """Say whether all results are torch's, but for rounding."""
    expected = calls["torch"]()
    return all(
        float((value.float() - right.float()).abs().max()) <= APART * max(1.0, float(right.abs().max()))
        for call in calls.values()
        for value, right in zip(call(), expected, strict=True)
    )


def measure(case: Case, which: str, rounds: int, rows: list[tuple[str, float]]) -> bool:
    """Print one line; say whether the results agree."""
    calls, flops = calls_of(case, which)
    same = agree(calls)
    times = (device_ms if which == "forward" else time_ms)(calls, rounds)
    words = "  ".join(f"{name} {flops / ms / 1e9:4.0f}" for name, ms in times.items())
    ratio = times["torch"] / times["nojit"]
    rows.append((f"{which}, {case.name}", ratio))
    print(f"{which} {case.name}: {words}  ({ratio:.2f} x torch){'' if same else '  DIFFERS'}", flush=True)
    return same


def measure_shares(rounds: int, length: int) -> bool:
    """Print time over the share of active blocks, and how far each is from a line through nothing and all of them."""
    same = True
    whole: dict[str, float] = {}
    for case, share in share_cases(length):
        calls, _ = calls_of(case, "forward", length)
        same &= agree(calls)
        # as little as a host takes for a launch shows where few blocks are active
        times = device_ms({name: calls[name] for name in ("nojit", "torch")}, rounds)
        whole = whole or times
        words = "  ".join(
            f"{name} {ms:.3f} ms, {ms / (whole[name] * share):.2f} x its share" for name, ms in times.items()
        )
        print(f"forward {length} long, {case.name}: {words}", flush=True)
    return same


def plot(rows: list[tuple[str, float]], path: Path) -> None:
    """Draw the ratios as bars."""
    height, left, scale = 22, 260, 220
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 3 * scale}" height="{height * (len(rows) + 1)}">']
    parts.append('<style>text{font:13px sans-serif}</style><rect width="100%" height="100%" fill="white"/>')
    for place, (name, ratio) in enumerate(rows):
        top = place * height + 4
        parts.append(f'<text x="4" y="{top + 13}">{name}</text>')
        parts.append(f'<rect x="{left}" y="{top}" width="{ratio * scale:.0f}" height="16" fill="#4878a8"/>')
        parts.append(f'<text x="{left + ratio * scale + 4:.0f}" y="{top + 13}">{ratio:.2f}</text>')
    parts.append(
        f'<line x1="{left + scale}" x2="{left + scale}" y1="0" y2="{height * len(rows)}" stroke="black"/></svg>'
    )
    path.write_text("\n".join(parts))


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--passes", default="forward,backward")
    parser.add_argument("--only", default="", help="words, any of which a case's name has; all by default")
    parser.add_argument("--shares", action="store_true", help="only time over the share of active blocks")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    rows: list[tuple[str, float]] = []
    # not lazily: every case is measured, also after one that differs
    passes = given.passes.split(",")
    words = given.only.split(",")
    chosen = [] if given.shares else [case for case in cases() if any(word in case.name for word in words)]
    agreed = [measure(case, which, given.rounds, rows) for which in passes for case in chosen]
    if "forward" in passes and not given.only:
        agreed += [measure_shares(given.rounds, length) for length in SHARED_LENGTHS]
    if given.plot is not None:
        plot(rows, given.plot)
    sys.exit(0 if all(agreed) else 1)


if __name__ == "__main__":
    main()
