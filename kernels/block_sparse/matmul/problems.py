"""Block-sparse products to tune and measure: a layout and the size of the dimension that the layout does not determine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, cast

import torch
from nojit.kernels.block_sparse import reference
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.matmul import launch_sm90
from nojit.kernels.block_sparse.matmul.launch import launch_dsd, launch_merge, launch_sdd, strips_of
from nojit.kernels.block_sparse.packing import Cuts
from nojit.kernels.problem import Roles, Work, draws, generator, requested, rounding
from torch import Tensor

__all__ = ["BARS", "ROLES", "MatmulProblem", "Pattern", "SparseShape", "problems"]

Pattern = Literal["random", "window", "longformer", "bigbird", "dense"]
_RANDOM = 3
"""Random blocks per block row of the pattern ``bigbird`` (Zaheer et al. 2020), in addition to those of ``longformer``."""


@dataclass(frozen=True, slots=True)
class SparseShape:
    """One layout, its number of heads, and a batch size."""

    name: str
    batch: int
    heads: int
    rows: int
    """Number of block rows."""
    cols: int
    """Number of block columns."""
    block: int
    pattern: Pattern
    reach: float
    """For ``random``, the fraction of active blocks; for other patterns, the blocks on each side of the diagonal in a row."""

    def layout(self) -> BlockLayout:
        """Return the layout; a random one is the same every time."""
        return BlockLayout(self._active().expand(self.heads, -1, -1), self.block)

    def _active(self) -> Tensor:
        distance = torch.arange(self.rows)[:, None] - torch.arange(self.cols)[None, :]
        if self.pattern == "dense":
            return torch.ones(self.rows, self.cols, dtype=torch.bool)
        if self.pattern == "random":
            generator = torch.Generator().manual_seed(self.rows * 1009 + self.cols)
            return torch.rand(self.rows, self.cols, generator=generator) < self.reach
        active = distance.abs() <= self.reach
        if self.pattern != "window":
            # one global block row and column
            active[0, :] = True
            active[:, 0] = True
        if self.pattern == "bigbird":
            generator = torch.Generator().manual_seed(self.rows * 1009 + self.cols)
            order = torch.rand(self.rows, self.cols, generator=generator).masked_fill(active, -1.0).argsort(1)
            active.scatter_(1, order[:, -_RANDOM:], True)
        return active


ROLES: Final[Mapping[str, Roles]] = {
    "block_sparse_sdd": Roles(("BLOCK_K",), ("PRECISION",), ("STRIP", "SPAN")),
    "block_sparse_dsd": Roles(("BLOCK_N", "BLOCK_K"), ("PRECISION",), ("STRIP",)),
    "block_sparse_merge": Roles(("ROWS",), (), ()),
    "block_sparse_sdd_sm90": Roles(("STAGES",), (), ("SPAN", "BOX", "B_HEIGHT", "B_WIDTH", "TRANS_A", "TRANS_B")),
    "block_sparse_dsd_sm90": Roles(("BLOCK_N", "STAGES"), (), ("BOX", "D_HEIGHT", "D_WIDTH", "TRANSPOSED", "COLUMNS")),
}

BARS: Final = (
    SparseShape("window 128", 2, 16, 64, 64, 128, "window", 2),
    SparseShape("longformer 128", 2, 16, 64, 64, 128, "longformer", 1),
    SparseShape("window 64", 2, 16, 128, 128, 64, "window", 4),
    SparseShape("longformer 64", 2, 16, 128, 128, 64, "longformer", 2),
    SparseShape("window 32", 2, 16, 128, 128, 32, "window", 8),
    SparseShape("longformer 32", 2, 16, 128, 128, 32, "longformer", 4),
    SparseShape("bigbird 128", 2, 16, 64, 64, 128, "bigbird", 1),
    SparseShape("bigbird 64", 2, 16, 128, 128, 64, "bigbird", 1),
    SparseShape("bigbird 32", 2, 16, 128, 128, 32, "bigbird", 1),
    SparseShape("random 128", 1, 16, 32, 32, 128, "random", 0.25),
    SparseShape("random 64", 1, 16, 64, 64, 64, "random", 0.1),
    SparseShape("random 32", 1, 16, 128, 128, 32, "random", 0.1),
)
_FREE_BARS: Final = (64, 1024)

# number of random problems for each use; `tune` takes the first ones of its seed
_DRAWN: Final = {"tune": 80, "held_out": 10, "fresh": 10}
_PACKED: Final = {"tune": 48, "held_out": 8, "fresh": 8}
_MERGED: Final = {"tune": 16, "held_out": 8, "fresh": 8, "bars": 1}
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# limits of a drawn problem: elements of the sparse tensor, and of a dense one
_MOST_ELEMENTS: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class MatmulProblem:
    """One product of one layout; the check compares the first head of the first batch with torch's result."""

    problem: SparseShape
    free: int
    """Size of the dimension that the layout does not determine: K if the result is sparse, N if the left operand is."""
    kernel: str
    dtype: str

    @property
    def name(self) -> str:
        """The name of the layout and the size `free`."""
        return f"{self.problem.name}, {self.free}"

    @property
    def shape_class(self) -> str:
        """Class of the shape in reports: block size, and whether the size `free` is at most 128 (narrow) or larger (wide)."""
        small = "small" if self.problem.block < 64 else "large"
        return f"{small} blocks, {'narrow' if self.free <= 128 else 'wide'}"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        problem = self.problem
        named = {name: getattr(problem, name) for name in ("batch", "heads", "rows", "cols", "block", "pattern")}
        return named | {"reach": str(problem.reach), "free": self.free}

    @property
    def _mapped(self) -> bool:
        return self.kernel.endswith("_sm90")

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected part of the result in fp32."""
        source = generator(self.name, device)
        make = {"sdd": self._sdd, "dsd": self._dsd, "merge": self._merge}[self.kernel.split("_")[2]]
        return make(self.problem.layout(), source)

    def _random(self, source: torch.Generator, *shape: int) -> Tensor:
        return torch.randn(shape, generator=source, device=source.device, dtype=_DTYPES[self.dtype])

    def _sdd(self, layout: BlockLayout, source: torch.Generator) -> Work:
        problem, (rows, cols) = self.problem, layout.shape
        a = self._random(source, problem.batch, problem.heads, rows, self.free)
        b = self._random(source, problem.batch, problem.heads, cols, self.free)
        out = a.new_empty(problem.batch, layout.nnz, problem.block, problem.block)
        (*_, strips, columns, blocks), sizes = layout.packing(a.device, a.dtype)
        tables = strips, columns, blocks
        if self._mapped:
            maps = cast("launch_sm90.SddMaps", launch_sm90.describe_sdd(a, b.mT, out))
            launch, _ = requested(lambda: launch_sm90.launch_sdd(maps, a.shape, tables, sizes))
        else:
            launch, _ = requested(lambda: launch_sdd(a, b.mT, out, tables, sizes))
        first = _first_head(layout)
        exact = reference.block_sparse_matmul(a[:1, :1].float(), b[:1, :1].float(), first, "sdd", trans_b=True)
        moved = (a.numel() + b.numel() + out.numel()) * a.itemsize
        flops = 2 * out.numel() * self.free
        return self._work(launch.args, launch.named, out[:1, : first.nnz], exact, moved, flops)

    def _dsd(self, layout: BlockLayout, source: torch.Generator) -> Work:
        problem, (rows, cols) = self.problem, layout.shape
        s = self._random(source, problem.batch, layout.nnz, problem.block, problem.block)
        d = self._random(source, problem.batch, problem.heads, cols, self.free)
        out = d.new_empty(problem.batch, problem.heads, rows, self.free)
        strips, cuts = self._strips(layout, out)
        partial = cuts.allocate(d)
        if self._mapped:
            maps = cast("launch_sm90.DsdMaps", launch_sm90.describe_dsd(s, d, out, is_transposed=False))
            launch, _ = requested(lambda: launch_sm90.launch_dsd(maps, out.shape, partial, strips, cuts, problem.block))
        else:
            launch, _ = requested(
                lambda: launch_dsd(s, d, out, partial, strips, cuts, problem.block, is_transposed=False)
            )
        first = _first_head(layout)
        exact = reference.block_sparse_matmul(s[:1, : first.nnz].float(), d[:1, :1].float(), first, "dsd")
        # a split strip goes to the partial results, not to the result
        start = cuts.height if cuts.slots else 0
        moved = (s.numel() + d.numel() + out.numel()) * s.itemsize
        flops = 2 * s.numel() * self.free
        return self._work(launch.args, launch.named, out[:1, :1, start:], exact[:, :, start:], moved, flops)

    def _merge(self, layout: BlockLayout, source: torch.Generator) -> Work:
        problem = self.problem
        out = torch.empty(
            problem.batch, problem.heads, layout.shape[0], self.free, device=source.device, dtype=_DTYPES[self.dtype]
        )
        strips, cuts = self._strips(layout, out)
        height, partial = cuts.height, cuts.allocate(out).normal_(generator=source)
        launch, _ = requested(lambda: launch_merge(partial, out, strips[3], cuts))
        _, begin, end = strips[3][0].tolist()
        panels = partial.view(*partial.shape[:2], -1, height, 64)[0, begin:end].sum(0)
        exact = panels.transpose(0, 1).reshape(height, -1)[None, None, :, : self.free]
        moved = partial.numel() * 4 + problem.batch * len(strips[3]) * height * self.free * out.itemsize
        return self._work(launch.args, launch.named, out[:1, :1, :height], exact, moved, partial.numel())

    def _strips(self, layout: BlockLayout, out: Tensor) -> tuple[tuple[Tensor, ...], Cuts]:
        """Return the tables of the layout's strips (groups of block rows), and the plan that says which strips are split."""
        tables, sizes = layout.packing(out.device, out.dtype)
        return strips_of(tables, sizes, False, out.shape, True)

    def _work(  # noqa: PLR0917 - all fields of a Work
        self,
        args: tuple[object, ...],
        named: Mapping[str, object],
        out: Tensor,
        exact: Tensor,
        moved_bytes: int,
        flops: int,
    ) -> Work:
        return Work(
            kernel=self.kernel,
            args=args,
            named=named,
            outputs=(out,),
            expected=(exact,),
            # tensor cores add in another order than the reference
            tolerances=(rounding(exact, _DTYPES[self.dtype]) + 1e-5 * self.free,),
            moved_bytes=moved_bytes,
            flops=flops,
        )


