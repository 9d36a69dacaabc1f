"""Shapes for tests, tuning and benchmarks of pointwise operators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from nojit.kernels.pointwise import op, reference
from nojit.kernels.pointwise.source import parts
from nojit.kernels.pointwise.spec import read_specs
from nojit.kernels.problem import DRAWN, Roles, Work, check_use, draws, generator, requested, rounding
from torch import Tensor

__all__ = ["PROBLEMS", "ROLES", "PointwiseProblem", "PointwiseShape", "problems"]


@dataclass(frozen=True, slots=True)
class PointwiseShape:
    """One shape, which all operands have."""

    name: str
    shape: tuple[int, ...]


PROBLEMS: Final = {
    "test": (
        PointwiseShape("one element", (1,)),
        PointwiseShape("under a block", (1023,)),
        PointwiseShape("one block", (1024,)),
        PointwiseShape("over a block", (1025,)),
        PointwiseShape("odd sides", (3, 7, 41)),
    ),
    "tune": (
        PointwiseShape("prefill of 4k, 4096 wide", (4096, 4096)),
        PointwiseShape("one token, 4096 wide", (1, 4096)),
        PointwiseShape("512 MiB of bf16", (1 << 28,)),
        PointwiseShape("chunk of 512, FFN of 8B", (512, 14336)),
        PointwiseShape("one token, FFN of 8B", (1, 14336)),
        PointwiseShape("prefill of 8k, FFN of 8B", (8192, 14336)),
        PointwiseShape("decode of 64, FFN of 8B", (64, 14336)),
        PointwiseShape("one vector", (16,)),
        PointwiseShape("decode of 16, 4096 wide", (16, 4096)),
        PointwiseShape("square of 2048", (2048, 2048)),
        PointwiseShape("chunk of 512, 4096 wide", (512, 4096)),
        PointwiseShape("prefill of 4k, FFN of 70B", (4096, 28672)),
        PointwiseShape("one block", (1024,)),
        PointwiseShape("decode of 256, 4096 wide", (256, 4096)),
        PointwiseShape("decode of 32, 4096 wide", (32, 4096)),
        PointwiseShape("prefill of 2k, FFN of 8B", (2048, 14336)),
        PointwiseShape("decode of 16, FFN of 70B", (16, 28672)),
        PointwiseShape("square of 512", (512, 512)),
        PointwiseShape("prefill of 8k, 8192 wide", (8192, 8192)),
        PointwiseShape("chunk of 1k, FFN of 8B", (1024, 14336)),
        PointwiseShape("1 GiB of bf16", (1 << 29,)),
        PointwiseShape("skinny, 2^20 x 16", (1 << 20, 16)),
    ),
    "bars": (
        PointwiseShape("32 MiB of fp16", (1 << 24,)),
        PointwiseShape("512 MiB of fp16", (1 << 28,)),
        PointwiseShape("past 2^31 elements", ((1 << 31) + 1024,)),
    ),
}
"""Shapes by use: `test` is small enough for Triton's interpreter, `bars` has those with promised speed.

`tune` lists a coarse selection first: a tuner that runs out of time has then measured all magnitudes.
"""

# number of tensors of each measured operator; others with as many tensors behave the same
_TENSORS: Final = {"vector_add": 3, "gelu": 2, "silu": 2, "swiglu": 3, "addcmul": 4}
_FLOPS: Final = {"vector_add": 1, "gelu": 12, "silu": 6, "swiglu": 7, "addcmul": 3}
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# widths of random shapes, combined with random token counts
_WIDTHS: Final = (1024, 2560, 3072, 5120, 6144, 9216, 11008, 13824, 18432, 27648)
_HELD_OUT: Final = 12
_MOST: Final = 1 << 29


def _roles() -> dict[str, Roles]:
    found = {}
    for spec in read_specs(Path(__file__).with_name("operators.toml")).operators:
        for part in parts(spec):
            words = (part.word,) if part.choice else ()
            found[part.kernel] = Roles(("BLOCK", "TILES", "STREAM"), (), words)
            found[f"{part.kernel}_rectangles"] = Roles(("BY", "BX"), (), ("KINDS", *words))
    return found


ROLES: Final[Mapping[str, Roles]] = _roles()


@dataclass(frozen=True, slots=True)
class PointwiseProblem:
    """One call of one operator on one shape."""

    name: str
    kernel: str
    dtype: str
    shape: tuple[int, ...]
    approximate: str = ""
    """For gelu, the value of its argument `approximate`."""

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports, by its bottleneck: launch, L2, or memory."""
        total = self.n * _TENSORS[self.kernel] * _DTYPES[self.dtype].itemsize
        return "launch" if total < 1 << 20 else "cache" if total < 48 << 20 else "memory"

    @property
    def n(self) -> int:
        """Number of elements of each operand."""
        return math.prod(self.shape)

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Number of elements and the operator's choice, by name, for the tuner."""
        return {"n": self.n} | ({"approximate": self.approximate} if self.approximate else {})

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected result in fp32."""
        dtype = _DTYPES[self.dtype]
        source = generator(self.name, device)
        count = _TENSORS[self.kernel] - 1
        operands = [torch.randn(self.shape, generator=source, device=device, dtype=dtype) for _ in range(count)]
        words = (self.approximate,) if self.approximate else ()
        launch, out = requested(lambda: getattr(op, self.kernel)(*operands, *words))
        expected = _expected(self.kernel, operands, words)
        return launch.work(
            outputs=(out,),
            expected=(expected,),
            tolerances=(rounding(expected, dtype),),
            moved_bytes=self.n * (count + 1) * dtype.itemsize,
            flops=self.n * _FLOPS[self.kernel],
        )


def _expected(kernel: str, operands: list[Tensor], words: tuple[str, ...]) -> Tensor:
    """Compute the expected result from operands in fp32, which takes a tenth of the memory of fp64."""
    function = getattr(reference, kernel)
    result: Tensor = function(*(operand.float() for operand in operands), *words)
    return result


def problems(use: str) -> tuple[PointwiseProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return tuple(
        PointwiseProblem(f"{problem.name}, {word}" if word else problem.name, kernel, dtype, problem.shape, word)
        for kernel in _TENSORS
        for place, problem in enumerate(_drawn(use, kernel) if use in DRAWN else PROBLEMS[use])
        for word in (("none", "tanh") if kernel == "gelu" else ("",))
        # memory is the bottleneck: fp32 measures nearly the same as bf16 with twice the elements, so half of its
        # problems suffice
        for dtype in (("bf16", "fp32") if place % 2 == 0 else ("bf16",))
    )


def _drawn(use: str, kernel: str) -> tuple[PointwiseShape, ...]:
    """Draw random shapes, none of them tuned, with sizes uniform on a logarithmic scale.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    rng = draws(f"pointwise/{kernel}", use)
    known = {math.prod(problem.shape) for problem in PROBLEMS["tune"]}
    found: dict[int, PointwiseShape] = {}
    while len(found) < _HELD_OUT:
        width = rng.choice(_WIDTHS)
        tokens = round(2 ** rng.uniform(0, math.log2(_MOST / width)))
        if tokens * width not in known:
            found.setdefault(tokens * width, PointwiseShape(f"{tokens} x {width}", (tokens, width)))
    return tuple(found.values())
