"""Time pointwise operators as shares of the bandwidth of a copy, beside torch's eager operators, in one run.

    python benchmarks/pointwise.py BUNDLES [--rounds 30] [--compiled] [--svg FILE]

Random bf16 operands; each call after a flush of the L2, the contenders in turn, medians of device time by events. The copy
moves as many bytes as the operator has to read and write. With --compiled torch.compile takes part. Exits 1 if an operator
over dense operands is below 0.95 of the copy, or differs from torch's by more than rounding explains.
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
from torch.nn import functional

BAR = 0.95
APART = 0.02
ROWS, WIDTH = 8192, 4096


@dataclass(frozen=True)
class Case:
    """One call of an operator, and of torch's."""

    name: str
    operands: tuple[Tensor, ...]
    ours: Callable[..., Tensor]
    torchs: Callable[..., Tensor]
    held: bool = True
    """Whether the bar is for it: its operands are dense, or rows of such."""


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Compute it by torch's operators."""
    return functional.silu(gate) * up


def cases() -> list[Case]:
    """List the shape classes: flat, rows, broadcast along either dimension, turned, whatever."""
    from nojit.kernels import pointwise

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    x, y, z = (random(ROWS, WIDTH) for _ in range(3))
    wide = random(ROWS, 2 * WIDTH)
    gate, up = wide.chunk(2, -1)
    heads = random(ROWS, 64, 128)[..., :64]
    return [
        Case("relu", (x,), pointwise.relu, torch.relu),
        Case("gelu", (x,), pointwise.gelu, functional.gelu),
        Case("tanh", (x,), pointwise.tanh, torch.tanh),
        Case("exp", (x,), pointwise.exp, torch.exp),
        Case("mul", (x, y), pointwise.mul, torch.mul),
        Case("div", (x, y), pointwise.div, torch.div),
        Case("geglu", (x, y), pointwise.geglu, lambda gate, up: functional.gelu(gate) * up),
        Case("add_gelu", (x, y), pointwise.add_gelu, lambda x, y: functional.gelu(x + y)),
        Case("addcmul", (x, y, z), pointwise.addcmul, torch.addcmul),
        Case("lerp", (x, y, z), pointwise.lerp, torch.lerp),
        Case("swiglu of chunks", (gate, up), pointwise.swiglu, swiglu),
        Case("relu of half heads", (heads,), pointwise.relu, torch.relu),
        Case("mul by a row", (x, random(WIDTH)), pointwise.mul, torch.mul),
        Case("mul by a column", (x, random(ROWS, 1)), pointwise.mul, torch.mul),
        Case("mul by one element", (x, random(1)), pointwise.mul, torch.mul),
        Case("mul by a transpose", (x, random(WIDTH, ROWS).t()), pointwise.mul, torch.mul, held=False),
        Case("mul, unaligned", (random(ROWS, WIDTH + 1)[:, 1:], y), pointwise.mul, torch.mul, held=False),
        Case("relu of every other", (wide[:, ::2],), pointwise.relu, torch.relu, held=False),
    ]


def moved_bytes(case: Case, result: Tensor) -> int:
    """Count what has to be read and written at least."""
    return sum(tensor.numel() * tensor.element_size() for tensor in (*case.operands, result))


def measure(case: Case, rounds: int, *, compiled: bool) -> tuple[dict[str, float], bool]:
    """Return the times of all contenders, and whether the results agree."""
    ours, theirs = case.ours(*case.operands), case.torchs(*case.operands)
    agree = bool(torch.isclose(ours.float(), theirs.float(), rtol=APART, atol=APART, equal_nan=True).all())
    # whole vectors: a copy of an odd length is slow
    size = moved_bytes(case, ours) // 2 // 16 * 16
    source = torch.randint(0, 255, (size,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "nojit": lambda: case.ours(*case.operands),
        "torch": lambda: case.torchs(*case.operands),
    }
    if compiled:
        fused = torch.compile(case.torchs)
        calls["compiled"] = lambda: fused(*case.operands)
    for call in calls.values():
        call()
    return {name: 1e3 * ms for name, ms in device_ms(calls, rounds).items()}, agree


def group(case: Case, times: dict[str, float]) -> Group:
    """Draw one case: each contender's share of the copy's bandwidth."""
    shares = {name: times["copy"] / us for name, us in times.items()}
    bars = (Bar(name, ((name, share),), f"{share:.2f}, {times[name]:.1f} us") for name, share in shares.items())
    return Group(case.name, tuple(bars))


def chart(groups: list[Group]) -> Chart:
    """Draw every share, the contenders of a case together."""
    where = f"bf16, {ROWS} x {WIDTH}; {torch.cuda.get_device_name()}"
    return Chart("Pointwise operators", f"shares of the bandwidth of a copy; {where}", tuple(groups))


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    failed: list[str] = []
    groups: list[Group] = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, {ROWS} x {WIDTH}")
    with torch.no_grad():
        for case in cases():
            times, agree = measure(case, given.rounds, compiled=given.compiled)
            groups.append(group(case, times))
            share = times["copy"] / times["nojit"]
            shown = "  ".join(f"{name} {us:8.1f} us" for name, us in times.items())
            print(f"{case.name:<20} {shown}  share of copy {share:.3f}{'' if agree else '  DIFFERS'}", flush=True)
            if not agree or (case.held and share < BAR):
                failed.append(case.name)
    if given.svg:
        given.svg.write_text(svg(chart(groups)), encoding="utf-8")
    print(f"wrong, or below {BAR:g}: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
