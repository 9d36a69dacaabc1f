"""Calls of rotary embeddings: every dtype, width, alignment, kind of pairs, norms, caches, and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from nojit.kernels.rotary import reference, rotary, rotary_qk, rotary_to_cache
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, view

_PAGE = 16
_POSITIONS = 4096


@dataclass(frozen=True)
class Case:
    """Operands of a call."""

    dtype: torch.dtype
    table: torch.dtype
    head_dim: int = 128
    rotary_dim: int = 128
    heads: tuple[int, int] = (32, 8)
    tokens: int = 333
    interleaved: bool = False
    has_norm: bool = False
    offset: int = 0
    """Elements by which each operand misses an aligned address."""
    kind: str = "pair"
    """``pair``, ``alone``, ``in place``, ``cache`` or ``gradient``."""

    @property
    def label(self) -> str:
        """Every fact."""
        return "rotary " + " ".join(f"{name}={getattr(self, name)}" for name in Case.__dataclass_fields__)

    def inputs(self) -> tuple[list[Tensor], dict[str, Any]]:
        """Make query, key, cos, sin and positions, and the words of the call."""
        made = [
            view((self.tokens, heads, self.head_dim), self.dtype, seed, offset=self.offset)
            for seed, heads in enumerate(self.heads)
        ]
        angles = view((_POSITIONS, self.rotary_dim // 2), torch.float32, 3)
        tables = [
            view(angles.shape, self.table, 4, offset=self.offset).copy_(values)
            for values in (angles.cos(), angles.sin())
        ]
        positions = torch.arange(self.tokens, device="cuda") * 7 % _POSITIONS
        words: dict[str, Any] = {"interleaved": self.interleaved}
        if self.has_norm:
            words["eps"] = 1e-5
            words |= {
                f"{name}_weight": view((self.head_dim,), self.dtype, seed, offset=self.offset)
                for seed, name in ((5, "query"), (6, "key"))
            }
        return [*made, *tables, positions], words

    def compute(self, ours: bool, wide: bool) -> Outputs:
        """Return the results, of the operators or of their references, in the case's dtype or in fp64."""
        operands, words = self.inputs()
        if wide:
            operands = [value.double() if value.is_floating_point() else value for value in operands]
            words = {name: value.double() if isinstance(value, Tensor) else value for name, value in words.items()}
        return self._compute(ours, operands, words)

    def _compute(self, ours: bool, operands: list[Tensor], words: dict[str, Any]) -> Outputs:
        query, key, cos, sin, positions = operands
        both = rotary_qk if ours else reference.rotary_qk
        if self.kind == "alone":
            return ((rotary if ours else reference.rotary)(query, cos, sin, positions.int(), **words),)
        if self.kind == "in place":
            return both(query, key, cos, sin, positions, **words, **({"inplace": True} if ours else {}))
        if self.kind == "gradient":
            leaves = [query, key, *(words[name] for name in words if name.endswith("weight"))]
            for leaf in leaves:
                leaf.requires_grad_()
            outs = both(query, key, cos, sin, positions, **words)
            grads = [view(tuple(out.shape), self.dtype, 8).to(out.dtype) for out in outs]
            return torch.autograd.grad(outs, leaves, grads)
        if self.kind == "cache":
            value = view((self.tokens, self.heads[1], self.head_dim), self.dtype, 9, offset=self.offset).to(query.dtype)
            pages = -(-self.tokens // _PAGE) + 3
            caches = [query.new_zeros(pages, _PAGE, self.heads[1], self.head_dim).transpose(1, 2) for _ in range(2)]
            order = torch.randperm(pages * _PAGE, generator=torch.Generator().manual_seed(1))[: self.tokens]
            order[::5] = -1
            into = rotary_to_cache if ours else reference.rotary_to_cache
            given = (query, key, value, cos, sin, positions, order.cuda(), *caches)
            turned = into(*given, **words, **({"return_key": True} if ours else {}))
            return *turned, *caches
        return both(query, key, cos, sin, positions, **words)

    def call(self) -> Call:
        """Return the call for the tests."""
        outputs = {"alone": 1, "cache": 4, "gradient": 4 if self.has_norm else 2}.get(self.kind, 2)
        return Call(
            self.label,
            lambda: self.compute(True, False),
            lambda: self.compute(False, True),
            lambda: self.compute(False, False),
            (3.0 if self.kind == "gradient" else 2.0,) * outputs,
        )


def cases() -> Iterator[Case]:
    tables = [(dtype, table) for dtype in DTYPES for table in dict.fromkeys((dtype, torch.float32))]
    kinds = itertools.cycle(("pair", "cache", "in place", "gradient"))
    for (dtype, table), width, interleaved, has_norm in itertools.product(
        tables, (64, 128, 256), (False, True), (False, True)
    ):
        yield Case(dtype, table, width, width, interleaved=interleaved, has_norm=has_norm, kind=next(kinds))
    # pairs alone take the flat kernel
    for (dtype, table), width in itertools.product(tables, (64, 128, 256)):
        yield Case(dtype, table, width, width, kind="cache", tokens=33)
    for dtype, kind, offset in itertools.product(DTYPES, ("pair", "cache", "in place", "gradient"), (0, 1)):
        # half of 20 columns, and 96 of 201: 8 divides neither
        for head_dim, rotary_dim in ((128, 20), (201, 96), (512, 512), (192, 64)):
            norms = {"has_norm": kind != "in place", "offset": offset, "kind": kind}
            yield Case(dtype, torch.float32, head_dim, rotary_dim, heads=(5, 1), tokens=77, **norms)
    for dtype in DTYPES:
        for tokens, heads in ((1, (32, 8)), (1, (1, 1)), (7, (40, 8)), (4096, (28, 4)), (1000, (1, 1))):
            yield Case(dtype, dtype, heads=heads, tokens=tokens)
        yield Case(dtype, dtype, kind="alone")


def rotary_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()
