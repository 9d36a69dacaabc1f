"""Calls of the decoding kernels to tune and measure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random
from typing import Any, Final

import torch
from nojit.kernels.attention.problem_results import Part, work
from nojit.kernels.block_mask.evaluation import MaskMod
from nojit.kernels.block_mask.masks import create_block_mask, tables_of
from nojit.kernels.flex_decoding.checks import Sizes
from nojit.kernels.flex_decoding.launch import Decoding, launch_attention, launch_merge, part_width, splits_for
from nojit.kernels.flex_decoding.mask_operands import MaskOperands, band_of_words, mask_of_tables
from nojit.kernels.problem import (
    Roles,
    Work,
    check_use,
    draws,
    generator,
    listed_and_drawn,
    requested,
    rounding,
    spread,
)
from nojit.kernels.score_mod.modification import NO_MOD
from torch import Tensor

__all__ = ["PROBLEMS", "ROLES", "DecodingProblem", "MergeProblem", "Shape", "problems"]

_CASE: Final = ("SCORE_MOD", "PAGED", "BLOCK_D", "BLOCK_DV")
ROLES: Final[Mapping[str, Roles]] = {
    "flex_decoding": Roles(("BLOCK_M", "BLOCK_N"), (), _CASE),
    "flex_decoding_blocks": Roles(("BLOCK_M", "BLOCK_N"), (), _CASE),
    "flex_decoding_one": Roles(("BLOCK_M", "BLOCK_N"), (), ("PAGED", "BLOCK_D", "BLOCK_DV")),
    "flex_decoding_merge": Roles(("BLOCK_S",), (), ("BLOCK_DV",)),
}
_UNIT: Final = 128
"""Lengths and splits are multiples of this, so that splits start at the same keys for every tile size."""
_FACTOR: Final = 2
"""Allowed error, as a multiple of the error of torch's own operators."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and mask of one call."""

    name: str
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    """Number of keys, a multiple of 128."""
    dim: int
    mask: str = "none"
    """``none``, ``causal`` (last query at last key), ``dilated`` (every other key), ``every other`` (block of 128)."""
    page: int = 0
    """Keys in a page; 0 without pages."""

    @property
    def sizes(self) -> Sizes:
        """Sizes in the form that launches take."""
        bits = max(self.page, 1).bit_length() - 1
        return Sizes(
            self.batch, self.heads, self.kv_heads, self.q_len, self.kv_len, self.dim, self.dim, bits
        )  # fmt: skip

    @property
    def listed(self) -> int:
        """Number of keys that programs read for each row."""
        return self.kv_len // 2 if self.mask == "every other" else self.kv_len

    @property
    def rows(self) -> int:
        """Number of query rows that read the same keys."""
        return self.q_len * self.heads // self.kv_heads


