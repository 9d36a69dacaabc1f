"""Shapes of attention calls for tests, tuning and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from nojit.kernels.attention.band_masks import BandMask, band_mask_of
from nojit.kernels.problem import draws, spread

__all__ = ["PROBLEMS", "AttentionShape", "drawn", "drawn_wide"]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Sizes and mask of one attention call."""

    name: str
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    v_dim: int
    is_causal: bool = False
    causal_alignment: str = "top_left"

    @property
    def kind(self) -> str:
        """Class of the shape by its numbers of queries and keys: ``"decode"``, ``"chunk"``, ``"short"`` or ``"long"``."""
        if self.q_len <= 16:
            return "decode"
        if self.q_len < self.kv_len:
            return "chunk"
        return "short" if self.q_len <= 1024 else "long"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """All fields except the name, for the tuner."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "name"}

    @property
    def offset(self) -> int:
        """Distance from a query's index to the last key that it sees under a causal mask."""
        return self.kv_len - self.q_len if self.causal_alignment == "bottom_right" else 0

    @property
    def mask(self) -> BandMask:
        """The mask in the form that the kernels take."""
        return band_mask_of(self.q_len, self.kv_len, self.is_causal, self.causal_alignment, None, None)

    @property
    def pairs(self) -> int:
        """Number of (query, key) pairs that count as work; half of all in a square under a causal mask."""
        seen = self.q_len * self.kv_len
        if self.is_causal:
            diagonal = min(self.q_len, self.kv_len)
            seen -= diagonal * (diagonal - 1) // 2
        return self.batch * self.heads * seen

    @property
    def flops(self) -> int:
        """Floating-point operations of both products of the forward pass."""
        return 2 * self.pairs * (self.head_dim + self.v_dim)


def _small_calls() -> Iterator[AttentionShape]:
    """Yield calls with little parallel work, where the best tile depends on the number of programs."""
    for dim in (64, 128):
        for heads in (8, 32, 128):
            for q_len, kv_len in ((16, 128), (32, 512), (64, 128), (64, 1024), (128, 512), (256, 2048)):
                name = f"chunk of {q_len} at {kv_len}, {heads} heads, D {dim}"
                yield AttentionShape(name, 1, heads, heads, q_len, kv_len, dim, dim, True, "bottom_right")
            for length in (128, 256, 768):
                yield AttentionShape(f"{length}, {heads} heads, D {dim}", 1, heads, heads, length, length, dim, dim)
                causal = f"{length}, causal, {heads} heads, D {dim}"
                yield AttentionShape(causal, 1, heads, heads, length, length, dim, dim, is_causal=True)
            for kv_len in (512, 2048):
                name = f"decode of 8 x {heads} against {kv_len}, D {dim}"
                yield AttentionShape(name, 8, heads, heads, 2, kv_len, dim, dim)


