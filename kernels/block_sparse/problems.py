"""Layouts for tests, tuning and benchmarks of the block-sparse operators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Final

import torch
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.matmul import problems as products
from nojit.kernels.block_sparse.matmul.problems import Pattern, SparseShape
from nojit.kernels.block_sparse.softmax.launch import softmax_backward, softmax_forward
from nojit.kernels.problem import (
    DRAWN,
    Roles,
    TuningProblem,
    Work,
    check_use,
    draws,
    generator,
    requested,
    rounding,
    spread,
)
from torch import Tensor

__all__ = ["PROBLEMS", "ROLES", "Pattern", "SoftmaxProblem", "SparseShape", "problems"]

PROBLEMS: Final = {
    "test": (
        SparseShape("one block", 1, 1, 1, 1, 16, "dense", 0),
        SparseShape("random, rectangular", 2, 2, 2, 5, 16, "random", 0.5),
        SparseShape("window", 1, 2, 3, 3, 32, "window", 1),
        SparseShape("longformer", 2, 1, 4, 4, 16, "longformer", 0),
        SparseShape("large blocks", 1, 1, 1, 3, 128, "window", 1),
        SparseShape("rows past one tile", 1, 1, 1, 40, 32, "dense", 0),
        SparseShape("rows past the longest tile", 1, 1, 1, 300, 16, "random", 0.95),
    ),
    "tune": (
        SparseShape("window 64", 4, 16, 64, 64, 64, "window", 4),
        SparseShape("window 16", 4, 16, 256, 256, 16, "window", 8),
        SparseShape("longformer 64", 2, 16, 128, 128, 64, "longformer", 2),
        SparseShape("random 32", 2, 16, 128, 128, 32, "random", 0.25),
        SparseShape("short rows, 16", 8, 16, 64, 64, 16, "window", 1),
        SparseShape("dense of 1k", 4, 16, 16, 16, 64, "dense", 0),
        SparseShape("window 128", 4, 16, 64, 64, 128, "window", 2),
        SparseShape("one head, window 32", 1, 1, 128, 128, 32, "window", 4),
        SparseShape("dense of 4k, 32", 1, 8, 128, 128, 32, "dense", 0),
        SparseShape("dense of 8k", 1, 4, 64, 64, 128, "dense", 0),
        SparseShape("random 16, thin", 4, 16, 128, 128, 16, "random", 0.05),
        SparseShape("random 16, half", 1, 16, 128, 128, 16, "random", 0.5),
        SparseShape("diagonal 128", 8, 16, 32, 32, 128, "window", 0),
        SparseShape("window 32, wide", 2, 16, 128, 128, 32, "window", 16),
        SparseShape("longformer 32", 2, 16, 128, 128, 32, "longformer", 4),
        SparseShape("dense of 512, 16", 16, 16, 32, 32, 16, "dense", 0),
        SparseShape("random 64", 2, 16, 64, 64, 64, "random", 0.25),
        SparseShape("window 64, few", 1, 4, 32, 32, 64, "window", 2),
        SparseShape("skinny, 16 x 256 of 16", 8, 16, 16, 256, 16, "random", 0.9),
        SparseShape("longformer 16", 4, 16, 128, 128, 16, "longformer", 3),
        SparseShape("random 128, half", 2, 8, 32, 32, 128, "random", 0.5),
        SparseShape("dense of 2k", 2, 8, 32, 32, 64, "dense", 0),
        SparseShape("dense of 1k, few", 1, 2, 16, 16, 64, "dense", 0),
        SparseShape("dense of 4k, few", 1, 2, 64, 64, 64, "dense", 0),
        SparseShape("short rows, few", 1, 2, 32, 32, 16, "window", 1),
        SparseShape("dense of 256, 16", 4, 8, 16, 16, 16, "dense", 0),
        SparseShape("dense of 512, few", 1, 4, 32, 32, 16, "dense", 0),
        SparseShape("dense of 2k, few", 1, 4, 32, 32, 64, "dense", 0),
        SparseShape("window 64, short rows", 1, 8, 16, 16, 64, "window", 1),
        SparseShape("longformer of 1k", 1, 12, 16, 16, 64, "longformer", 1),
        SparseShape("random of 1k", 2, 8, 32, 32, 32, "random", 0.3),
        SparseShape("window 128, few", 1, 4, 16, 16, 128, "window", 1),
        SparseShape("longformer of 1k, wide", 4, 12, 16, 16, 64, "longformer", 6),
        SparseShape("dense of 1k, many", 8, 16, 16, 16, 64, "dense", 0),
        SparseShape("longformer of 2k, wide", 2, 12, 32, 32, 64, "longformer", 8),
        SparseShape("window 64, of 1k", 8, 12, 16, 16, 64, "window", 2),
        SparseShape("dense of 2k, 32", 4, 8, 64, 64, 32, "dense", 0),
        SparseShape("longformer 32, of 4k", 2, 12, 128, 128, 32, "longformer", 2),
        SparseShape("window of 1k, wide", 8, 8, 16, 16, 64, "window", 8),
        SparseShape("random of 512", 2, 12, 16, 16, 32, "random", 0.3),
    ),
    "bars": (
        SparseShape("window 64", 8, 16, 64, 64, 64, "window", 4),
        SparseShape("window 128", 8, 16, 64, 64, 128, "window", 2),
        SparseShape("longformer 64", 4, 16, 128, 128, 64, "longformer", 2),
        SparseShape("bigbird 64", 4, 16, 128, 128, 64, "bigbird", 1),
        SparseShape("half of all, 32", 2, 16, 128, 128, 32, "random", 0.5),
    ),
}
"""Layouts by use: `test` is small enough for Triton's interpreter, `bars` has those with promised speed.

