"""Products with 4-bit weights to tune and measure: linear layers of language models, for one token and for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

import torch
from nojit.kernels.calls.tensor_maps import OTHERS
from nojit.kernels.mixed_mm import reference
from nojit.kernels.mixed_mm.launch import prepare
from nojit.kernels.mixed_mm.splits import mapped_parts
from nojit.kernels.problem import NAMED, Roles, Work, check_use, generator, listed_and_drawn, requested, rounding

__all__ = ["BARS", "ROLES", "MixedProblem", "Shape", "problems"]

ROLES: Final[Mapping[str, Roles]] = {
    "mixed_mm": Roles(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"), (), ("GROUPS",)),
    "mixed_mm_few": Roles(("BLOCK_M", "BLOCK_N", "UNROLL"), (), ("GROUPS",)),
    "mixed_mm_sm90": Roles(("BLOCK_M", "BLOCK_N", "GROUP", "STAGES"), (), ("GROUPS", "PANEL", "WIDTH")),
    "mixed_mm_tiles_sm90": Roles(("GROUP", "STAGES"), (), ("GROUPS", "PANEL", "WIDTH", "BLOCK_M", "BLOCK_N")),
}
Shape = tuple[int, int, int]
"""(M, N, K) of a product."""

_DRAWN: Final = {"tune": 60, "held_out": 10, "fresh": 10}
"""Number of random shapes for each use; ``tune`` has the listed shapes as well."""
_DRAWN_FEW: Final = {"tune": 180, "held_out": 10, "fresh": 10}
"""Number of random shapes with few rows for each use; there, the fastest config changes from one size to the next."""
# rows of the result that the check compares with torch's
_ROWS: Final = 256
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
# variance of weights that are uniform on -8 to 7
_VARIANCE: Final = 21.25
_LAYERS: Final = ((8192, 8192), (4096, 4096), (28672, 4096), (4096, 14336))
_GROUP: Final = 128
"""Rows of w that share a scale, in problems with scales."""
_FEW: Final = (1, 2, 4, 8, 12, 16, 24, 32)
_MANY: Final = (32, 64, 128, 512, 1024, 4096)

BARS: Final[Mapping[str, tuple[Shape, ...]]] = {
    "mixed_mm_few": tuple((m, n, k) for m in (1, 8, 16) for n, k in _LAYERS),
    "mixed_mm_sm90": tuple((m, n, k) for m in (64, 1024, 4096) for n, k in _LAYERS),
    "mixed_mm": ((1024, 4096, 4096), (4096, 8192, 8192)),
}
"""The shapes for which the documentation promises a speed, by kernel."""
TUNED: Final[Mapping[str, tuple[Shape, ...]]] = {
    "mixed_mm_few": tuple((m, n, k) for m in _FEW for n, k in (*_LAYERS, (10240, 8192))),
    "mixed_mm_sm90": tuple((m, n, k) for m in _MANY for n, k in (*_LAYERS, (6144, 4096))),
    "mixed_mm": tuple((m, n, k) for m in _MANY for n, k in ((8192, 8192), (4096, 4096), (14336, 4096))),
}
"""The shapes that the tuner measures to make tuning tables, by kernel."""


@dataclass(frozen=True, slots=True)
class MixedProblem:
    """One product on one kernel; the check compares the first rows of its result with torch's."""

    shape: Shape
    kernel: str
    dtype: str
    scaled: bool = False
    """True if groups of weights have scales."""

    @property
    def name(self) -> str:
        """The shape as a phrase, and whether weights have scales."""
        rows, cols, depth = self.shape
        return f"{rows} tokens, {depth} to {cols}{', scales' if self.scaled else ''}"

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports, by its bottleneck: loading weights, or compute."""
        return "decode" if self.shape[0] <= 64 else "prefill"

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        rows, cols, depth = self.shape
        return {"m": rows, "n": cols, "k": depth, "scaled": self.scaled}

    @property
    def weight(self) -> float:
        """Weight of the problem in tuning: shapes of known models weigh more than random ones."""
        return NAMED if self.shape in TUNED[self.kernel] else 1.0

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected first rows of the result in fp32."""
        (rows, cols, depth), dtype = self.shape, _DTYPES[self.dtype]
        source = generator(self.name, device)
        a = torch.randn(rows, depth, generator=source, device=device, dtype=dtype)
        # scaled so that results are near one
        a.mul_((_VARIANCE * depth) ** -0.5)
        b = torch.randint(0, 256, (depth // 2, cols), generator=source, device=device, dtype=torch.uint8)
        scales, size = None, None
        if self.scaled:
            size = _GROUP
            scales = torch.rand(-(-depth // size), cols, generator=source, device=device).add_(0.5).to(dtype)
        operands = (a, b, scales, None)
        call = prepare(operands, None, size, lambda kernel, _: kernel == self.kernel)
        launch, out = requested(lambda: call(operands, None))
        # as kernels do, round dequantized weights once
        weights = reference.unpack(b, dtype, scales, None, size)
        expected = a[:_ROWS].float() @ weights.float()
        return launch.work(
            outputs=(out[:_ROWS],),
            expected=(expected,),
            # tensor cores add in another order than the reference
            tolerances=(rounding(expected, dtype) + 1e-5 * depth**0.5,),
            moved_bytes=b.numel() + (a.numel() + out.numel()) * a.itemsize,
            flops=2 * rows * cols * depth,
        )


def problems(use: str) -> tuple[MixedProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return tuple(
        MixedProblem(shape, kernel, "bf16", scaled)
        for kernel, scaled in (*((kernel, False) for kernel in TUNED), ("mixed_mm_few", True), ("mixed_mm_sm90", True))
        for shape in _shapes(use, kernel, scaled)
    )


def _shapes(use: str, kernel: str, scaled: bool) -> Sequence[Shape]:
    if use == "bars":
        return [shape for shape in BARS[kernel] if _is_whole(shape, kernel)]
    draw = partial(_draw, kernel=kernel)
    name = f"mixed_mm/{kernel}{'/scales' if scaled else ''}"
    counts = _DRAWN_FEW if kernel == "mixed_mm_few" else _DRAWN
    listed = [shape for shape in TUNED[kernel] if _is_whole(shape, kernel)]
    return listed_and_drawn(use, name, listed, draw, counts=counts, key=tuple)


def _is_whole(shape: Shape, kernel: str) -> bool:
    """Return whether one launch of `kernel` writes the result: `mixed_mm_sm90` uses split-K if there are few tiles."""
    return kernel != "mixed_mm_sm90" or mapped_parts(*shape, OTHERS) == 1


def _draw(rng: Random, kernel: str) -> Shape:
    """Draw a random product that `kernel` computes without split-K."""
    while True:
        rows = round(2 ** rng.uniform(0, 5)) if kernel == "mixed_mm_few" else 8 * round(2 ** rng.uniform(2, 9))
        shape = rows, 128 * rng.randint(32, 160), 128 * rng.randint(8, 112)
        if _is_whole(shape, kernel):
            return shape
