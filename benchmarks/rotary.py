"""Time rotary embeddings against a copy, eager torch, Liger's kernel and torch.compile, in one run: us and ratios.

    python benchmarks/rotary.py BUNDLES [--rounds 10] [--only pair,...] [--compile] [--svg FILE]

Operands are random bf16 and packed, as a projection to query, key and value writes them; positions are random. Each call runs
in a CUDA graph after an L2 flush, contenders take turns, and figures are medians of device time. The copy moves query and key,
and with a cache the value. Groups: `pair` writes new tensors, `inplace` the operands, `norm` normalizes heads first, and
`cache` writes keys and values to pages. Liger runs if it is installed. Exits 1 if a result is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from contest import OURS, Row, arguments, report
from timing import check, compiled, race
from torch import Tensor

APART = 0.02
GROUPS = ("pair", "inplace", "norm", "cache")
MOST = 8192
PAGE = 16


@dataclass(frozen=True)
class Shape:
    """Tokens, heads and columns."""

    tokens: int
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128

    @property
    def name(self) -> str:
        """The sizes in words."""
        return f"{self.tokens} x ({self.heads} + {self.kv_heads}) x {self.dim}"

    def moved_bytes(self, group: str) -> int:
        """Return the bytes of query, key, with a cache the value, each read and written, and of rows of cos and sin."""
        heads = self.heads + (2 if group == "cache" else 1) * self.kv_heads
        return 2 * self.tokens * self.dim * (2 * heads + 1)


SHAPES = (
    *(Shape(tokens) for tokens in (1, 16, 64, 256, 1024, 2048, 8192)),
    *(Shape(tokens, 64, 8, 64) for tokens in (1, 1024, 8192)),
    *(Shape(tokens, 8, 1, 256) for tokens in (64, 8192)),
    Shape(4096, 40, 10, 80),
)


def torchs(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate as eager models do."""
    cosines, sines = cos[positions][:, None], sin[positions][:, None]

    def turned(x: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        return torch.cat((one * cosines - other * sines, other * cosines + one * sines), -1)

    return turned(query), turned(key)


def contenders(shape: Shape, group: str, compile_too: bool) -> dict[str, Callable[[], Any]]:
    """Return the calls of a group by contender, after a check of nojit's result."""
    from nojit.kernels.rotary import rotary_qk, rotary_to_cache

    heads = (shape.heads, shape.kv_heads, shape.kv_heads)
    packed = torch.randn(shape.tokens, sum(heads), shape.dim, device="cuda", dtype=torch.bfloat16)
    query, key, value = packed.split(heads, 1)
    angles = torch.rand(MOST, shape.dim // 2, device="cuda") * 6
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    positions = torch.randperm(MOST, device="cuda")[: shape.tokens]
    weights = {f"{name}_weight": torch.rand(shape.dim, device="cuda").bfloat16() for name in ("query", "key")}
    own = weights if group == "norm" else {}
    given = query, key, cos, sin, positions
    normal = [query, key]
    if own:
        normal = [
            torch.nn.functional.rms_norm(x.float(), x.shape[-1:], w.float(), 1e-6)
            for x, w in zip(normal, own.values(), strict=True)
        ]
    right = torchs(*(each.float() for each in (*normal, cos, sin)), positions)
    for got, expected in zip(rotary_qk(*given, eps=1e-6, **own), right, strict=True):
        check(f"{group}, {shape.name}", got, expected, APART)
    # torch copies parts of packed rows at half the speed
    moved = (packed if group == "cache" else packed[:, : sum(heads[:2])]).contiguous()
    into = torch.empty_like(moved)
    calls: dict[str, Callable[[], Any]] = {
        OURS: lambda: rotary_qk(*given, eps=1e-6, **own),
        "copy": lambda: into.copy_(moved),
    }
    if group == "inplace":
        return calls | {OURS: lambda: rotary_qk(*given, inplace=True)}
    if group == "cache":
        slots = torch.randperm(shape.tokens, device="cuda")
        caches = [value.new_zeros(-(-shape.tokens // PAGE), PAGE, shape.kv_heads, shape.dim) for _ in range(2)]
        seen = [cache.transpose(1, 2) for cache in caches]
        flat = [cache.view(-1, shape.kv_heads, shape.dim) for cache in caches]

        def separately() -> None:
            _, rotated = torchs(*given)
            flat[0][slots], flat[1][slots] = rotated, value

        return calls | {
            OURS: lambda: rotary_to_cache(query, key, value, cos, sin, positions, slots, *seen),
            "torch": separately,
        }
    if group == "pair":
        calls["torch"] = lambda: torchs(*given)
        calls |= ligers(query, key, cos, sin, positions)
        if compile_too:
            tuned = compiled(torchs)  # type: ignore[arg-type]
            calls["compiled"] = lambda: tuned(*given)
        return calls

    def normalized() -> tuple[Tensor, Tensor]:
        rows = [
            torch.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-6) for x, w in zip(given[:2], own.values(), strict=True)
        ]
        return torchs(rows[0], rows[1], cos, sin, positions)

    return calls | {"torch": normalized}


def ligers(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> dict[str, Callable[[], Any]]:
    """Return Liger's kernel, which works in place, with tables gathered beforehand; nothing if it is not installed."""
    try:
        from liger_kernel.ops.rope import rope_forward
    except ImportError:
        return {}
    rows = [torch.cat((table[positions],) * 2, -1)[None].contiguous() for table in (cos, sin)]
    q, k = (x.contiguous()[None].transpose(1, 2) for x in (query, key))
    return {"Liger": lambda: rope_forward(q, k, *rows)}


def rows(groups: list[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the shapes of the groups."""
    for group in groups:
        for shape in SHAPES:
            calls = contenders(shape, group, compile_too)
            times = race(calls, rounds, f"{group}, {shape.name}")
            yield Row(group, shape.name, times, 0, shape.moved_bytes(group))
            torch.cuda.empty_cache()


if __name__ == "__main__":
    given = arguments(__doc__, GROUPS, 10)
    torch.manual_seed(0)
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    report(rows(given.only, given.rounds, given.compile), {}, "Rotary embeddings", device, given.svg)
