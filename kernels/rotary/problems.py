"""Rotary embeddings to tune and measure, by number of tokens, heads and columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.problem import Roles, Work, check_use, draws, generator, requested, rounding
from nojit.kernels.rotary import reference
from nojit.kernels.rotary.checks import Operands
from nojit.kernels.rotary.launch import rotate

__all__ = ["ROLES", "RotaryProblem", "problems"]

ROLES: Final[Mapping[str, Roles]] = {
    "rotary": Roles(("EIGHTHS", "ROWS", "BLOCK"), (), ("INTERLEAVED", "NORM")),
    "rotary_flat": Roles(("VECTORS",), (), ()),
}
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_MODELS: Final = ((32, 8, 128), (64, 8, 64), (16, 16, 128), (8, 1, 256), (28, 4, 128))
"""Query heads, key heads and columns of a head."""
_BARS: Final = ((8192, 32, 8, 128), (2048, 32, 8, 128), (1, 32, 8, 128), (64, 32, 8, 128))
_DRAWN: Final = {"held_out": 12, "fresh": 12}
_MOST_TOKENS: Final = 16_384


@dataclass(frozen=True, slots=True)
class RotaryProblem:
    """The rotation of query and key, of all columns, with or without norms."""

    dtype: str
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    has_norm: bool = False

    @property
    def name(self) -> str:
        """Number of tokens, heads and columns, and whether heads are normalized."""
        sizes = f"{self.tokens} x {self.heads} and {self.kv_heads} x {self.head_dim}"
        return f"{sizes}{' with norms' if self.has_norm else ''}"

    @property
    def kernel(self) -> str:
        """Name of the kernel in its manifest."""
        return "rotary" if self.has_norm else "rotary_flat"

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports: the number of tokens."""
        return "decode" if self.tokens <= 256 else "prefill"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        return {name: getattr(self, name) for name in ("tokens", "heads", "kv_heads", "head_dim", "has_norm")}

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected result in fp32."""
        dtype, source = _DTYPES[self.dtype], generator(self.name, device)

        def random(*sizes: int) -> torch.Tensor:
            return torch.randn(sizes, generator=source, device=device, dtype=dtype)

        query, key = (random(self.tokens, heads, self.head_dim) for heads in (self.heads, self.kv_heads))
        cos, sin = (random(self.tokens, self.head_dim // 2) for _ in range(2))
        positions = torch.randperm(self.tokens, generator=source, device=device)
        weights = [random(self.head_dim) for _ in range(2)] if self.has_norm else [None, None]
        given = (query, key, None, weights[0], weights[1], cos, sin, positions, None, None, None)
        operands = Operands(*given, 1e-6, False)
        launch, (turned, rotated) = requested(lambda: rotate(operands))
        assert rotated is not None  # noqa: S101 - there is a key
        wide = [None if weight is None else weight.float() for weight in weights]
        expected = reference.rotary_qk(
            query.float(), key.float(), cos.float(), sin.float(), positions,
            query_weight=wide[0], key_weight=wide[1], eps=1e-6,
        )  # fmt: skip
        elements = query.numel() + key.numel()
        return launch.work(
            outputs=(turned, rotated),
            expected=expected,
            tolerances=tuple(rounding(value, dtype) for value in expected),
            moved_bytes=(2 * elements + cos.numel() + sin.numel()) * dtype.itemsize,
            flops=3 * elements,
        )


def problems(use: str) -> tuple[RotaryProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return tuple(RotaryProblem("bf16", *shape, has_norm) for shape in _shapes(use) for has_norm in (False, True))


def _shapes(use: str) -> tuple[tuple[int, int, int, int], ...]:
    if use == "bars":
        return _BARS
    if use not in _DRAWN:
        return tuple((tokens, *model) for model in _MODELS for tokens in (1, 16, 128, 1024, 8192))
    rng = draws("rotary", use)
    found: dict[tuple[int, int, int, int], None] = {}
    while len(found) < _DRAWN[use]:
        kv_heads, dim = rng.choice((1, 2, 4, 8)), rng.choice((32, 64, 96, 128, 192, 256))
        tokens = round(2 ** rng.uniform(0, math.log2(_MOST_TOKENS)))
        found[tokens, kv_heads * rng.choice((1, 3, 4, 7)), kv_heads, dim] = None
    return tuple(found)
