"""Time grouped products of mixture-of-experts layers, in one run: ratios, bars, and a chart.

    python benchmarks/grouped_mm.py BUNDLES [--rounds 8] [--only deepseek,mixtral,qwen,deepseek_fp8,...] [--svg FILE] [--compile]

Each group of shapes is one layer of a model, for 16 to 16,384 tokens that a random router sends to experts: evenly, by Zipf's law,
or to half of the experts only. Operands are bf16; or e4m3 with scales of rows and columns (`_fp8`), or of blocks (`_blocks`).
Contenders are torch's grouped product (it has none for blocks), one dense product with as many rows (of e4m3: torch._scaled_mm with
scales of rows and columns), and a copy of as many bytes as must move: of the weights only those of experts with rows. The slower of
the latter two bounds the speed. Operands are random. Each call runs in a CUDA graph after an L2 flush, contenders take turns, and figures are medians of device
time. Exits 1 if a result is wrong, if the geometric mean of a group's ratios to the bound is below 0.9, or a ratio below 0.7.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from contest import OURS, Promise, Row, arguments, report
from timing import check, compiled, race
from torch import Tensor

BOUND = "bound"
"""The slower of a dense product and a copy."""
LAYERS = {"deepseek": (256, 8, 2048, 7168), "mixtral": (8, 2, 14336, 4096), "qwen": (128, 8, 768, 2048)}
"""Experts, experts of a token, N, K."""
GROUPS = (*LAYERS, *(f"{layer}_fp8" for layer in LAYERS), "deepseek_blocks")
PROMISES = {(group, BOUND): Promise(mean=0.9, least=0.7) for group in LAYERS}
TOKENS = (16, 64, 256, 1024, 4096, 16384)
ROUTERS = ("even", "zipf", "half")
APART = 0.02
"""Largest error, as a share of the largest value."""


@dataclass(frozen=True)
class Shape:
    """One grouped product."""

    name: str
    lengths: tuple[int, ...]
    """Rows of each group."""
    n: int
    k: int
    kind: str = ""
    """Kind of operands: bf16 if empty; e4m3 with scales of rows and columns (``fp8``) or of blocks (``blocks``)."""

    @property
    def rows(self) -> int:
        """Rows of all groups."""
        return sum(self.lengths)

    @property
    def moved_bytes(self) -> int:
        """Bytes of operands and result, of the weights only those of groups with rows."""
        full = sum(length > 0 for length in self.lengths)
        element_bytes = 1 if self.kind else 2
        return element_bytes * (self.rows * self.k + full * self.n * self.k) + 2 * self.rows * self.n


def routed(tokens: int, experts: int, chosen: int, router: str, seed: int = 0) -> tuple[int, ...]:
    """Return the number of rows that each expert gets, if every token goes to `chosen` different ones."""
    source = torch.Generator().manual_seed(seed)
    order = torch.randperm(experts, generator=source)
    weights = torch.ones(experts)
    if router == "zipf":
        weights[order] = 1.0 / torch.arange(1, experts + 1)
    elif router == "half":
        weights[order[: max(1, experts // 2)]] = 0.0
    # the largest of these are a draw without replacement (Efraimidis and Spirakis 2006)
    keys = torch.rand(tokens, experts, generator=source).log() / weights
    picked = keys.topk(min(chosen, experts), dim=1).indices
    return tuple(torch.bincount(picked.flatten(), minlength=experts).tolist())


def shape_of(group: str, tokens: int, router: str) -> Shape:
    """Return a layer's product for so many tokens."""
    layer, _, kind = group.partition("_")
    experts, chosen, n, k = LAYERS[layer]
    return Shape(f"{tokens} tokens, {router}", routed(tokens, experts, chosen, router), n, k, kind)