`tune` lists a coarse selection first: a tuner that runs out of time has then measured rows of all lengths.
"""

_TUNABLES: Final = ("ROWS", "CHUNKS", "TILES")
_SOFTMAX: Final = {
    "block_sparse_softmax_fwd": Roles(_TUNABLES, (), ("CAUSAL", "WHOLE")),
    "block_sparse_softmax_bwd": Roles(_TUNABLES, (), ("WHOLE",)),
}
ROLES: Final[Mapping[str, Roles]] = {**_SOFTMAX, **products.ROLES}

_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_SCALE: Final = 0.125
# number of random layouts for each use; those of `tune` follow the listed layouts
_DRAWN: Final = {"tune": 60, "held_out": 10, "fresh": 10}
# number of further layouts of `tune`, which fill the gaps between all others
_SPREAD: Final = 80
# most elements of a random problem's sparse tensor
_MOST_ELEMENTS: Final = 1 << 27


@dataclass(frozen=True, slots=True)
class SoftmaxProblem:
    """The softmax, or its gradient, over one layout."""

    problem: SparseShape
    kernel: str
    dtype: str
    is_causal: bool = False

    @property
    def name(self) -> str:
        """The name of the layout."""
        return f"{self.problem.name}, causal" if self.is_causal else self.problem.name

    @property
    def shape_class(self) -> str:
        """Class of the shape in reports: the longest row fits one tile, several, or many."""
        longest = self.problem.layout().longest_row * self.problem.block
        return "short rows" if longest <= 256 else "rows" if longest <= 1024 else "long rows"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        problem = self.problem
        named = {name: getattr(problem, name) for name in ("batch", "heads", "rows", "cols", "block", "pattern")}
        return named | {"reach": str(problem.reach), "is_causal": self.is_causal}

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected result in fp32."""
        problem, dtype = self.problem, _DTYPES[self.dtype]
        layout = problem.layout()
        source = generator(self.name, device)
        shape = (problem.batch, layout.nnz, problem.block, problem.block)
        x = torch.randn(shape, generator=source, device=device, dtype=dtype)
        rows = _row_of_each_block(layout).to(device)
        tables = layout.tables(device)
        # force one launch; calls may make two
        sizes = tables.sizes._replace(next_longest=tables.sizes.longest)
        known = tables.spans, tables.columns, sizes, _SCALE
        if self.kernel == "block_sparse_softmax_fwd":
            terms = None, None, None, False, False, self.is_causal
            launch, out = requested(lambda: softmax_forward(x, *known, *terms))
            hidden = _hidden(layout).to(device) if self.is_causal else None
            expected, tensors, flops = _softmax(x, rows, hidden), 2, 5
        else:
            y = _softmax(x, rows, None).to(dtype)
            launch, (out, _) = requested(lambda: softmax_backward(y, x, *known, False))
            expected, tensors, flops = _gradient(y, x, rows), 3, 5
        return launch.work(
            outputs=(out,),
            expected=(expected,),
            tolerances=(rounding(expected, dtype),),
            moved_bytes=tensors * out.numel() * dtype.itemsize,
            flops=flops * out.numel(),
        )


def _row_of_each_block(layout: BlockLayout) -> Tensor:
    """Return for each block the number of its block row, counted across all heads: int64 [nnz].

    `layout`: the positions of active blocks.
    """
    head, row, _ = layout.active.nonzero().unbind(1)
    return head * layout.rows + row


def _hidden(layout: BlockLayout) -> Tensor:
    """Return which elements of each block a causal mask hides: bool [nnz, block, block].

    `layout`: the positions of active blocks.
    """
    _, row, col = layout.active.nonzero().unbind(1)
    lanes = torch.arange(layout.block)
    rows, cols = (place[:, None] * layout.block + lanes for place in (row, col))
    return cols[:, None, :] > rows[:, :, None]


