"""Time pointwise operators against a copy and torch's eager operators, in one run: shares of bandwidth, bars, and a chart.

    python benchmarks/pointwise.py BUNDLES [--rounds 30] [--only operators,shapes,small,others] [--svg FILE] [--compile]

Operands are random bf16. `operators` has many operators at one shape; `shapes` has two at many shapes of 32 MiB per operand or
more; `small` has the same two at shapes of 1 to 64 tokens; `others` has transposed, unaligned and strided operands, without
bars. Each call runs in a CUDA graph after an L2 flush, contenders take turns, and figures are medians of device time. The copy
moves as many bytes as the operator must read and write. `--compile` adds torch.compile(mode="max-autotune"); it needs Triton
and takes minutes. Exits 1 if a result differs from torch's by more than rounding, or if one of `operators` or `shapes` is
below 0.95 of the copy or 0.8 of torch's speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from contest import OURS, Promise, Row, arguments, report
from timing import compiled, race
from torch import Tensor
from torch.nn import functional

PROMISES = {
    (group, other): Promise(least=least)
    for group in ("operators", "shapes")
    for other, least in (("copy", 0.95), ("torch", 0.8))
}
GROUPS = ("operators", "shapes", "small", "others")
APART = 0.02
ROWS, WIDTH = 8192, 4096
SHAPES = (
    (4096, 4096),
    (2048, 14336),
    (8192, 8192),
    (8192, 14336),
    (4096, 28672),
    (1 << 20, 16),
    (1 << 20, 128),
    (1 << 24,),
    (1 << 28,),
)
"""A square, the widths of models of 4k and 8k and of their FFN, heads and skinny shapes, and vectors."""
SMALL = tuple((tokens, width) for width in (4096, 14336, 28672) for tokens in (1, 16, 64))


@dataclass(frozen=True)
class Case:
    """One call of an operator, and of torch's."""

    name: str
    operands: tuple[Tensor, ...]
    ours: Callable[..., Tensor]
    torchs: Callable[..., Tensor]


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Compute swiglu with torch's operators."""
    return functional.silu(gate) * up


def random(*shape: int) -> Tensor:
    """Return a random operand."""
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def dense() -> Iterator[Case]:
    """List operators over one shape: flat, by rows, broadcast along either dimension."""
    from nojit.kernels import pointwise

    x, y, z = (random(ROWS, WIDTH) for _ in range(3))
    gate, up = random(ROWS, 2 * WIDTH).chunk(2, -1)
    yield Case("relu", (x,), pointwise.relu, torch.relu)
    yield Case("gelu", (x,), pointwise.gelu, functional.gelu)
    yield Case("tanh", (x,), pointwise.tanh, torch.tanh)
    yield Case("exp", (x,), pointwise.exp, torch.exp)
    yield Case("mul", (x, y), pointwise.mul, torch.mul)
    yield Case("div", (x, y), pointwise.div, torch.div)
    yield Case("geglu", (x, y), pointwise.geglu, lambda gate, up: functional.gelu(gate) * up)
    yield Case("add_gelu", (x, y), pointwise.add_gelu, lambda x, y: functional.gelu(x + y))
    yield Case("addcmul", (x, y, z), pointwise.addcmul, torch.addcmul)
    yield Case("lerp", (x, y, z), pointwise.lerp, torch.lerp)
    yield Case("swiglu of chunks", (gate, up), pointwise.swiglu, swiglu)
    yield Case("relu of half heads", (random(ROWS, 64, 128)[..., :64],), pointwise.relu, torch.relu)
    yield Case("mul by a row", (x, random(WIDTH)), pointwise.mul, torch.mul)
    yield Case("mul by a column", (x, random(ROWS, 1)), pointwise.mul, torch.mul)
    yield Case("mul by one element", (x, random(1)), pointwise.mul, torch.mul)


def others() -> Iterator[Case]:
    """List calls with transposed, unaligned or strided operands."""
    from nojit.kernels import pointwise

    x = random(ROWS, WIDTH)
    yield Case("mul by a transpose", (x, random(WIDTH, ROWS).t()), pointwise.mul, torch.mul)
    yield Case("mul, unaligned", (random(ROWS, WIDTH + 1)[:, 1:], x), pointwise.mul, torch.mul)
    yield Case("relu of every other", (random(ROWS, 2 * WIDTH)[:, ::2],), pointwise.relu, torch.relu)


def over(shapes: Sequence[tuple[int, ...]]) -> Iterator[Case]:
    """List a single operator of torch, and a chain, over shapes."""
    from nojit.kernels import pointwise

    for shape in shapes:
        x, y = random(*shape), random(*shape)
        words = " x ".join(map(str, shape))
        yield Case(f"add, {words}", (x, y), pointwise.add, torch.add)
        yield Case(f"swiglu, {words}", (x, y), pointwise.swiglu, swiglu)


def cases(group: str) -> Iterator[Case]:
    """List the cases of a group."""
    if group == "operators":
        return dense()
    return others() if group == "others" else over(SHAPES if group == "shapes" else SMALL)


def measure(group: str, case: Case, rounds: int, compile_too: bool) -> Row:
    """Check the results of a case, and time it."""
    result, expected = case.ours(*case.operands), case.torchs(*case.operands)
    if not torch.isclose(result.float(), expected.float(), rtol=APART, atol=APART, equal_nan=True).all():
        raise SystemExit(f"{group}, {case.name}: differs from torch's result")
    moved = sum(tensor.numel() * tensor.itemsize for tensor in (*case.operands, result))
    del result, expected
    # a multiple of 16 bytes: a copy of an odd length is slow
    source = torch.randint(0, 255, (moved // 2 // 16 * 16,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    calls: dict[str, Callable[[], Tensor]] = {
        "copy": lambda: target.copy_(source),
        OURS: lambda: case.ours(*case.operands),
        "torch": lambda: case.torchs(*case.operands),
    }
    if compile_too:
        fused = compiled(case.torchs)
        calls["compiled"] = lambda: fused(*case.operands)
    return Row(group, case.name, race(calls, rounds, f"{group}, {case.name}"), 0, moved)


def list_rows(only: Sequence[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the requested groups, one case after the other."""
    for group in only:
        for case in cases(group):
            yield measure(group, case, rounds, compile_too)
        torch.cuda.empty_cache()


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    given = arguments(__doc__, GROUPS, rounds=30)
    torch.manual_seed(0)
    where = f"us of bf16, operators at {ROWS} x {WIDTH}; {torch.cuda.get_device_name()}"
    with torch.no_grad():
        rows = list_rows(given.only, given.rounds, given.compile)
        report(rows, PROMISES, "Pointwise operators", where, given.svg)


if __name__ == "__main__":
    main()