def operands(shape: Shape) -> tuple[Tensor, ...]:
    """Return rows, weights as layers store them, the scales of both if they are fp8, and the ends of groups."""
    experts, dtype = len(shape.lengths), torch.float8_e4m3fn if shape.kind else torch.bfloat16
    a = torch.randn(shape.rows, shape.k, device="cuda", dtype=torch.bfloat16).to(dtype)
    weights = torch.empty(experts, shape.n, shape.k, device="cuda", dtype=dtype)
    # fp8 weights use their range, and scales undo it
    std = 1.0 if shape.kind else shape.k**-0.5
    for each in weights:
        each.copy_(torch.randn(shape.n, shape.k, device="cuda", dtype=torch.bfloat16) * std)
    high, wide = -(-shape.k // 128), -(-shape.n // 128)
    sides = {
        "": (),
        "fp8": ((shape.rows,), (experts, shape.n)),
        "blocks": ((shape.rows, high), (experts, wide, high)),
    }[shape.kind]
    scales = [(torch.rand(side, device="cuda") + 0.5) * shape.k**-0.25 for side in sides]
    if shape.kind == "blocks":
        scales[1] = scales[1].mT
    return a, weights.mT, *scales, torch.tensor(shape.lengths, device="cuda").cumsum(0).int()


def contenders(shape: Shape, given: Sequence[Tensor]) -> dict[str, Callable[[], Tensor]]:
    """Return the calls to compare nojit's with."""
    a, b, *scales, offs = given
    source = torch.empty(shape.moved_bytes // 2, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    copy = {"copy": lambda: target.copy_(source)}
    # torch 2.9's only interfaces are private
    if not shape.kind:
        return {"torch": lambda: torch._grouped_mm(a, b, offs=offs), "dense": partial(torch.mm, a, b[0])} | copy  # noqa: SLF001 - as above
    torchs = {"torch": lambda: torch._scaled_grouped_mm(a, b, *scales, offs, out_dtype=torch.bfloat16)}  # noqa: SLF001 - as above
    ends = torch.ones(shape.rows, 1, device="cuda"), torch.ones(1, shape.n, device="cuda")
    dense = {"dense": lambda: torch._scaled_mm(a, b[0], *ends, out_dtype=torch.bfloat16)}  # noqa: SLF001 - as above
    return (torchs if shape.kind == "fp8" else {}) | dense | copy


def exact(given: Sequence[Tensor], rows: slice, place: int) -> Tensor:
    """Return the product of some rows of one group in fp32."""
    from nojit.kernels.products.fp8 import spread

    a, b, *scales, _ = given
    left, right = a[rows].float(), b[place].float()
    if scales:
        of_a, of_b = scales[0][rows], scales[1][place]
        left = left * spread(of_a if of_a.dim() > 1 else of_a[:, None], left)
        right = right * spread(of_b if of_b.dim() > 1 else of_b[None], right)
    return left @ right


def measure(group: str, shape: Shape, rounds: int, compile_too: bool) -> Row:
    """Time a product, and check its result."""
    from nojit.kernels.grouped_mm import grouped_mm
    from nojit.kernels.scaled_grouped_mm import scaled_grouped_mm

    given = operands(shape)
    ours = scaled_grouped_mm if shape.kind else grouped_mm
    calls: dict[str, Callable[[], Tensor]] = {OURS: lambda: ours(*given)} | contenders(shape, given)
    if compile_too and not shape.kind:
        tuned = compiled(lambda *given: torch._grouped_mm(*given[:2], offs=given[2]))  # noqa: SLF001 - as above
        calls["compiled"] = lambda: tuned(*given)
    ms = race(calls, rounds, f"{group}, {shape.name}")
    start = 0
    for place, length in enumerate(shape.lengths):
        if length and place % 7 == 0:
            rows = slice(start, start + min(length, 256))
            check(f"{group}, {shape.name}", calls[OURS]()[rows], exact(given, rows, place), APART)
        start += length
    dense, copy = ms.pop("dense"), ms.pop("copy")
    ms[BOUND] = max(dense or 0.0, copy or 0.0)
    return Row(group, shape.name, ms, 2 * shape.rows * shape.n * shape.k, shape.moved_bytes)


def drawn(draw: random.Random, kind: str = "") -> Shape:
    """Draw a layer and the number of tokens. `kind`: that of `Shape`."""
    experts = draw.choice((8, 16, 32, 64, 128, 256))
    n, k = (128 * draw.randint(2, 32) for _ in range(2))
    tokens, router = round(2 ** draw.uniform(0, 14)), draw.choice(ROUTERS)
    lengths = routed(tokens, experts, draw.choice((1, 2, 4, 8)), router, draw.randrange(1 << 30))
    return Shape(f"{tokens} tokens to {experts}, {router}, {n} x {k}", lengths, n, k, kind)


def list_rows(only: Sequence[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the requested groups, one after the other."""
    for group in only:
        for tokens in TOKENS:
            for router in ROUTERS:
                yield measure(group, shape_of(group, tokens, router), rounds, compile_too)
                torch.cuda.empty_cache()


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    given = arguments(__doc__, GROUPS, rounds=8)
    torch.manual_seed(0)
    rows = list_rows(given.only, given.rounds, given.compile)
    report(rows, PROMISES, "Grouped products", f"bf16 and e4m3; {torch.cuda.get_device_name()}", given.svg)


if __name__ == "__main__":
    main()
