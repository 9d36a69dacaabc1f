"""Scaled products to tune and measure: launches of each kernel for the shapes of `nojit.kernels.products.problem_shapes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import torch
from nojit.kernels.calls.tensor_maps import OTHERS
from nojit.kernels.problem import NAMED, Roles, Work, check_use, generator, listed_and_drawn, requested, rounding
from nojit.kernels.products.agreed_sizes import SCALE_BLOCK
from nojit.kernels.products.fp8 import spread
from nojit.kernels.products.problem_shapes import BARS, TUNED, Shape, draw_shape
from nojit.kernels.products.splits import splits_of
from nojit.kernels.scaled_mm.launch import prepare
from nojit.kernels.scaled_mm.operands import Operands
from torch import Tensor

__all__ = ["ROLES", "ScaledProblem", "problems"]

_TILES: Final = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP")
_FORMATS: Final = ("A_E5M2", "B_E5M2", "BLOCK_SCALES")
ROLES: Final[Mapping[str, Roles]] = {
    "scaled_mm": Roles(_TILES, (), _FORMATS),
    "scaled_mm_bytes": Roles(_TILES, (), _FORMATS),
    "scaled_mm_merge": Roles(("BLOCK",), (), ()),
    "scaled_mm_sm90": Roles(("BLOCK_M", "BLOCK_N", "GROUP", "STAGES"), ("FAST",), ("PANEL", "SCALES", "ROWS")),
    "scaled_mm_parts_sm90": Roles(("GROUP", "STAGES"), (), ("ROWS", "BLOCK_M", "BLOCK_N")),
    "scaled_mm_tiles_sm90": Roles(("GROUP", "STAGES"), (), ("BOX", "BLOCK_M", "BLOCK_N")),
    "scaled_mm_waves_sm90": Roles(("STAGES",), (), ("BLOCK_M", "BLOCK_N", "GROUP")),
}

_DRAWN: Final = {"tune": 120, "held_out": 12, "fresh": 12}
"""Number of random shapes for each use; ``tune`` has the listed shapes as well."""
_ROWS: Final = 256
"""Rows of the result that the check compares with torch's."""
_UNIT: Final = 16
_KINDS: Final = (
    ("scaled_mm", False, False),
    ("scaled_mm_sm90", False, False),
    ("scaled_mm_sm90", True, False),
    ("scaled_mm_sm90", False, True),
)
"""(Kernel, whether tensor cores accumulate, whether scales are per block) of the problems."""
_IMPRECISE: Final = 2.0**-13
"""Relative error of tensor-core sums after one instruction, 32 of K."""


@dataclass(frozen=True, slots=True)
class ScaledProblem:
    """One product on one kernel; the check compares the first rows of its result with torch's."""

    shape: Shape
    kernel: str
    fast: bool = False
    blocks: bool = False
    """True if scales are per block, 1 by 128 of a and 128 by 128 of b; False if they are per tensor."""

    @property
    def name(self) -> str:
        """The name of the shape, of the scales and of the accumulation."""
        words = (self.shape.name, "scales of blocks" if self.blocks else "", "fast sums" if self.fast else "")
        return ", ".join(filter(None, words))

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports."""
        return self.shape.kind

    @property
    def dtype(self) -> str:
        """Dtype of both operands."""
        return "fp8e4nv"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        one = self.shape
        return {"m": one.m, "n": one.n, "k": one.k, "fast": self.fast, "blocks": self.blocks}

    @property
    def weight(self) -> float:
        """Weight of the problem in tuning: shapes of known models weigh more than random ones."""
        return NAMED if self.shape in TUNED else 1.0

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected first rows of the result in fp32."""
        one, source = self.shape, generator(self.name, device)

        def random(rows: int, cols: int) -> Tensor:
            values = torch.randn(rows, cols, generator=source, device=device, dtype=torch.bfloat16)
            return values.to(torch.float8_e4m3fn)

        def scale(*shape: int) -> Tensor:
            # scaled so that results are near one
            return (torch.rand(shape, generator=source, device=device) + 0.5) * one.k**-0.25

        deep, wide = -(-one.k // SCALE_BLOCK), -(-one.n // SCALE_BLOCK)
        scales = (scale(one.m, deep), scale(deep, wide)) if self.blocks else (scale(1), scale(1))
        operands = Operands(random(one.m, one.k), random(one.n, one.k).t(), *scales, None)
        call = prepare(operands, None, torch.bfloat16, self.fast, maps_run=lambda _: self.kernel == "scaled_mm_sm90")
        launch, out = requested(lambda: call(operands, None), self.kernel)
        a, b, scale_a, scale_b, _ = operands
        expected = (a.float() * spread(scale_a, a))[:_ROWS] @ (b.float() * spread(scale_b, b))
        steps = one.k / 32 if self.fast else 8
        apart = _IMPRECISE * steps * float(expected.abs().max())
        return launch.work(
            outputs=(out[:_ROWS],),
            expected=(expected,),
            tolerances=(rounding(expected, out.dtype) + apart,),
            moved_bytes=one.m * one.k + one.k * one.n + one.m * one.n * out.itemsize,
            flops=one.flops,
        )


def problems(use: str) -> tuple[ScaledProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return tuple(
        ScaledProblem(shape, kernel, fast, blocks)
        for kernel, fast, blocks in _KINDS
        for shape in _shapes(use, f"{kernel} {fast} {blocks}")
    )


def _is_whole(shape: Shape) -> bool:
    """Return whether ``scaled_mm`` accepts the shape and writes the result in one launch, without split-K."""
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
