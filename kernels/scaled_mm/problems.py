"""Scaled products to tune and measure: the shapes of `nojit.kernels.gemm.shapes`, as launches of each kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.gemm.shapes import BARS, TUNED, Shape, draw_shape
from nojit.kernels.gemm.splits import splits_of
from nojit.kernels.maps import OTHERS
from nojit.kernels.problem import NAMED, Launch, Roles, Work, check_use, generator, listed_and_drawn, rounding
from nojit.kernels.scaled_mm.prepared import Operands, prepare
from nojit.kernels.scaled_mm.reference import spread
from nojit.kernels.scaled_mm.scales import DEEP
from torch import Tensor

__all__ = ["ROLES", "ScaledProblem", "problems"]

_TILES: Final = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP")
_FORMATS: Final = ("A_E5M2", "B_E5M2", "BLOCK_SCALES")
ROLES: Final[Mapping[str, Roles]] = {
    "scaled_mm": Roles(_TILES, (), _FORMATS),
    "scaled_mm_bytes": Roles(_TILES, (), _FORMATS),
    "scaled_mm_merge": Roles(("BLOCK",), (), ()),
    "scaled_mm_sm90": Roles(("BLOCK_M", "BLOCK_N", "GROUP", "STAGES"), ("FAST",), ("PANEL", "SCALES", "ROWS")),
}

_DRAWN: Final = {"tune": 120, "held_out": 12, "fresh": 12}
"""How many shapes are drawn for each use; ``tune`` has those that are listed too."""
_ROWS: Final = 256
"""Of the result, what is looked at."""
_UNIT: Final = 16
_KINDS: Final = (("scaled_mm", False, False), ("scaled_mm_sm90", False, False), ("scaled_mm_sm90", True, False), ("scaled_mm_sm90", False, True))  # fmt: skip
"""Kernels, whether tensor cores keep the sums, whether scales are those of blocks."""
_IMPRECISE: Final = 2.0**-13
"""How far off the sums of tensor cores are after one instruction, 32 deep."""


@dataclass(frozen=True, slots=True)
class ScaledProblem:
    """One product by one kernel; of what it writes the first rows are looked at."""

    shape: Shape
    kernel: str
    fast: bool = False
    blocks: bool = False
    """Whether a has scales of 1 by 128 and b of 128 by 128; else each has one."""

    @property
    def name(self) -> str:
        """What the shape is called, and how it is scaled and added up."""
        words = (self.shape.name, "scales of blocks" if self.blocks else "", "fast sums" if self.fast else "")
        return ", ".join(filter(None, words))

    @property
    def shape_class(self) -> str:
        """What it is like."""
        return self.shape.kind

    @property
    def dtype(self) -> str:
        """Of both operands."""
        return "fp8e4nv"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """The sizes of the call."""
        one = self.shape
        return {"m": one.m, "n": one.n, "k": one.k, "fast": self.fast, "blocks": self.blocks}

    @property
    def weight(self) -> float:
        """How much it counts: shapes of models more than what was drawn."""
        return NAMED if self.shape in TUNED else 1.0

    def prepare(self, device: str) -> Work:
        """Make random operands, and the part of the result that is looked at, in fp32."""
        one, source = self.shape, generator(self.name, device)

        def random(rows: int, cols: int) -> Tensor:
            values = torch.randn(rows, cols, generator=source, device=device, dtype=torch.bfloat16)
            return values.to(torch.float8_e4m3fn)

        def scale(*shape: int) -> Tensor:
            # so that results are about one
            return (torch.rand(shape, generator=source, device=device) + 0.5) * one.k**-0.25

        deep, wide = -(-one.k // DEEP), -(-one.n // DEEP)
        scales = (scale(one.m, deep), scale(deep, wide)) if self.blocks else (scale(1), scale(1))
        operands = Operands(random(one.m, one.k), random(one.n, one.k).t(), *scales, None)
        launch, out = self._launch(operands)
        a, b, scale_a, scale_b, _ = operands
        expected = (a.float() * spread(scale_a, a))[:_ROWS] @ (b.float() * spread(scale_b, b))
        steps = one.k / 32 if self.fast else 8
        apart = _IMPRECISE * steps * float(expected.abs().max())
        return Work(
            kernel=launch.kernel,
            args=launch.args,
            named=launch.named,
            outputs=(out[:_ROWS],),
            expected=(expected,),
            tolerances=(rounding(expected, out.dtype) + apart,),
            moved_bytes=one.m * one.k + one.k * one.n + one.m * one.n * out.itemsize,
            flops=one.flops,
        )

    def _launch(self, operands: Operands) -> tuple[Launch, Tensor]:
        """Return the launch of this kernel, and the result, not yet written."""
        launches: dict[str, Launch] = {}

        def provide(name: str) -> Any:
            return lambda *args, **named: launches.setdefault(name, Launch(name, args, named))

        call = prepare(
            operands, None, torch.bfloat16, self.fast, maps_run=lambda _: self.kernel == "scaled_mm_sm90"
        )  # fmt: skip
        with library.override(provide, devices=frozenset({"cpu", "cuda"})):
            out = call(operands, None)
        return launches[self.kernel], out


def problems(use: str) -> tuple[ScaledProblem, ...]:
    """List the problems of a use; see `nojit.kernels.problem`.

    Raises:
        ValueError: there is no such use.
    """
    check_use(use)
    return tuple(
        ScaledProblem(shape, kernel, fast, blocks)
        for kernel, fast, blocks in _KINDS
        for shape in _shapes(use, f"{kernel} {fast} {blocks}")
    )


def _is_whole(shape: Shape) -> bool:
    """Return whether there is such a product, whose result one launch writes."""
    fits = shape.batch == 1 and not (shape.n % _UNIT or shape.k % _UNIT)
    return fits and splits_of(1, shape.m, shape.n, shape.k, OTHERS) == 1


def _shapes(use: str, name: str) -> list[Shape]:
    if use == "bars":
        return [shape for shape in BARS if _is_whole(shape)]
    listed = [shape for shape in TUNED if _is_whole(shape)]
    return listed_and_drawn(use, f"scaled_mm/{name}", listed, _draw, counts=_DRAWN, key=_sides)


def _sides(shape: Shape) -> tuple[int, int, int]:
    return shape.m, shape.n, shape.k


def _draw(rng: Random) -> Shape:
    while True:
        one = draw_shape(rng)
        n, k = (-(-size // _UNIT) * _UNIT for size in (one.n, one.k))
        shape = Shape(f"{one.m} x {n} x {k}", 1, one.m, n, k, trans_b=True)
        if _is_whole(shape):
            return shape