def _dilated(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
    return (kv_idx - q_idx) % 2 == 0


def _every_other(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
    return kv_idx // _UNIT % 2 == 0


_MODS: Final[Mapping[str, MaskMod]] = {"dilated": _dilated, "every other": _every_other}


def _mask(shape: Shape, device: str) -> MaskOperands:
    mask_mod = _MODS.get(shape.mask)
    if mask_mod is None:
        return band_of_words(shape.mask == "causal", None, None)
    mask = create_block_mask(mask_mod, None, None, shape.q_len, shape.kv_len, device)
    return mask_of_tables(tables_of(mask, shape.q_len, shape.kv_len, mask.kv_indices.device))


PROBLEMS: Final[Mapping[str, tuple[Shape, ...]]] = {
    "tune": (
        Shape("16 against 8k", 16, 32, 8, 1, 8192, 128),
        Shape("64 against 4k", 64, 32, 8, 1, 4096, 128),
        Shape("1 against 64k", 1, 32, 8, 1, 65536, 128),
        Shape("32 against 2k, D 64", 32, 32, 8, 1, 2048, 64),
        Shape("8 against 8k in pages of 16", 8, 32, 8, 1, 8192, 128, page=16),
        Shape("4 against 32k", 4, 32, 4, 1, 32768, 128),
        Shape("speculation of 4, 16 against 4k", 16, 32, 8, 4, 4096, 128, "causal"),
        Shape("128 against 1k", 128, 32, 8, 1, 1024, 128),
        Shape("64 against 4k in pages of 64", 64, 32, 8, 1, 4096, 128, page=64),
        Shape("speculation of 8, 8 against 8k", 8, 64, 8, 8, 8192, 128, "causal"),
        Shape("1 against 8k, D 64", 1, 16, 16, 1, 8192, 64),
        Shape("16 against 4k, one head of keys", 16, 32, 1, 1, 4096, 128),
        Shape("chunk of 32 against 16k", 2, 32, 8, 32, 16384, 128, "causal"),
        Shape("1 against 128k", 1, 32, 8, 1, 131072, 128),
        Shape("32 against 4k, 40 heads", 32, 40, 8, 1, 4096, 128),
        Shape("256 against 512, D 64", 256, 16, 4, 1, 512, 64),
        Shape("chunk of 100 against 4k", 4, 16, 16, 100, 4096, 64, "causal"),
        Shape("8 against 2k", 8, 32, 8, 1, 2048, 128),
        Shape("speculation of 4 in pages of 16", 32, 32, 8, 4, 4096, 128, "causal", page=16),
        Shape("2 against 16k, 8 heads of 8", 2, 8, 8, 1, 16384, 128),
        *(
            Shape(f"{batch} against {kv_len >> 10}k", batch, 32, 8, 1, kv_len, 128)
            for kv_len in (1024, 4096, 16384, 65536)
            for batch in (1, 4, 16, 64, 256)
            if batch * kv_len <= 1 << 20 and (batch, kv_len) not in {(1, 65536), (64, 4096)}
        ),
        *(
            Shape(f"{mask}, {batch} against {kv_len}, {q_len} queries, D {dim}", batch, 32, 8, q_len, kv_len, dim, mask)
            for mask in _MODS
            for batch, kv_len, q_len, dim in (
                (16, 8192, 1, 128),
                (64, 4096, 1, 128),
                (1, 65536, 1, 128),
                (8, 4096, 4, 64),
                (2, 16384, 8, 128),
                (32, 2048, 1, 64),
                (4, 8192, 64, 128),
                (1, 16384, 2, 64),
            )
        ),
    ),
    "bars": (
        Shape("16 against 8k", 16, 32, 8, 1, 8192, 128),
        Shape("64 against 4k", 64, 32, 8, 1, 4096, 128),
        Shape("1 against 64k", 1, 32, 8, 1, 65536, 128),
    ),
}
_DRAWN: Final = {"tune": 70, "held_out": 16, "fresh": 16}
"""Number of random shapes for each use and each of `_KINDS`; ``tune`` has the listed shapes as well."""
_KINDS: Final = (("none", "causal"), tuple(_MODS))
"""Masks for the kernel that reads intervals, and masks for the kernel that reads lists of blocks."""


def _tuned() -> list[Shape]:
    """Return the listed and the random shapes of the use ``tune``."""
    found: list[Shape] = []
    for masks in _KINDS:
        listed = [one for one in PROBLEMS["tune"] if one.mask in masks]
        draw = partial(_draw, masks=masks)
        if masks == tuple(_MODS):
            listed += _crossed(masks)
        found += listed_and_drawn(
            "tune", f"flex_decoding/{masks[0]}", listed, draw, counts=_DRAWN, key=lambda one: one.name
        )
    return found


def _crossed(masks: Sequence[str]) -> list[Shape]:
    """Draw a batch size and a length for each number of queries and each group size, on which the best tile depends most.

    `masks`: names of the masks to draw for.
    """
    numbers = draws("flex_decoding/crossed", "tune")
    crossed = product(masks, (64, 128), (1, 4, 5, 8), (1, 2, 5, 16, 64))
    return [
        _shape(
            _batch(numbers),
            numbers.choice((1, 2, 4, 8)),
            group,
            q_len=q_len,
            kv_len=_kv_len(numbers),
            dim=dim,
            mask=mask,
        )
        for mask, dim, group, q_len in crossed
    ]


def _drawn(use: str) -> tuple[Shape, ...]:
    """Draw random shapes, with tuning keys in the gaps between those of ``tune``.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    numbers = draws("flex_decoding", use)
    count = _DRAWN.get(use, 0)
    found: dict[str, Shape] = {}
    for masks in _KINDS:
        known = [one for one in PROBLEMS["tune"] if one.mask in masks]
        found |= {one.name: one for one in spread(known, lambda masks=masks: _draw(numbers, masks), _far, count)}  # type: ignore[misc]  # bound now
    known, single = [one for one in PROBLEMS["tune"] if one.q_len == 1], draws("flex_decoding/one", use)
    found |= {one.name: one for one in spread(known, lambda: _draw_one(single), _far, count)}
    return tuple(found.values())


def _draw_one(numbers: Random) -> Shape:
    """Draw a shape of `flex_decoding_one`, without pages."""
    kv_heads, group = numbers.choice((1, 2, 4, 8)), numbers.choice((1, 4, 5, 8))
    return _shape(_batch(numbers), kv_heads, group, q_len=1, kv_len=_kv_len(numbers), dim=numbers.choice((64, 128)))


def _draw(numbers: Random, masks: Sequence[str]) -> Shape:
    mask, dim = numbers.choice(masks), numbers.choice((64, 128))
    kv_heads, group = numbers.choice((1, 2, 4, 8)), numbers.choice((1, 4, 5, 8))
    batch, kv_len = _batch(numbers), _kv_len(numbers)
    # with more rows of a causal mask, small and large key tiles would end in different splits
    q_len = numbers.choice((1, 1, 1, 2, 5, 16, 32 if mask == "causal" else 64))
    page = numbers.choice((0, 0, 16, 32, 128)) if mask not in _MODS else 0
    return _shape(batch, kv_heads, group, q_len=q_len, kv_len=kv_len, dim=dim, mask=mask, page=page)


def _batch(numbers: Random) -> int:
    return round(2 ** numbers.uniform(0.0, 6.0))


def _kv_len(numbers: Random) -> int:
    return 2 * _UNIT * round(2 ** numbers.uniform(0.0, 8.0))


def _shape(batch: int, kv_heads: int, group: int, **rest: Any) -> Shape:
    """Return a shape with `group` query heads per key head, named by its sizes."""
    shape = Shape("", batch, kv_heads * group, kv_heads, **rest)
    sizes = f"{batch} x {shape.heads}/{kv_heads} x {shape.q_len} against {shape.kv_len}"
    return replace(shape, name=f"{shape.mask}, {sizes}, D {shape.dim}, pages of {shape.page}")


def _far(shape: Shape, other: Shape) -> float:
    sizes = ((each.rows, each.kv_len, each.batch * each.kv_heads, each.dim) for each in (shape, other))
    apart = sum(abs(math.log2(a / b)) for a, b in zip(*sizes, strict=True))
    return apart + 2.0 * (shape.mask != other.mask) + (shape.page != other.page)


@dataclass(frozen=True, slots=True)
class _Problem:
    """One call of one kernel; base class of the problems."""

    shape: Shape
    kernel: str
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        """The name of the shape."""
        return self.shape.name

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports: the number of rows that read the same keys."""
        return "few rows" if self.shape.rows <= 16 else "many rows"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        return {name: getattr(self.shape, name) for name in Shape.__slots__ if name != "name"}

    def decoding(self, device: str) -> Decoding:
        """Return random operands on `device`; pages are in random order."""
        problem, source = self.shape, generator(self.shape.name, device)

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=source, device=device, dtype=torch.bfloat16)

        q, table = random(problem.batch, problem.heads, problem.q_len, problem.dim), None
        lead, rows = problem.batch, problem.kv_len
        if problem.page:
            lead, rows = problem.batch * problem.kv_len // problem.page, problem.page
            table = torch.randperm(lead, generator=source, device=device).view(problem.batch, -1).to(torch.int32)
        k, v = (random(lead, problem.kv_heads, rows, problem.dim) for _ in range(2))
        return Decoding(q, k, v, None, table, _mask(problem, device), NO_MOD, problem.sizes, problem.dim**-0.5)

    def splits(self, call: Decoding) -> int:
        """Return about as many splits as the operator would choose, all of the same length."""
        units = self.shape.listed // _UNIT
        return max(splits for splits in range(1, splits_for(call) + 1) if units % splits == 0)


class DecodingProblem(_Problem):
    """One call of an attention kernel."""

    __slots__ = ()

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected results of the first and the last head."""
        shape, call = self.shape, self.decoding(device)
        splits = self.splits(call)
        out = torch.empty_like(call.q)
        parts = None
        if splits > 1:
            parts = torch.empty((*call.q.shape[:3], splits, part_width(shape.dim)), device=device)
        launch, _ = requested(lambda: launch_attention(call, out, None, parts, splits, {}))
        looked_at = []
        for batch, head in ((0, 0), (shape.batch - 1, shape.heads - 1)):
            exact, torchs = (
                _split_results(call, shape, (batch, head), splits, to) for to in (torch.float32, out.dtype)
            )
            written = out[batch, head][:, None] if parts is None else parts[batch, head, ..., : shape.dim]
            tolerance = _FACTOR * float((torchs.float() - exact).abs().max()) + rounding(exact, out.dtype)
            looked_at.append(Part(written, exact, tolerance))
        share = shape.listed / shape.kv_len
        moved = sum(each.numel() * each.element_size() for each in (call.k, call.v)) * share
        written_to = out if parts is None else parts
        flops = 4 * shape.batch * shape.heads * shape.q_len * shape.listed * shape.dim
        result = work(launch, looked_at, (call.q, written_to), flops)
        return replace(result, moved_bytes=result.moved_bytes + int(moved))


def _split_results(call: Decoding, shape: Shape, place: tuple[int, int], splits: int, to: torch.dtype) -> Tensor:
    """Compute attention of one head over each split separately: [M, splits, D]."""
    batch, head = place
    kv_head = head * shape.kv_heads // shape.heads
    k, v = (
        rows[batch, kv_head] if call.page_table is None else rows[call.page_table[batch].long(), kv_head].flatten(0, 1)
        for rows in (call.k, call.v)
    )
    keys = torch.arange(shape.kv_len, device=k.device)
    if shape.mask == "every other":
        keys = keys[_every_other(keys, keys, keys, keys)]
    queries = torch.arange(shape.q_len, device=k.device)[:, None]
    results = []
    for own in keys.chunk(splits):
        scores = (call.q[batch, head].to(to) @ k[own].to(to).T).float() * call.scale
        if shape.mask == "causal":
            scores = scores.masked_fill(own > queries + shape.kv_len - shape.q_len, -math.inf)
        elif shape.mask == "dilated":
            scores = scores.masked_fill(~_dilated(own, own, queries, own), -math.inf)
        results.append(torch.softmax(scores, -1).to(to) @ v[own].to(to))
    return torch.stack(results, 1)


class MergeProblem(_Problem):
    """One call of the kernel that merges the parts of splits."""

    __slots__ = ()

    def prepare(self, device: str) -> Work:
        """Return random parts on `device`, and the expected output."""
        problem, source = self.shape, generator(self.shape.name, device)
        splits = merged_splits(problem)
        parts_shape = (problem.batch, problem.heads, problem.q_len, splits, part_width(problem.dim))
        parts = torch.randn(parts_shape, generator=source, device=device)
        out = torch.empty((*parts_shape[:3], problem.dim), dtype=torch.bfloat16, device=device)
        launch, _ = requested(lambda: launch_merge(parts, out, None, problem.sizes))
        weights = torch.softmax(parts[..., problem.dim] * math.log(2), -1)
        exact = (parts[..., : problem.dim] * weights[..., None]).sum(-2)
        part = Part(out, exact, rounding(exact, out.dtype))
        return work(launch, [part], (parts, out), 2 * parts.numel())


def merged_splits(shape: Shape) -> int:
    """Return the number of splits that the operator would choose for a shape."""
    return splits_for(_sized(shape))


def _sized(shape: Shape) -> Decoding:
    """Return a call with the sizes of a shape, without memory and without its mask."""
    q = torch.empty(shape.batch, shape.heads, shape.q_len, shape.dim, dtype=torch.bfloat16, device="meta")
    k = torch.empty(shape.batch, shape.kv_heads, shape.kv_len, shape.dim, dtype=torch.bfloat16, device="meta")
    band = band_of_words(False, None, None)
    return Decoding(q, k, k, None, None, band, NO_MOD, shape.sizes, 1.0, may_be_one=shape.mask not in _MODS)


def problems(use: str) -> tuple[DecodingProblem | MergeProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    shapes = _tuned() if use == "tune" else [*PROBLEMS.get(use, ()), *_drawn(use)]
    blocks = [one for one in shapes if one.mask in _MODS]
    spans = [one for one in shapes if one.mask not in _MODS]
    # one table of configs serves calls with and without pages: those without are measured
    alone = [one for one in spans if _sized(one).is_one]
    return (
        *(DecodingProblem(one, "flex_decoding") for one in spans if one not in alone),
        *(DecodingProblem(one, "flex_decoding_one") for one in alone if not one.page),
        *(DecodingProblem(one, "flex_decoding_blocks") for one in blocks),
        *(MergeProblem(one, "flex_decoding_merge") for one in (*spans, *blocks) if merged_splits(one) > 1),
    )
