"""Time each operator of a language model, and its share of the time of a prompt and of a token.

    python benchmarks/language_model.py BUNDLES [--rounds 12] [--compile] [--svg FILE] [--json FILE]

The model has the shape of common 8B models: 32 layers of width 4096, 32 query heads of dimension 128 over 8 key heads, an inner
width of 14336, and 128,256 tokens; random bf16 weights. Each operator runs alone on random operands, in a CUDA graph after an
L2 flush; contenders take turns. Its median device time is multiplied by its number of calls per pass. Not included: writing
keys and values to the cache, the host, and time saved by operands that are still in the L2.

Contenders are torch's eager operators (library kernels, or several small kernels), nojit's operators where they exist, and with
``--compile`` torch.compile's for parts of several operators, which it fuses. The last row of a pass sums torch's times, and for
each other contender the times of the faster of it and torch. ``--json`` writes what docs/operators-in-llms.json holds, from which
``python -m tests.spec.generate`` writes the page's tables. Exits 1 if a result differs from torch's by more than rounding.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from nojit.aot.bench.plot import Bar, Chart, Group, svg
from timing import check, device_ms
from torch import Tensor
from torch.nn import functional

APART = 0.02
"""Largest error, as a share of the largest value."""

Result = Tensor | tuple[Tensor, ...]
Call = Callable[[], Result]
Function = Callable[..., Result]


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder."""

    layers: int = 32
    width: int = 4096
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    inner: int = 14336
    tokens: int = 128_256


@dataclass(frozen=True)
class Phase:
    """One pass: a prompt, or the next token of several sequences."""

    batch: int
    length: int
    """Tokens of each sequence in the pass."""
    seen: int
    """Tokens of each sequence after the pass."""

    @property
    def label(self) -> str:
        """The pass in words."""
        if self.length == 1:
            return f"decode, batch {self.batch}, {self.seen} seen"
        return f"prefill, {self.batch} x {self.length}"


PHASES = (
    Phase(1, 2048, 2048),
    Phase(1, 8192, 8192),
    Phase(1, 1, 4096),
    Phase(16, 1, 4096),
    Phase(64, 1, 8192),
)


@dataclass(frozen=True)
class Part:
    """An operator of the model."""

    name: str
    count: int
    """Calls per pass."""
    torchs: Function
    ours: Function | None
    operands: tuple[Tensor, ...]
    fusible: bool = False
    """Whether it is several operators that torch.compile fuses."""


@dataclass(frozen=True)
class Timed:
    """An operator, and the total time of its calls in a pass."""

    name: str
    ms: dict[str, float]
    """Times by contender."""

    def better(self, other: str) -> float:
        """The time of the faster of torch's eager operator and another contender, if there is one."""
        return min(self.ms["torch"], self.ms.get(other, self.ms["torch"]))


