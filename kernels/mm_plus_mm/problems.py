"""Sums of two products to tune and measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.mm_plus_mm.launch import prepare
from nojit.kernels.problem import Roles, Work, check_use, draws, generator, requested, rounding
from nojit.kernels.products.problem_shapes import Shape, draw_shape

__all__ = ["BARS", "ROLES", "PairProblem", "problems"]

_TRANSPOSES: Final = ("TRANS_A", "TRANS_B", "TRANS_C", "TRANS_D")
ROLES: Final[Mapping[str, Roles]] = {
    "mm_plus_mm": Roles(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"), ("PRECISION",), ()),
    "mm_plus_mm_sm90": Roles(("GROUP", "STAGES"), (), (*_TRANSPOSES, "BLOCK_M", "BLOCK_N")),
}

_DRAWN: Final = {"held_out": 10, "fresh": 10}
# rows of the result that the check compares with torch's
_ROWS: Final = 256
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def _shape(m: int, n: int, k: int, more: int, trans_b: bool = False) -> tuple[Shape, int]:
    return Shape(f"{m} x {n}, {k} and {more} deep", 1, m, n, k, trans_b), more


BARS: Final = (
    _shape(1024, 1024, 1024, 1024),
    _shape(2048, 2048, 2048, 2048),
    _shape(4096, 4096, 4096, 4096),
    _shape(8192, 8192, 8192, 8192),
    _shape(4096, 4096, 64, 64),
    _shape(8192, 8192, 64, 64),
    _shape(4096, 4096, 4096, 64, True),
    _shape(2048, 14336, 4096, 128, True),
    _shape(4096, 1024, 4096, 1024, True),
    _shape(64, 4096, 4096, 64, True),
    _shape(1, 8192, 8192, 64, True),
)
"""The shapes for which the documentation promises a speed: squares, and layers with a low-rank addition.

Each has the K of its second product as well.
"""

TUNED: Final = (
    *BARS,
    _shape(1536, 1536, 1536, 1536),
    _shape(3072, 3072, 3072, 3072),
    _shape(512, 4096, 4096, 32, True),
    _shape(128, 4096, 4096, 128, True),
    _shape(2048, 2048, 64, 64),
    _shape(1024, 1024, 128, 128),
    _shape(256, 28672, 4096, 16, True),
    _shape(8192, 1024, 1024, 8192),
    _shape(4096, 4096, 256, 256),
)
"""The shapes that the tuner measures to make tuning tables."""


@dataclass(frozen=True, slots=True)
class PairProblem:
    """One sum of two products on one kernel; b and d have the same memory order.

    The check compares the first rows of the result with torch's.
    """

    shape: Shape
    more: int
    """K of the second product."""
    kernel: str
    dtype: str

    @property
    def name(self) -> str:
        """The name of the shape, and the memory order of b and d."""
        return f"{self.shape.name}, by columns" if self.shape.trans_b else self.shape.name

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports, by its bottleneck: storing the result, or the products."""
        if self.shape.kind == "decode":
            return "decode"
        return "flat" if self.shape.k + self.more <= 512 else "deep"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        shape = self.shape
        return {"m": shape.m, "n": shape.n, "k": shape.k, "more": self.more, "trans_b": shape.trans_b}

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected first rows of the result in fp32."""
        shape, dtype, source = self.shape, _DTYPES[self.dtype], generator(self.name, device)

        def factors(depth: int) -> tuple[torch.Tensor, torch.Tensor]:
            left = torch.randn(shape.m, depth, generator=source, device=device, dtype=dtype)
            sides = (shape.n, depth) if shape.trans_b else (depth, shape.n)
            # scaled so that results are near one
            right = torch.randn(*sides, generator=source, device=device, dtype=dtype).mul_(depth**-0.5)
            return left, right.mT if shape.trans_b else right

        operands = (*factors(shape.k), *factors(self.more))
        # only the kernel over pointers is tuned
        call = prepare(operands, None, lambda _: False)
        launch, out = requested(lambda: call(operands, None))
        a, b, c, d = (value.float() for value in operands)
        expected = a[:_ROWS] @ b + c[:_ROWS] @ d
        return launch.work(
            outputs=(out[:_ROWS],),
            expected=(expected,),
            # tensor cores add in another order than the reference
            tolerances=(rounding(expected, dtype) + 1e-5 * (shape.k + self.more) ** 0.5,),
            moved_bytes=(sum(value.numel() for value in operands) + out.numel()) * out.itemsize,
            flops=shape.flops + 2 * shape.m * shape.n * self.more,
        )


def problems(use: str) -> tuple[PairProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return tuple(PairProblem(shape, more, "mm_plus_mm", "bf16") for shape, more in _shapes(use, "mm_plus_mm"))


def _shapes(use: str, kernel: str) -> tuple[tuple[Shape, int], ...]:
    if use not in _DRAWN:
        return BARS if use == "bars" else TUNED
    rng = draws(f"mm_plus_mm/{kernel}", use)
    found: dict[str, tuple[Shape, int]] = {}
    while len(found) < _DRAWN[use]:
        drawn = draw_shape(rng)
        more = rng.choice((16, 64, 256, drawn.k))
        if drawn.batch == 1:
            shape, more = _shape(drawn.m, drawn.n, drawn.k, more, drawn.trans_b)
            found[shape.name] = shape, more
    return tuple(found.values())