PROBLEMS: Final = {
    "test": (
        AttentionShape("one query", 1, 1, 1, 1, 1, 16, 16),
        AttentionShape("tiles that fit", 1, 2, 2, 128, 128, 64, 64, is_causal=True),
        AttentionShape("ragged lengths", 2, 2, 1, 131, 77, 64, 64),
        AttentionShape("ragged, causal", 1, 4, 2, 77, 131, 32, 32, is_causal=True),
        AttentionShape(
            "ragged, causal at the end", 1, 2, 1, 77, 131, 32, 32, is_causal=True, causal_alignment="bottom_right"
        ),
        AttentionShape(
            "rows that see nothing", 1, 2, 2, 150, 70, 32, 32, is_causal=True, causal_alignment="bottom_right"
        ),
        AttentionShape("no keys", 1, 2, 2, 5, 0, 32, 32),
        AttentionShape("head of 40", 1, 2, 1, 33, 65, 40, 40, is_causal=True),
        AttentionShape("head of 96", 1, 2, 2, 40, 70, 96, 96),
        AttentionShape("head of 111", 1, 3, 1, 20, 30, 111, 111),
        AttentionShape("values wider than keys", 1, 2, 2, 20, 30, 24, 72),
        AttentionShape("latent attention", 1, 2, 1, 20, 70, 192, 128, is_causal=True),
        AttentionShape("head of 256", 1, 1, 1, 70, 70, 256, 256),
    ),
    "tune": (
        AttentionShape("prefill of 4k", 4, 32, 8, 4096, 4096, 128, 128, is_causal=True),
        AttentionShape("decode of 64 against 4k", 64, 32, 8, 1, 4096, 128, 128),
        AttentionShape("short, D 64", 16, 16, 16, 512, 512, 64, 64),
        AttentionShape("prefill of 2k, D 64", 8, 16, 16, 2048, 2048, 64, 64, is_causal=True),
        AttentionShape("encoder of 1k", 8, 16, 16, 1024, 1024, 128, 128),
        AttentionShape("chunk of 512 at 16k", 1, 32, 8, 512, 16384, 128, 128, True, "bottom_right"),
        AttentionShape("prompt of 256", 1, 32, 8, 256, 256, 128, 128, is_causal=True),
        AttentionShape("vision, D 64", 32, 12, 12, 196, 196, 64, 64),
        AttentionShape("prefill of 8k", 1, 32, 8, 8192, 8192, 128, 128, is_causal=True),
        AttentionShape("decode of 8 against 8k", 8, 32, 8, 1, 8192, 128, 128),
        AttentionShape("4k, D 64", 2, 16, 16, 4096, 4096, 64, 64),
        AttentionShape("prompt of 1k", 2, 32, 8, 1024, 1024, 128, 128, is_causal=True),
        AttentionShape("4k", 2, 32, 32, 4096, 4096, 128, 128),
        AttentionShape("speculation of 16 at 4k", 8, 32, 8, 16, 4096, 128, 128, True, "bottom_right"),
        AttentionShape("prefill of 512", 8, 32, 8, 512, 512, 128, 128, is_causal=True),
        AttentionShape("prefill of 4k, D 64", 4, 16, 16, 4096, 4096, 64, 64, is_causal=True),
        AttentionShape("text to image, D 64", 4, 20, 20, 4096, 77, 64, 64),
        AttentionShape("chunk of 2k at 8k", 1, 32, 8, 2048, 8192, 128, 128, True, "bottom_right"),
        AttentionShape("prefill of 16k, 8 heads", 1, 8, 8, 16384, 16384, 128, 128, is_causal=True),
        AttentionShape("encoder of 256", 32, 16, 16, 256, 256, 128, 128),
        AttentionShape("prompt of 128, D 64", 4, 12, 12, 128, 128, 64, 64, is_causal=True),
        AttentionShape("16k, D 64, 4 heads", 1, 4, 4, 16384, 16384, 64, 64),
        AttentionShape("edge: 2049 of 2049", 2, 16, 16, 2049, 2049, 128, 128, is_causal=True),
        AttentionShape("chunk of 128 at 4k", 2, 32, 8, 128, 4096, 128, 128, True, "bottom_right"),
        AttentionShape("decode of 64 against 1k, D 64", 64, 16, 16, 1, 1024, 64, 64),
        AttentionShape("2k", 4, 16, 16, 2048, 2048, 128, 128),
        AttentionShape("prompt of 1k, D 64", 4, 16, 16, 1024, 1024, 64, 64, is_causal=True),
        AttentionShape("encoder of 1k, D 64", 8, 16, 16, 1024, 1024, 64, 64),
        AttentionShape("chunk of 512 at 4k, D 64", 2, 16, 16, 512, 4096, 64, 64, True, "bottom_right"),
        AttentionShape("prefill of 8k, D 64", 1, 16, 16, 8192, 8192, 64, 64, is_causal=True),
        AttentionShape("decode of 4 against 1k", 4, 16, 4, 1, 1024, 128, 128),
        AttentionShape("512", 2, 16, 16, 512, 512, 128, 128),
        AttentionShape("prefill of 2k, D 64, 12 heads", 1, 12, 12, 2048, 2048, 64, 64, is_causal=True),
        AttentionShape("prefill of 512, D 64", 16, 12, 12, 512, 512, 64, 64, is_causal=True),
        AttentionShape("8k", 1, 16, 16, 8192, 8192, 128, 128),
        AttentionShape("2k, D 64", 4, 16, 16, 2048, 2048, 64, 64),
        AttentionShape("prompt of 512, 16 heads", 1, 16, 4, 512, 512, 128, 128, is_causal=True),
        AttentionShape("decode of 16 against 16k", 16, 8, 8, 1, 16384, 128, 128),
        AttentionShape("speculation of 4 at 2k", 32, 32, 8, 4, 2048, 128, 128, True, "bottom_right"),
        AttentionShape("chunk of 256 at 1k, D 64", 4, 12, 12, 256, 1024, 64, 64, True, "bottom_right"),
        AttentionShape("encoder of 512, D 64, 12 heads", 1, 12, 12, 512, 512, 64, 64),
        AttentionShape("2k, 16 heads", 1, 16, 16, 2048, 2048, 128, 128),
        AttentionShape("prefill of 2k, 16 heads", 1, 16, 16, 2048, 2048, 128, 128, is_causal=True),
        AttentionShape("8k, D 64", 1, 12, 12, 8192, 8192, 64, 64),
        AttentionShape("prefill of 256, D 64", 32, 16, 16, 256, 256, 64, 64, is_causal=True),
        AttentionShape("prefill of 2k", 8, 32, 8, 2048, 2048, 128, 128, is_causal=True),
        AttentionShape("text to image", 2, 24, 24, 4096, 512, 128, 128),
        AttentionShape("speculation of 16 at 1k, D 64", 16, 16, 16, 16, 1024, 64, 64, True, "bottom_right"),
        *_small_calls(),
    ),
    "bars": (
        AttentionShape("4k causal", 4, 32, 32, 4096, 4096, 128, 128, is_causal=True),
        AttentionShape("4k", 4, 32, 32, 4096, 4096, 128, 128),
        AttentionShape("16k causal", 1, 32, 32, 16384, 16384, 128, 128, is_causal=True),
        AttentionShape("4k causal, D 64", 4, 32, 32, 4096, 4096, 64, 64, is_causal=True),
    ),
}
"""Shapes by use: `test` is small enough for Triton's interpreter, `bars` has those with promised speed.

`tune` lists a coarse selection first: a tuner that runs out of time has then measured all classes of shapes.
"""

