"""Matrix products to tune and measure: launches of each kernel for the shapes of `nojit.kernels.products.problem_shapes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import torch
from nojit.kernels.bmm.launch import prepare
from nojit.kernels.calls.tensor_maps import OTHERS
from nojit.kernels.problem import (
    NAMED,
    RequestedLaunch,
    Roles,
    Work,
    check_use,
    generator,
    listed_and_drawn,
    requested,
    rounding,
)
from nojit.kernels.products.problem_shapes import BARS, TUNED, Shape, draw_shape
from nojit.kernels.products.splits import splits_of
from torch import Tensor

__all__ = ["ROLES", "GemmProblem", "problems"]

ROLES: Final[Mapping[str, Roles]] = {
    "bmm": Roles(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"), ("PRECISION",), ()),
    "bmm_few": Roles(("BLOCK_N", "BLOCK_K", "PARTS"), (), ("EPILOGUE", "ROWS")),
    "bmm_row": Roles(("BLOCK_N", "BLOCK_K", "STAGES"), (), ("EPILOGUE", "ROWS")),
    "bmm_merge": Roles(("BLOCK",), (), ()),
    "bmm_sm90": Roles(
        ("BLOCK_M", "BLOCK_N", "GROUP", "STAGES"), (), ("PANEL", "TRANS_A", "TRANS_B", "EPILOGUE", "ROWS")
    ),
    "bmm_tiles_sm90": Roles(
        ("GROUP", "STAGES"), (), ("PANEL", "TRANS_A", "TRANS_B", "EPILOGUE", "ROWS", "BLOCK_M", "BLOCK_N")
    ),
    "bmm_pad": Roles(("ROWS", "COLS"), (), ()),
    "bmm_waves_sm90": Roles(("STAGES",), (), ("TRANS_A", "TRANS_B", "BLOCK_M", "BLOCK_N", "GROUP")),
    "bmm_waves_merge": Roles(("ROWS",), (), ("BLOCK_M", "BLOCK_N", "GROUP")),
}

_DRAWN: Final = {"tune": 110, "held_out": 12, "fresh": 12}
"""Number of random shapes for each use; ``tune`` has the listed shapes as well."""
_CUT: Final = {"tune": 24, "held_out": 12, "fresh": 12}
"""Number of random shapes with split-K for each use."""
# rows of the result that the check compares with torch's
_ROWS: Final = 256
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_DEEP: Final = tuple(
    Shape(f"{m} rows, {n} columns, {k} deep", 1, m, n, k)
    for m, n in ((1, 1024), (16, 512), (64, 256), (128, 128))
    for k in (4096, 6144, 8192, 16384)
)
"""Shapes for which the split-K kernels are tuned."""


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """One product on one kernel; the check compares the first rows of the result's first matrix with torch's."""

    shape: Shape
    kernel: str
    dtype: str

    @property
    def name(self) -> str:
        """The name of the shape and the memory order of b."""
        return f"{self.shape.name}, b by columns" if self.shape.trans_b else self.shape.name

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports."""
        return self.shape.kind

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        shape = self.shape
        return {"batch": shape.batch, "m": shape.m, "n": shape.n, "k": shape.k, "trans_b": shape.trans_b}

    @property
    def weight(self) -> float:
        """Weight of the problem in tuning: shapes of known models weigh more than random ones."""
        return NAMED if self.shape in TUNED else 1.0

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected first rows of the result in fp32."""
        shape, dtype, source = self.shape, _DTYPES[self.dtype], generator(self.name, device)
        a = torch.randn(shape.batch, shape.m, shape.k, generator=source, device=device, dtype=dtype)
        sides = (shape.n, shape.k) if shape.trans_b else (shape.k, shape.n)
        b = torch.randn(shape.batch, *sides, generator=source, device=device, dtype=dtype)
        # scaled so that results are near one
        b.mul_(shape.k**-0.5)
        b = b.mT if shape.trans_b else b
        call = prepare(a, b, None, None, has_epilogue=False, maps_run=lambda _: self.kernel == "bmm_sm90", tuned=True)
        launch, out = requested(lambda: call(a, b, None, None, (0, 1.0, 0.0)), self.kernel)
        if self.kernel == "bmm_merge":
            parts = launch.args[0].normal_(generator=source)
            output, expected = out[:1, :_ROWS], parts[:, :1, :_ROWS, : shape.n].sum(0)
            moved = parts.numel() * parts.itemsize + out.numel() * out.itemsize
            tolerance = rounding(expected, dtype) + 1e-5 * len(parts)
            return _work(launch, (output, expected, tolerance), moved, parts.numel())
        output, expected = out[:1, :_ROWS], a[:1, :_ROWS].float() @ b[:1].float()
        # tensor cores add in another order than the reference
        tolerance = rounding(expected, dtype) + 1e-5 * shape.k**0.5
        return _work(launch, (output, expected, tolerance), shape.elements * a.itemsize, shape.flops)


def _work(launch: RequestedLaunch, checked: tuple[Tensor, Tensor, float], moved_bytes: int, flops: int) -> Work:
    """Return a launch with its expected result; `checked` has an output, its expected values and the allowed error."""
    output, expected, tolerance = checked
    return launch.work(
        outputs=(output,),
        expected=(expected,),
        tolerances=(tolerance,),
        moved_bytes=moved_bytes,
        flops=flops,
    )


def problems(use: str) -> tuple[GemmProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return (
        *(GemmProblem(shape, "bmm", "bf16") for shape in _whole(use, "bmm")),
        *(GemmProblem(shape, "bmm_merge", "bf16") for shape in _cut(use)),
        *(GemmProblem(shape, "bmm_sm90", "bf16") for shape in _whole(use, "bmm_sm90")),
    )


def _is_whole(shape: Shape) -> bool:
    return splits_of(shape.batch, shape.m, shape.n, shape.k, OTHERS) == 1


def _whole(use: str, kernel: str) -> list[Shape]:
    """List the shapes for which `kernel` writes the result in one launch, without split-K.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    if use == "bars":
        return [shape for shape in BARS if _is_whole(shape)]
    listed = [shape for shape in TUNED if _is_whole(shape)]
    return listed_and_drawn(use, f"gemm/{kernel}", listed, _draw_whole, counts=_DRAWN, key=_name)


def _cut(use: str) -> list[Shape]:
    """List the shapes whose products are computed with split-K.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    if use == "bars":
        return [*_DEEP[:1]]
    return listed_and_drawn(use, "gemm/bmm_merge", _DEEP, _draw_cut, counts=_CUT, key=_name)


def _name(shape: Shape) -> str:
    return shape.name


def _draw_whole(rng: Random) -> Shape:
    while not _is_whole(shape := draw_shape(rng)):
        pass
    return shape


def _draw_cut(rng: Random) -> Shape:
    while True:
        m, n, k = rng.choice((1, 8, 32, 100)), 16 * rng.randint(2, 40), 64 * rng.randint(32, 200)
        shape = Shape(f"{m} rows, {n} columns, {k} deep", 1, m, n, k)
        if not _is_whole(shape):
            return shape