def _first_head(layout: BlockLayout) -> BlockLayout:
    return BlockLayout(layout.active[:1], layout.block)


def problems(use: str) -> tuple[MatmulProblem, ...]:
    """List the products for a `use` that `nojit.kernels.problem.check_use` accepted."""
    sdd, dsd, merge, mapped_sdd, mapped_dsd = ROLES
    found = _bars() if use == "bars" else _drawn(use)
    return (
        *(MatmulProblem(problem, free, sdd, "bf16") for problem, free in found),
        *(MatmulProblem(problem, free, dsd, "bf16") for problem, free in found),
        *(MatmulProblem(problem, free, merge, "bf16") for problem, free in _cut(use)),
        *(MatmulProblem(problem, free, mapped_sdd, "bf16") for problem, free in _packed(use)),
        *(MatmulProblem(problem, free, mapped_dsd, "bf16") for problem, free in _packed(use)),
    )


def _bars() -> list[tuple[SparseShape, int]]:
    return [(problem, free) for problem in BARS for free in _FREE_BARS]


def _packed(use: str) -> list[tuple[SparseShape, int]]:
    """List products for the sm_90 kernels: layouts whose blocks fill tiles of 128 rows.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    if use == "bars":
        return [(problem, free) for problem, free in _bars() if _fills_tiles(problem)]
    rng = draws("block_sparse_packed", use)
    found: dict[str, tuple[SparseShape, int]] = {}
    while len(found) < _PACKED[use]:
        problem, free = _draw(rng, (32, 64, 128))
        if _fills_tiles(problem):
            found[f"{problem.name}, {free}"] = problem, free
    return list(found.values())


def _fills_tiles(problem: SparseShape) -> bool:
    sizes = problem.layout().packing("cpu", torch.bfloat16).sizes
    return problem.block >= launch_sm90.LEAST_BLOCK and sizes.tile == sizes.height == launch_sm90.ROWS


def _drawn(use: str) -> list[tuple[SparseShape, int]]:
    """Draw layouts of any block size and pattern, each with a size `free` of 64 to 2,048 (see `MatmulProblem`).

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    rng = draws("block_sparse_matmul", use)
    found: dict[str, tuple[SparseShape, int]] = {}
    while len(found) < _DRAWN[use]:
        problem, free = _draw(rng, (16, 32, 64, 128))
        found[f"{problem.name}, {free}"] = problem, free
    return list(found.values())