# number of random shapes for each use; those of `tune` follow the listed shapes
_DRAWN: Final = {"tune": 96, "held_out": 18, "fresh": 18}
# number of further shapes of `tune`, which fill the gaps between all others
_SPREAD: Final = 72
# number of random shapes with heads wider than 128
_WIDE: Final = {"tune": 48, "held_out": 9, "fresh": 9}
_KINDS: Final = ("square", "square", "causal", "causal", "chunk", "decode")
# most work of a random problem: about 2 ms on an H200
_MOST_FLOPS: Final = 8 * 10**11


def drawn(use: str) -> tuple[AttentionShape, ...]:
    """Draw random calls that decode, prefill in chunks, or read prompts of any length.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    rng = draws("flash_attention", use)
    known = {(shape.q_len, shape.kv_len, shape.batch * shape.heads) for shape in PROBLEMS["tune"]}
    found: dict[str, AttentionShape] = {}
    while len(found) < _DRAWN.get(use, 0):
        shape = _draw(rng, _KINDS[len(found) % len(_KINDS)])
        fits = shape.flops <= _MOST_FLOPS
        if fits and (shape.q_len, shape.kv_len, shape.batch * shape.heads) not in known:
            found[shape.name] = shape
    return (*found.values(), *(_between((*PROBLEMS["tune"], *found.values())) if use == "tune" else ()))


def drawn_wide(use: str) -> tuple[AttentionShape, ...]:
    """Draw random calls with heads wider than 128: only the kernel for sm_90 has several configs for them.

    `use`: purpose, as in `drawn`.
    """
    rng = draws("flash_attention wide", use)
    found: dict[str, AttentionShape] = {}
    while len(found) < _WIDE.get(use, 0):
        shape = _draw(rng, _KINDS[len(found) % len(_KINDS)], ((256, 256), (192, 192), (192, 128)))
        if shape.flops <= _MOST_FLOPS:
            found[shape.name] = shape
    return tuple(found.values())


def _between(known: Sequence[AttentionShape]) -> tuple[AttentionShape, ...]:
    """Draw calls whose tuning keys lie in the gaps between those of `known`."""
    rng = draws("flash_attention between", "tune")

    def draw() -> AttentionShape:
        while True:
            shape = _draw(rng, rng.choice(_KINDS))
            if shape.flops <= _MOST_FLOPS:
                return shape

    return spread(known, draw, _far, _SPREAD)


def _far(shape: AttentionShape, other: AttentionShape) -> float:
    """Return the distance between the tuning keys of two calls in octaves (log2); infinite for different cases."""
    if (shape.head_dim, shape.v_dim, shape.is_causal) != (other.head_dim, other.v_dim, other.is_causal):
        return math.inf
    return math.dist(_place(shape), _place(other))


def _place(shape: AttentionShape) -> tuple[float, ...]:
    sizes = (shape.q_len, shape.kv_len, shape.batch * shape.heads, shape.heads // shape.kv_heads)
    return tuple(map(math.log2, sizes))


def _draw(rng: Random, kind: str, dims: Sequence[tuple[int, int]] = ((64, 64), (128, 128))) -> AttentionShape:
    """Draw one call; `dims` are pairs of head dimensions of keys and of values."""
    dim, v_dim = rng.choice(dims)
    heads, batch = rng.choice((8, 12, 16, 24, 32, 40)), rng.choice((1, 2, 4, 8, 16))
    kv_heads = rng.choice((heads, heads // 4))
    length = round(2 ** rng.uniform(7, 13))
    q_len = length
    if kind == "chunk":
        q_len = round(length * rng.uniform(0.05, 0.5))
    elif kind == "decode":
        q_len, batch = rng.choice((1, 2, 4)), batch * 4
    causal = kind in {"causal", "chunk"}
    name = f"{kind} {batch} x {heads}/{kv_heads} x {q_len} x {length} x {dim}{'' if v_dim == dim else f'/{v_dim}'}"
    alignment = "bottom_right" if kind == "chunk" else "top_left"
    return AttentionShape(name, batch, heads, kv_heads, q_len, length, dim, v_dim, causal, alignment)
