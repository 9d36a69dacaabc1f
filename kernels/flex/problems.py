"""Calls of the flex attention kernels to tune and measure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random
from typing import Final

import torch
from nojit.kernels.attention.outputs import allocate_output, allocate_sums
from nojit.kernels.attention.problem_results import Part, work
from nojit.kernels.block_mask.evaluation import MaskMod
from nojit.kernels.block_mask.masks import create_block_mask, tables_of
from nojit.kernels.block_mask.patterns import Causal, Documents, Prefix, Window
from nojit.kernels.block_mask.tables import MaskTables, no_mask
from nojit.kernels.flex.launch import launch_over_maps, launch_over_pointers, maps_of
from nojit.kernels.flex.launch_bwd import launch_dkdv, launch_dq
from nojit.kernels.problem import Roles, TuningProblem, Work, check_use, draws, generator, requested, rounding, spread
from nojit.kernels.score_mod.modification import Modification, modification_of
from nojit.kernels.score_mod.mods import Alibi, SoftCap, alibi_slopes
from torch import Tensor

__all__ = ["PROBLEMS", "ROLES", "FlexProblem", "Shape", "problems"]

_TILES: Final = ("BLOCK_M", "BLOCK_N")
_CASE: Final = ("MASK", "SCORE_MOD", "BLOCK_D", "BLOCK_DV")
ROLES: Final[Mapping[str, Roles]] = {
    "flex_attention_fwd": Roles(_TILES, (), _CASE),
    "flex_attention_fwd_sm90": Roles((*_TILES, "STAGES", "SPAN", "TURNS"), (), _CASE),
    "flex_attention_bwd_dkdv": Roles(_TILES, (), _CASE),
    "flex_attention_bwd_dq": Roles(_TILES, (), _CASE),
    "flex_attention_bwd_sm90": Roles(("STAGES", "SPAN", "EAGER"), (), ("MASK", "SCORE_MOD", "BLOCK_D", "BLOCK_M")),
    "flex_attention_bwd_captured": Roles(_TILES, (), _CASE),
}
_MEASURED: Final = ("flex_attention_fwd", "flex_attention_fwd_sm90", "flex_attention_bwd_dkdv", "flex_attention_bwd_dq")
_FORWARD: Final = ("flex_attention_fwd", "flex_attention_fwd_sm90")
_ROWS: Final = 512
"""Number of queries, at either end, that the check compares with torch's result."""
_ERRORS: Final = {"forward": 2, "backward": 3}
"""Allowed error of the forward and the backward pass, as a multiple of the error of torch's own operators."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes, mask and score modification of one call."""

    name: str
    mask: str
    """Name of the mask: one of `MASKS`, or a window of another size, such as ``window of 128``."""
    batch: int
    heads: int
    kv_heads: int
    length: int
    dim: int
    mod: str = "none"
    """Name of the score modification: one of `MODS`."""

    @property
    def mask_mod(self) -> MaskMod | None:
        """The mask function, with tensors on the CPU."""
        return _mask_mod(self.mask, self.length, "cpu")

    @property
    def score_mod(self) -> Alibi | SoftCap | None:
        """The score modification, with tensors on the CPU."""
        return _score_mod(self.mod, self.heads, "cpu")

    def flops(self) -> int:
        """Return the floating-point operations of both products of the forward pass, over visible pairs."""
        mask_mod = self.mask_mod
        seen = self.length**2
        if mask_mod is not None:
            blocks = create_block_mask(mask_mod, None, None, self.length, self.length, "cpu")
            share = 1.0 - blocks.sparsity() / 100.0
            seen = int(seen * share)
        return 4 * self.batch * self.heads * seen * self.dim