def rotate(q: Tensor, k: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate pairs of dimensions by position (Su et al. 2021, https://arxiv.org/abs/2104.09864).

    Args:
        q: [batch, heads, tokens, dim].
        k: [batch, key heads, tokens, dim].
        cosines: [tokens, dim], both halves alike.
        sines: as `cosines`.
    """

    def turned(x: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        return x * cosines + torch.cat((-other, one), -1) * sines

    return turned(q), turned(k)


def gate_and_up(x: Tensor, w: Tensor) -> Tensor:
    """Project to gate and up, and gate.

    Args:
        x: [tokens, width].
        w: [2 * inner, width], the rows of the gate first.
    """
    gate, up = functional.linear(x, w).chunk(2, -1)
    return functional.silu(gate) * up


def parts(model: Model, phase: Phase, device: str = "cuda") -> Iterator[Part]:
    """List the operators of a pass, in order; operands are created lazily."""
    from nojit.kernels.bmm import mm
    from nojit.kernels.gated_mm import gated_mm
    from nojit.kernels.norm import add_rms_norm, rms_norm
    from nojit.kernels.rotary import rotary_qk

    one = model
    rows, dtype = phase.batch * phase.length, torch.bfloat16

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=dtype)

    def projection(name: str, count: int, height: int, depth: int, width: int) -> Part:
        return Part(
            name, count, functional.linear, lambda x, w: mm(x, w.t()), (random(height, depth), random(width, depth))
        )

    hidden = (rows, one.width)
    ids = torch.randint(one.tokens, (rows,), device=device)
    yield Part("embedding", 1, functional.embedding, None, (ids, random(one.tokens, one.width)))

    def norm(x: Tensor, w: Tensor) -> Tensor:
        return functional.rms_norm(x, (one.width,), w)

    def add_and_norm(x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return norm(total, w), total

    yield Part("first norm", 1, norm, rms_norm, (random(*hidden), random(one.width)), True)
    yield projection("projection to q, k, v", one.layers, rows, one.width, (one.heads + 2 * one.kv_heads) * one.dim)
    q, k = (random(phase.batch, phase.length, count, one.dim).transpose(1, 2) for count in (one.heads, one.kv_heads))
    tables = [random(phase.length, one.dim // 2).repeat(1, 2) for _ in range(2)]

    def rotary(q: Tensor, k: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
        halves = (table[:, : one.dim // 2] for table in (cosines, sines))
        query, key = rotary_qk(q.transpose(1, 2), k.transpose(1, 2), *halves)
        return query.transpose(1, 2), key.transpose(1, 2)

    yield Part("rotary embedding", one.layers, rotate, rotary, (q, k, *tables), True)
    yield attention(model, phase, device)
    yield projection("projection of attention", one.layers, rows, one.heads * one.dim, one.width)
    yield Part(
        "residual and norm", 2 * one.layers, add_and_norm, add_rms_norm,
        (random(*hidden), random(*hidden), random(one.width)), True,
    )  # fmt: skip
    yield Part(
        "gate and up", one.layers, gate_and_up, lambda x, w: gated_mm(x, w.t()),
        (random(rows, one.width), random(2 * one.inner, one.width)), True,
    )  # fmt: skip
    yield projection("projection down", one.layers, rows, one.inner, one.width)
    yield projection("projection to tokens", 1, phase.batch, one.width, one.tokens)
    yield Part("choice of a token", 1, lambda x: x.argmax(-1), None, (random(phase.batch, one.tokens),))


def attention(model: Model, phase: Phase, device: str) -> Part:
    """Return the attention operator: of a prompt to itself, or of one token to all before it."""
    from nojit.kernels.flash_attention import flash_attention
    from nojit.kernels.flex_decoding import flex_decoding

    causal = phase.length > 1

    def torchs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    def prompts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flash_attention(q, k, v, is_causal=True)

    def tokens(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_decoding(q, k, v, enable_gqa=True)

    q, k, v = (
        torch.randn(phase.batch, heads, length, model.dim, device=device, dtype=torch.bfloat16)
        for heads, length in ((model.heads, phase.length), *[(model.kv_heads, phase.seen)] * 2)
    )
    return Part("attention", model.layers, torchs, prompts if causal else tokens, (q, k, v))


def listed(result: Result) -> tuple[Tensor, ...]:
    """Return a result as a tuple of tensors."""
    return result if isinstance(result, tuple) else (result,)


def measure(part: Part, rounds: int, compile_too: bool) -> Timed:
    """Check the results, and time them."""
    calls: dict[str, Call] = {"torch": lambda: part.torchs(*part.operands)}
    expected = calls["torch"]()
    if part.ours is not None:
        ours = part.ours
        calls["nojit"] = lambda: ours(*part.operands)
        for got, right in zip(listed(calls["nojit"]()), listed(expected), strict=True):
            check(part.name, got, right, APART)
    if compile_too and part.fusible:
        torch.compiler.reset()
        tuned = torch.compile(part.torchs, dynamic=False)
        calls["compiled"] = lambda: tuned(*part.operands)
    ms = device_ms(calls, rounds)
    return Timed(part.name, {name: time * part.count for name, time in ms.items()})


def table(phase: Phase, timed: list[Timed]) -> str:
    """Return a pass as a Markdown table: times, shares of torch's pass, and the saving of the faster of torch and nojit."""
    names = list(dict.fromkeys(name for each in timed for name in each.ms))
    whole = sum(each.ms["torch"] for each in timed)
    lines = [
        f"### {phase.label[0].upper()}{phase.label[1:]}",
        "",
        f"| operator | share | {' | '.join(f'{name} ms' for name in names)} | the best saves of the pass |",
        f"|---|---|{'---|' * len(names)}---|",
    ]
    for each in timed:
        times = " | ".join(f"{each.ms[name]:.3f}" if name in each.ms else "" for name in names)
        torchs = each.ms["torch"]
        saved = torchs - each.better("nojit")
        lines.append(f"| {each.name} | {torchs / whole:.1%} | {times} | {saved / whole:.1%} |")
    sums = {name: sum(each.better(name) for each in timed) for name in names}
    times = " | ".join(f"{sums[name]:.3f}" for name in names)
    saved = whole - sums["nojit"]
    beside = f"; beside torch.compile {1 - sums['nojit'] / sums['compiled']:.1%}" if "compiled" in sums else ""
    lines.append(f"| all | | {times} | {saved / whole:.1%}{beside} |")
    return "\n".join(lines)


def chart(passes: dict[Phase, list[Timed]]) -> Chart:
    """Return a chart with bars for each pass: torch's operators, and the faster of each one and its contender."""
    groups = []
    for phase, timed in passes.items():
        torchs = tuple((each.name, each.ms["torch"]) for each in timed)
        shown = {"torch": torchs}
        for label, name in (("torch.compile", "compiled"), ("with nojit", "nojit")):
            if any(name in each.ms for each in timed):
                shown[label] = tuple((each.name, each.better(name)) for each in timed)
        bars = [Bar(name, made, f"{sum(ms for _, ms in made):.2f} ms") for name, made in shown.items()]
        groups.append(Group(phase.label, tuple(bars)))
    what = f"ms of device time for a pass, by operator; bf16, {torch.cuda.get_device_name()}"
    return Chart("Where a language model of 8B spends its time", what, tuple(groups))


def json_text(passes: dict[Phase, list[Timed]]) -> str:
    """Return the run as JSON: of each pass, the ms of each operator's calls by contender."""
    run = {
        "device": torch.cuda.get_device_name(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "torch": torch.__version__.partition("+")[0],
        "passes": {
            phase.label: {each.name: {name: round(ms, 4) for name, ms in each.ms.items()} for each in timed}
            for phase, timed in passes.items()
        },
    }
    return json.dumps(run, indent=1) + "\n"


def main() -> None:
    """Measure, print and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    passes: dict[Phase, list[Timed]] = {}
    with torch.no_grad():
        for phase in PHASES:
            passes[phase] = [measure(part, given.rounds, given.compile) for part in parts(Model(), phase)]
            print(table(phase, passes[phase]), flush=True)
            torch.cuda.empty_cache()
    if given.json:
        given.json.write_text(json_text(passes), encoding="utf-8")
    if given.svg:
        given.svg.write_text(svg(chart(passes)), encoding="utf-8")


if __name__ == "__main__":
    main()