def _softmax(x: Tensor, rows: Tensor, hidden: Tensor | None) -> Tensor:
    """Compute the softmax in fp32 one block row at a time: dense matrices would be too large.

    Args:
        x: scores [Z, nnz, block, block].
        rows: block row of each block, [nnz].
        hidden: masked elements [nnz, block, block], or None.
    """
    scores = x.float() * _SCALE
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    largest = scores.amax(-1)
    size = (x.shape[0], int(rows[-1]) + 1, x.shape[2])
    index = rows[None, :, None].expand_as(largest)
    peaks = scores.new_full(size, float("-inf")).scatter_reduce(1, index, largest, "amax")
    # a fully masked row gives 0, not NaN
    peaks = peaks.masked_fill(peaks == float("-inf"), 0.0)
    scores = torch.exp(scores - peaks[:, rows, :, None])
    sums = scores.new_zeros(size).index_add(1, rows, scores.sum(-1))
    return scores / sums.clamp_min(torch.finfo(torch.float32).tiny)[:, rows, :, None]


def _gradient(y: Tensor, dy: Tensor, rows: Tensor) -> Tensor:
    """Compute the gradient by the scores one block row at a time: dense matrices would be too large."""
    wide, grad = y.float(), dy.float()
    size = (y.shape[0], int(rows[-1]) + 1, y.shape[2])
    sums = wide.new_zeros(size).index_add(1, rows, (wide * grad).sum(-1))
    return wide * (grad - sums[:, rows, :, None]) * _SCALE


def problems(use: str) -> tuple[TuningProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    found = (*PROBLEMS.get(use, ()), *_drawn(use))
    if use == "tune":
        found += _between(found)
    forward, backward = _SOFTMAX
    return (
        *(SoftmaxProblem(problem, forward, "bf16") for problem in found),
        # of drawn problems, half as many are causal
        *(SoftmaxProblem(problem, forward, "bf16", is_causal=True) for problem in found[:: 2 if use in DRAWN else 1]),
        *(SoftmaxProblem(problem, backward, "bf16") for problem in found),
        *products.problems(use),
    )


def _drawn(use: str) -> tuple[SparseShape, ...]:
    """Draw random layouts of any block size, pattern and row length.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    rng = draws("block_sparse", use)
    found: dict[str, SparseShape] = {}
    while len(found) < _DRAWN.get(use, 0):
        problem = _draw(rng)
        found[problem.name] = problem
    return tuple(found.values())


def _between(known: Sequence[SparseShape]) -> tuple[SparseShape, ...]:
    """Draw layouts whose tuning keys lie in the gaps between those of `known`."""
    rng = draws("block_sparse between", "tune")
    places = {problem.name: _place(problem) for problem in known}

    def draw() -> SparseShape:
        problem = _draw(rng)
        places[problem.name] = _place(problem)
        return problem

    def far(shape: SparseShape, other: SparseShape) -> float:
        return math.dist(places[shape.name], places[other.name])

    return spread(known, draw, far, _SPREAD)


def _draw(rng: Random) -> SparseShape:
    while True:
        block = rng.choice((16, 32, 64, 128))
        length = round(2 ** rng.uniform(9, 12.5)) // block
        batch, heads = rng.choice((1, 2, 4, 8)), rng.choice((2, 6, 8, 12, 16))
        pattern: Pattern = rng.choice(("random", "window", "longformer", "dense"))
        reach = rng.choice((0.1, 0.3, 0.7)) if pattern == "random" else float(rng.choice((1, 3, 6, 10)))
        name = f"{pattern} {reach}, {batch} x {heads} x {length} of {block}"
        problem = SparseShape(name, batch, heads, length, length, block, pattern, reach)
        # a random layout may be empty
        if 0 < batch * heads * _head(problem).nnz * block * block <= _MOST_ELEMENTS:
            return problem


def _head(problem: SparseShape) -> BlockLayout:
    """Return the layout of one head of a problem; all its heads are equal."""
    return _layout(replace(problem, name="", batch=1, heads=1))


@cache
def _layout(problem: SparseShape) -> BlockLayout:
    return problem.layout()


def _place(problem: SparseShape) -> tuple[float, ...]:
    """Return log2 of the tuning key of a problem: longest row, mean row, and number of rows."""
    head = _head(problem)
    sizes = (head.longest_row, head.nnz / problem.rows, problem.batch * problem.heads * problem.rows)
    return tuple(math.log2(max(size * problem.block, 0.5)) for size in sizes)
