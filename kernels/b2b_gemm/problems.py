"""Shapes of ``b2b_gemm`` to tune and measure: many rows through narrow layers. The `sm_90` kernel has nothing to tune."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import torch
from nojit.kernels.b2b_gemm import reference
from nojit.kernels.b2b_gemm.launch import prepare
from nojit.kernels.problem import Roles, Work, check_use, draws, generator, requested, rounding

__all__ = ["BARS", "ROLES", "PairProblem", "Shape", "problems"]

ROLES: Final[Mapping[str, Roles]] = {
    "b2b_gemm": Roles(("BLOCK_M", "BLOCK_N", "BLOCK_K", "BLOCK_L", "GROUP"), ("PRECISION",), ("FUNCTION",)),
    "b2b_gemm_sm90": Roles(("AHEAD",), (), ("FUNCTION", "TRANS", "BLOCK_N", "BLOCK_K", "BLOCK_L", "WHOLE")),
}
Shape = tuple[int, int, int, int]
"""(M, K, L, N) of a [M, K], b [K, L] and c [L, N]."""

_DRAWN: Final = {"held_out": 10, "fresh": 10}
# rows of the result that the check compares with torch's
_ROWS: Final = 4096
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_ACTIVATION: Final = "gelu"

BARS: Final[tuple[Shape, ...]] = (
    (65536, 64, 64, 64),
    (8192, 32, 32, 32),
    (65536, 32, 32, 32),
    (16384, 64, 128, 64),
    (32768, 128, 128, 128),
    (262144, 64, 64, 64),
    (65536, 128, 64, 32),
    (2048, 128, 128, 128),
    (64, 128, 128, 128),
)
"""The shapes for which the documentation promises a speed."""
TUNED: Final[tuple[Shape, ...]] = (
    *BARS,
    (1024, 64, 64, 64),
    (4096, 32, 32, 32),
    (8192, 64, 64, 64),
    (262144, 32, 32, 32),
    (65536, 16, 64, 16),
    (8192, 128, 128, 128),
    (4096, 64, 256, 64),
    (65536, 64, 256, 64),
    (131072, 64, 64, 64),
    (32768, 32, 128, 32),
    (16384, 128, 64, 128),
    (16384, 256, 256, 256),
    (4096, 512, 64, 512),
    (2048, 128, 512, 128),
)
"""The shapes that the tuner measures to make tuning tables."""


@dataclass(frozen=True, slots=True)
class PairProblem:
    """One ``b2b_gemm`` call with gelu and row-major operands; the check compares the first `_ROWS` rows with torch's."""

    shape: Shape
    kernel: str
    dtype: str

    @property
    def name(self) -> str:
        """M, K, L and N as a phrase: "64 rows, 32 to 32 to 32"."""
        rows, depth, middle, cols = self.shape
        return f"{rows} rows, {depth} to {middle} to {cols}"

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports, by its bottleneck: memory or compute."""
        return "narrow" if max(self.shape[1:]) <= 64 else "wide"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        return dict(zip(("m", "k", "middle", "n"), self.shape, strict=True))

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected first rows of the result in fp32."""
        (rows, depth, middle, cols), dtype = self.shape, _DTYPES[self.dtype]
        source = generator(self.name, device)

        def factor(height: int, width: int, scale: float) -> torch.Tensor:
            return torch.randn(height, width, generator=source, device=device, dtype=dtype).mul_(scale)

        # scaled so that results are near one
        operands = (factor(rows, depth, 1.0), factor(depth, middle, depth**-0.5), factor(middle, cols, middle**-0.5))
        call = prepare(operands, None, (_ACTIVATION, 1.0, "left"), lambda _: False)
        launch, out = requested(lambda: call(operands, None))
        a, b, c = (value.float() for value in operands)
        expected = reference.b2b_gemm(a[:_ROWS], b, c, activation=_ACTIVATION)
        return launch.work(
            outputs=(out[:_ROWS],),
            expected=(expected,),
            # the intermediate product is rounded, and tensor cores add in another order than the reference
            tolerances=(2 * rounding(expected, dtype) + 1e-5 * (depth + middle) ** 0.5,),
            moved_bytes=(sum(value.numel() for value in operands) + out.numel()) * out.itemsize,
            flops=2 * rows * middle * (depth + cols),
        )


def problems(use: str) -> tuple[PairProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return tuple(PairProblem(shape, "b2b_gemm", "bf16") for shape in _shapes(use))


def _shapes(use: str) -> tuple[Shape, ...]:
    if use not in _DRAWN:
        return BARS if use == "bars" else TUNED
    rng = draws("b2b_gemm/b2b_gemm", use)
    found: dict[Shape, None] = {}
    while len(found) < _DRAWN[use]:
        shape = _draw(rng)
        if shape not in TUNED:
            found.setdefault(shape)
    return tuple(found)


def _draw(rng: Random) -> Shape:
    """Draw a random shape with many rows and narrow layers."""
    rows = 64 * round(2 ** rng.uniform(4, 11))
    depth, middle, cols = (16 * round(2 ** rng.uniform(0, 4.5)) for _ in range(3))
    return rows, depth, middle, cols