def _draw(rng: Random, blocks: tuple[int, ...]) -> tuple[SparseShape, int]:
    """Draw one product with one of the block sizes `blocks`; too large ones are drawn again."""
    while True:
        block = rng.choice(blocks)
        length = max(round(2 ** rng.uniform(9, 12.5)) // block, 4)
        batch, heads, free = rng.choice((1, 2, 4)), rng.choice((2, 8, 12, 16)), rng.choice((64, 128, 256, 1024, 2048))
        pattern: Pattern = rng.choice(("random", "window", "longformer", "dense"))
        reach = rng.choice((0.1, 0.3, 0.7)) if pattern == "random" else float(rng.choice((1, 2, 4, 8)))
        name = f"{pattern} {reach}, {batch} x {heads} x {length} of {block}"
        problem = SparseShape(name, batch, heads, length, length, block, pattern, reach)
        if max(batch * problem.layout().nnz * block**2, batch * heads * length * block * free) <= _MOST_ELEMENTS:
            return problem, free


def _cut(use: str) -> list[tuple[SparseShape, int]]:
    """Draw layouts with one long row in each head, which a product of sparse by dense splits among programs.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    rng = draws("block_sparse_merge", use)
    found: dict[str, tuple[SparseShape, int]] = {}
    while len(found) < _MERGED[use]:
        block, free = rng.choice((32, 64, 128)), rng.choice((64, 96, 128, 256, 512, 1024))
        length = round(2 ** rng.uniform(12, 13)) // block
        batch, heads = rng.choice((1, 2, 4)), rng.choice((2, 8, 16))
        name = f"longformer 1, {batch} x {heads} x {length} of {block}"
        problem = SparseShape(name, batch, heads, length, length, block, "longformer", 1.0)
        tables, sizes = problem.layout().packing("cpu", torch.bfloat16)
        # keep only products whose long strips are split: large ones split none
        if strips_of(tables, sizes, False, (batch, heads, length * block, free), True)[1].slots:
            found[f"{name}, {free}"] = problem, free
    return list(found.values())
