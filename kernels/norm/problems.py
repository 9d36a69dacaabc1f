"""Norms to tune and measure, by number and width of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.norm import reference
from nojit.kernels.norm.launch import normalize, run_backward
from nojit.kernels.problem import Roles, Work, check_use, draws, generator, requested, rounding

__all__ = ["ROLES", "NormProblem", "problems"]

ROLES: Final[Mapping[str, Roles]] = {
    "rms_norm_fwd": Roles(("ROWS", "BLOCK"), (), ("EIGHTHS", "WHOLE")),
    "rms_norm_bwd": Roles(("ROWS", "BLOCK"), (), ("WHOLE",)),
}

_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_BARS: Final = ((4096, 4096), (16384, 4096), (8192, 8192), (1 << 20, 128))
_TUNED: Final = (
    *((rows, width) for width in (128, 1024, 2048, 4096, 5120, 8192) for rows in (1, 16, 128, 1024, 8192)),
    (1 << 20, 64),
    (1 << 20, 128),
    (1 << 18, 256),
    (1 << 16, 512),
    (4096, 768),
    (4096, 3072),
    (2048, 16384),
    *((rows, width) for width in (304, 600, 1536, 3072, 6144, 12288, 16384) for rows in (1, 8, 48, 300)),
    *((rows, width) for width in (400, 1400, 2800, 7000, 11000) for rows in (1000, 5000)),
)
_DRAWN: Final = {"held_out": 14, "fresh": 14}
_WIDTHS: Final = (96, 192, 768, 1536, 2560, 3072, 3584, 6144, 7168, 12288)
# most elements, so that a call takes a millisecond or two
_MOST: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class NormProblem:
    """One norm with a weight: forward, with or without a residual, or backward with the weight's gradient."""

    kernel: str
    dtype: str
    rows: int
    width: int
    added: bool = False

    @property
    def name(self) -> str:
        """Number and width of rows, and whether a residual is added."""
        return f"{self.rows} x {self.width}{' and a residual' if self.added else ''}"

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports: the width of rows."""
        return "short" if self.width <= 512 else "model" if self.width <= 8192 else "long"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        return {"rows": self.rows, "width": self.width, "added": self.added}

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected result in fp32."""
        dtype, source = _DTYPES[self.dtype], generator(self.name, device)
        shape = (self.rows, self.width)

        def random(*sizes: int) -> torch.Tensor:
            return torch.randn(sizes, generator=source, device=device, dtype=dtype)

        x, other, weight = random(*shape), random(*shape), random(self.width)
        if self.kernel == "rms_norm_bwd":
            return self._backward(x, other, weight)
        added = other if self.added else None
        launch, (out, total) = requested(lambda: normalize(x, added, weight, 1e-6))
        summed = x if added is None else x + added
        expected = reference.rms_norm(summed.float(), weight.float(), 1e-6)
        outputs, right = ((out,), (expected,)) if total is None else ((out, total), (expected, summed))
        return self._work(launch.args, outputs, right, 4 if self.added else 2)

    def _backward(self, x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor) -> Work:
        wide = x.float()
        rstd = (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        launch, (found, _) = requested(lambda: run_backward(grad, None, x, weight, 1e-6, True))
        normal, slope = wide * rstd, grad.float() * weight.float()
        expected = (slope - normal * (slope * normal).mean(-1, keepdim=True)) * rstd
        return self._work(launch.args, (found,), (expected,), 3)

    def _work(
        self,
        args: tuple[object, ...],
        outputs: tuple[torch.Tensor, ...],
        expected: tuple[torch.Tensor, ...],
        matrices: int,
    ) -> Work:
        dtype, elements = _DTYPES[self.dtype], self.rows * self.width
        return Work(
            kernel=self.kernel,
            args=args,
            named={},
            outputs=outputs,
            expected=expected,
            tolerances=tuple(rounding(value, dtype) for value in expected),
            moved_bytes=matrices * elements * dtype.itemsize,
            flops=4 * elements,
        )


def problems(use: str) -> tuple[NormProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return tuple(
        NormProblem(kernel, "bf16", rows, width, kernel == "rms_norm_fwd" and place % 2 == 0)
        for kernel in ROLES
        for place, (rows, width) in enumerate(_shapes(use, kernel))
    )


def _shapes(use: str, kernel: str) -> tuple[tuple[int, int], ...]:
    if use not in _DRAWN:
        return _BARS if use == "bars" else _TUNED
    rng = draws(f"norm/{kernel}", use)
    found: dict[tuple[int, int], None] = {}
    while len(found) < _DRAWN[use]:
        width = rng.choice(_WIDTHS)
        found[round(2 ** rng.uniform(0, math.log2(_MOST / width))), width] = None
    return tuple(found)