def _documents(length: int, device: str) -> Documents:
    """Return the mask of three documents, which take a quarter, a half, and the rest of `length` positions."""
    places = torch.arange(length, device=device)
    return Documents((places >= length // 4).int() + (places >= 3 * length // 4).int())


def _dilated(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
    """Mask function in which a query sees every fourth key before it."""
    return ((q_idx - kv_idx) % 4 == 0) & (kv_idx <= q_idx)


MASKS: Final = ("none", "causal", "window", "documents", "prefix", "dilated")
_NARROW: Final = "window of "


def _mask_mod(mask: str, length: int, device: str) -> MaskMod | None:
    """Return the mask function that a shape's `mask` names."""
    known: Mapping[str, MaskMod] = {"causal": Causal(), "window": Window(1024, 0), "dilated": _dilated}
    if mask.startswith(_NARROW):
        return Window(int(mask.removeprefix(_NARROW)), 0)
    if mask == "documents":
        return _documents(length, device)
    if mask == "prefix":
        return Prefix(torch.tensor(length // 4, device=device))
    return known.get(mask)


MODS: Final = ("none", "alibi", "cap")
_CAP: Final = 2.0


def _score_mod(mod: str, heads: int, device: str) -> Alibi | SoftCap | None:
    """Return the score modification that a shape's `mod` names."""
    if mod == "alibi":
        return Alibi(alibi_slopes(heads, device))
    return SoftCap(_CAP) if mod == "cap" else None


_LENGTHS: Final = (512, 1024, 2048, 4096, 8192)


def _listed() -> tuple[Shape, ...]:
    """List calls with every mask, of varied lengths and head dimensions."""
    shapes = []
    for place, mask in enumerate(MASKS):
        # pair each length with both head dimensions
        for step in range(2 * len(_LENGTHS)):
            length = _LENGTHS[(place + step) % len(_LENGTHS)]
            dim = (128, 64)[(place + step) % 2]
            heads = (32, 16, 8, 4)[(place + step) % 4]
            batch = max(1, min(4, 8192 // length)) if step % 3 else 1
            name = f"{mask}, {batch} x {heads} x {length}, D {dim}"
            shapes.append(Shape(name, mask, batch, heads, heads // (1, 4)[step % 2], length, dim))
    return (*shapes, *_listed_narrow(), *_listed_modified())


def _listed_narrow() -> Iterator[Shape]:
    """Yield calls with narrow windows, as in models where most layers look back a few hundred tokens."""
    for step, (reach, length) in enumerate(product((128, 384, 640), (1024, 4096, 8192))):
        heads, dim = (8, 32, 16)[step % 3], (128, 64)[step % 2]
        batch = 8192 // length
        name = f"window of {reach}, {batch} x {heads} x {length}, D {dim}"
        yield Shape(name, f"{_NARROW}{reach}", batch, heads, heads // (4, 1)[step % 2], length, dim)


def _listed_modified() -> Iterator[Shape]:
    """Yield calls with each modification, and masks of each mode."""
    for place, (mask, mod) in enumerate(product(("causal", "documents", "dilated"), ("alibi", "cap"))):
        for step, length in enumerate((512, 2048, 8192)):
            dim = (128, 64)[(place + step) % 2]
            heads = (32, 16, 8)[(place + step) % 3]
            batch = max(1, min(4, 8192 // length))
            name = f"{mask} with {mod}, {batch} x {heads} x {length}, D {dim}"
            yield Shape(name, mask, batch, heads, heads // (4, 1)[step % 2], length, dim, mod)


# tuning keys distinguish the masks of one mode only by their sizes
_MODES: Final = (("none", "causal", "window"), ("documents", "prefix"), ("dilated",))
_FILLED: Final = 12
"""Number of drawn calls for each mode, each head dimension, and with or without a modification."""
_MOST_FLOPS: Final = 3 * 10**11


def _filled(listed: Sequence[Shape]) -> Iterator[Shape]:
    """Draw calls of each case whose tuning keys lie in the gaps between those of `listed`."""
    numbers = draws("flex between", "tune")

    def draw(masks: Sequence[str], mods: Sequence[str], dim: int) -> Shape:
        while True:
            shape = _draw(numbers, masks, (dim,))
            if 4 * shape.batch * shape.heads * shape.length**2 * dim <= _MOST_FLOPS:
                return _modified(shape, numbers.choice(mods))

    for masks, mods, dim in product(_MODES, (("none",), MODS[1:]), (64, 128)):
        known = [shape for shape in listed if shape.mask in masks and shape.mod in mods and shape.dim == dim]
        yield from spread(known, partial(draw, masks, mods, dim), _far, _FILLED)


def _modified(shape: Shape, mod: str) -> Shape:
    if mod == "none":
        return shape
    return replace(shape, name=shape.name.replace(shape.mask, f"{shape.mask} with {mod}", 1), mod=mod)


def _draw(numbers: Random, masks: Sequence[str] = MASKS, dims: Sequence[int] = (64, 128)) -> Shape:
    mask = numbers.choice(masks)
    length = 64 * round(2 ** numbers.uniform(3.0, 7.0))
    dim = numbers.choice(dims)
    kv_heads, group = numbers.choice((2, 4, 8)), numbers.choice((1, 2, 4))
    batch = numbers.choice((1, 2, 4))
    heads = kv_heads * group
    return Shape(f"{mask}, {batch} x {heads}/{kv_heads} x {length}, D {dim}", mask, batch, heads, kv_heads, length, dim)


def _far(shape: Shape, other: Shape) -> float:
    sizes = ((each.length, each.batch * each.heads, each.dim) for each in (shape, other))
    apart = sum(abs(math.log2(a / b)) for a, b in zip(*sizes, strict=True))
    return apart + 2.0 * (shape.mask != other.mask) + 2.0 * (shape.mod != other.mod)


_LISTED: Final = _listed()
PROBLEMS: Final[Mapping[str, tuple[Shape, ...]]] = {
    "tune": (*_LISTED, *_filled(_LISTED)),
    "bars": tuple(
        Shape(f"{mask} of 4k", mask, 4, 32, 32, 4096, 128) for mask in ("none", "causal", "window", "documents")
    ),
}


def _drawn(use: str) -> tuple[Shape, ...]:
    """Draw random shapes, with tuning keys in the gaps between those of the listed shapes.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    plain = [shape for shape in _LISTED if shape.mod == "none"]
    numbers, more = draws("flex", use), draws("flex with modifications", use)
    modified = [shape for shape in _LISTED if shape.mod != "none"]
    return (
        *spread(plain, lambda: _draw(numbers), _far, 12),
        *spread(modified, lambda: _modified(_draw(more), more.choice(MODS[1:])), _far, 6),
    )


@dataclass(frozen=True, slots=True)
class FlexProblem:
    """One call of one kernel, in one dtype."""

    shape: Shape
    kernel: str
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        """The name of the shape."""
        return self.shape.name

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports: its mask, and its modification if it has one."""
        return self.shape.mask + (f" with {self.shape.mod}" if self.shape.mod != "none" else "")

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        return {name: getattr(self.shape, name) for name in Shape.__slots__ if name != "name"}

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected parts of the results."""
        shape, source = self.shape, generator(self.shape.name, device)
        counts = (shape.heads, shape.kv_heads, shape.kv_heads, shape.heads)
        q, k, v, dout = (
            torch.randn(
                (shape.batch, heads, shape.length, shape.dim), generator=source, device=device, dtype=torch.bfloat16
            )
            for heads in counts
        )
        mask_mod = _mask_mod(shape.mask, shape.length, device)
        tables = no_mask(shape.length, shape.length, q.device)
        if mask_mod is not None:
            mask = create_block_mask(mask_mod, None, None, shape.length, shape.length, device)
            tables = tables_of(mask, shape.length, shape.length, mask.kv_indices.device)
        scores = _Scores(mask_mod, _score_mod(shape.mod, shape.heads, device))
        if self.kernel in _FORWARD:
            return self._forward(q, k, v, tables, scores)
        return self._backward((q, k, v), dout, tables, scores)

    def _forward(self, q: Tensor, k: Tensor, v: Tensor, tables: MaskTables, scores: _Scores) -> Work:
        shape, mod = self.shape, scores.modification
        out, lse = allocate_output(q, v), allocate_sums(q)
        scale = shape.dim**-0.5

        def launch() -> None:
            maps = maps_of(q, k, v, out, scale, tables, mod) if self.kernel.endswith("_sm90") else None
            if maps is None:
                launch_over_pointers(q, k, v, out, lse, scale, tables, mod, {})
            else:
                launch_over_maps(maps, lse, q, scale, tables, mod)

        asked, _ = requested(launch)
        group = shape.heads // shape.kv_heads
        parts = []
        for first in sorted({0, max(shape.length - _ROWS, 0)}):
            for batch, head in ((0, 0), (shape.batch - 1, shape.heads - 1)):
                own = (q[batch, head, first : first + _ROWS], k[batch, head // group], v[batch, head // group])
                exact, torchs = (
                    _rows([each.to(to) for each in own], scores, first, head) for to in (torch.float32, q.dtype)
                )
                parts.append(_part(out[batch, head, first : first + _ROWS], exact, torchs, "forward"))
        return work(asked, parts, (q, k, v, out), shape.flops())

    def _backward(
        self, operands: tuple[Tensor, Tensor, Tensor], dout: Tensor, tables: MaskTables, scores: _Scores
    ) -> Work:
        shape, (q, k, v) = self.shape, operands
        group = shape.heads // shape.kv_heads
        lse = torch.full(q.shape[:3], math.log(shape.length) + 0.5, device=q.device)
        delta = torch.zeros_like(lse)
        dq, dk, dv = (torch.empty_like(each) for each in operands)
        exact, torchs = (
            _gradients([q[:1, :group], k[:1, :1], v[:1, :1], dout[:1, :group]], scores, to)
            for to in (torch.float32, q.dtype)
        )
        lse[:1, :group], delta[:1, :group] = exact[3], exact[4]
        written = (dq[:1, :group], dk[:1, :1], dv[:1, :1])
        parts = [_part(*each, "backward") for each in zip(written, exact[:3], torchs[:3], strict=True)]
        given = (q, k, v, dout, lse, delta)
        scale = shape.dim**-0.5
        if self.kernel.endswith("_dq"):
            asked, _ = requested(lambda: launch_dq(*given, dq, scale, tables, scores.modification))
            return work(asked, parts[:1], (*given, dq), 3 * shape.flops() // 2)
        asked, _ = requested(lambda: launch_dkdv(*given, dk, dv, scale, tables, scores.modification))
        return work(asked, parts[1:], (*given, dk, dv), 2 * shape.flops())


@dataclass(frozen=True, slots=True)
class _Scores:
    """Scale, mask and modification, from which the reference computes weights."""

    mask_mod: MaskMod | None
    score_mod: Alibi | SoftCap | None

    @property
    def modification(self) -> Modification:
        """The modification in the form that kernels take."""
        return modification_of(self.score_mod)

    def weights(self, q: Tensor, k: Tensor, first: int = 0, head: int = 0) -> tuple[Tensor, Tensor, Tensor | float]:
        """Return the softmax weights of queries [..., G, M, D] or [M, D] that start at index `first` and head `head`.

        Each query must see a key.

        Returns:
            Fp32 weights, log-sums, and the derivative of the modification.
        """
        scores = (q @ k.mT).float() * q.shape[-1] ** -0.5
        heads, queries, keys = (
            torch.arange(count, device=q.device) for count in (1 if q.dim() == 2 else q.shape[-3], *scores.shape[-2:])
        )
        heads = heads[:, None, None] if q.dim() > 2 else heads
        places = (torch.zeros_like(heads), heads + head, (queries + first)[:, None], keys[None, :])
        slope: Tensor | float = 1.0
        if self.score_mod is not None:
            scores = self.score_mod(scores, *places)
        if isinstance(self.score_mod, SoftCap):
            slope = 1.0 - (scores / self.score_mod.cap) ** 2
        if self.mask_mod is not None:
            scores = scores.masked_fill(~self.mask_mod(*places), float("-inf"))
        return torch.softmax(scores, -1), torch.logsumexp(scores, -1), slope


def _rows(operands: list[Tensor], scores: _Scores, first: int, head: int) -> Tensor:
    """Compute attention for queries of one head, which start at index `first`, with products in the operands' dtype."""
    q, k, v = operands
    return scores.weights(q, k, first, head)[0].to(v.dtype) @ v


def _gradients(given: list[Tensor], scores: _Scores, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Compute the gradients of one key head with products in `dtype`; return dq, dk, dv, lse and delta."""
    q, k, v, dout = (each.to(dtype) for each in given)
    scale = q.shape[-1] ** -0.5
    weights, lse, slope = scores.weights(q, k)
    rounded = weights.to(dtype)
    delta = ((rounded @ v).float() * dout.float()).sum(-1)
    dscores = (weights * ((dout @ v.mT).float() - delta[..., None]) * slope).to(dtype)
    dq = (dscores @ k).float() * scale
    dk = (dscores.mT @ q).float().sum(1, keepdim=True) * scale
    return dq, dk, (rounded.mT @ dout).float().sum(1, keepdim=True), lse, delta


def _part(written: Tensor, exact: Tensor, torchs: Tensor, which: str) -> Part:
    apart = float((torchs.float() - exact).abs().max())
    return Part(written, exact, _ERRORS[which] * apart + rounding(exact, written.dtype))


def problems(use: str) -> tuple[TuningProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    shapes = PROBLEMS[use] if use in PROBLEMS else _drawn(use)
    return tuple(FlexProblem(shape, kernel) for kernel in _MEASURED for shape in shapes)
