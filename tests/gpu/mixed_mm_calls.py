"""Calls of products with weights of 4 bits: every kernel, dtype, kind of bytes and of groups, alignments, and the gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from nojit.kernels.mixed_mm import launch, op, reference, uint4x2_mixed_mm
from nojit.kernels.mixed_mm.cost import DIVIDED
from nojit.kernels.products.tile_costs import Tiling
from torch import Tensor

from tests.gpu.call import Call, Outputs, view

# M, N, K
ONE = (1, 8192, 1024)
FEW = (16, 2064, 2096)
WIDE = (3, 17008, 272)
NARROW = (7, 1024, 4096)
"""Cut into parts by the kernel for few rows."""
SEVERAL = (25, 4112, 2096)
SOME = (33, 1040, 528)
DEEP = (70, 1040, 4112)
"""Cut into parts by the kernel over maps, with the tile that the cost model chooses."""
TALL = (520, 208, 4112)
"""Cut into parts by the kernel over maps, with a tuned tile."""
MANY = (1100, 4112, 1072)
MOST = (2048, 6144, 512)
RAGGED = (47, 203, 2062)
BOTH = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    """One product."""

    dtype: torch.dtype
    sizes: tuple[int, int, int]
    groups: str = "none"
    group_size: int | None = None
    held: torch.dtype = torch.uint8
    offset: int = 0
    columns: bool = False
    """Whether b is stored by columns."""
    only: str | None = None
    """The one kernel that may run besides that over pointers; any if None."""
    tiling: Tiling | None = None
    """The tile and the parts of K, if the cost model is not to choose."""

    @property
    def label(self) -> str:
        flags = (
            "" if self.groups == "none" else f"{self.groups} of {self.group_size}",
            "" if self.held == torch.uint8 else str(self.held)[6:],
            f"offset {self.offset}" if self.offset else "",
            "b by columns" if self.columns else "",
            "" if self.only is None else f"only {self.only}",
            "" if self.tiling is None else f"{self.tiling.rows} x {self.tiling.cols} in {self.tiling.parts} parts",
        )
        return f"{str(self.dtype)[6:]} {self.sizes} {' '.join(filter(None, flags))}".strip()

    def inputs(self) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Make a, b, and the words of the call."""
        m, n, k = self.sizes
        generator = torch.Generator("cuda").manual_seed(2)
        a = view((m, k), self.dtype, 1, offset=self.offset)
        shape = (n, k // 2) if self.columns else (k // 2, n)
        flat = torch.randint(0, 256, (k // 2 * n + self.offset,), generator=generator, device="cuda", dtype=torch.uint8)
        b = (
            flat[self.offset :].view(shape).to(self.held)
            if self.held != torch.uint8
            else flat[self.offset :].view(shape)
        )
        words: dict[str, Any] = {}
        if self.groups != "none":
            count = 1 if self.group_size is None else -(-k // self.group_size)
            words = {"scales": view((count, n), self.dtype, 3).abs_().add_(0.5), "group_size": self.group_size}
        if self.groups == "zeros":
            # some are no whole numbers
            words["zeros"] = view((count, n), self.dtype, 4).mul_(2).add_(8)
        return a, b.T if self.columns else b, words

    def call(self, *, gradient: bool = False) -> Call:
        def run(function: Callable[..., Tensor], wide: torch.dtype | None = None) -> Outputs:
            a, b, words = self.inputs()
            if wide is not None:
                a = a.to(wide)
                words = {name: value.to(wide) if isinstance(value, Tensor) else value for name, value in words.items()}
            with prepared_anew(self.only, self.tiling):
                if not gradient:
                    return (function(a, b, **words),)
                out = function(a.requires_grad_(), b, **words)
                grad = view(tuple(out.shape), self.dtype, 9).to(out.dtype)
                return (out.detach(), *torch.autograd.grad(out, a, grad))

        return Call(
            f"uint4x2_mixed_mm {self.label}",
            lambda: run(uint4x2_mixed_mm),
            lambda: run(reference.uint4x2_mixed_mm, torch.float64),
            lambda: run(reference.uint4x2_mixed_mm),
            (2.0, 3.0) if gradient else (2.0,),
        )


@contextmanager
def prepared_anew(only: str | None, tiling: Tiling | None = None) -> Iterator[None]:
    """Prepare calls anew, for the kernels that may run, with a tile of one's own unless it is None."""
    plain, chosen = launch.runs, launch.tiling_of

    def runs(kernel: str, a: Tensor) -> bool:
        return plain(kernel, a) and only in {None, kernel}

    def tiling_of(*sizes: int) -> Tiling:
        return tiling or chosen(*sizes)

    with mock.patch.object(launch, "runs", runs), mock.patch.object(launch, "tiling_of", tiling_of):
        op._MEMO.forget()
        yield
        op._MEMO.forget()


_GROUPS = (("none", None), ("scales", 128), ("scales", None), ("zeros", 64), ("zeros", 256))


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for dtype, (groups, size) in itertools.product(BOTH, _GROUPS):
        for sizes in (ONE, FEW, WIDE, NARROW, SEVERAL, SOME, DEEP, TALL, MANY, MOST):
            yield Case(dtype, sizes, groups, size)
        for sizes in (FEW, MANY):
            yield Case(dtype, sizes, groups, size, only="mixed_mm")
        # whatever the cost model chooses for so many rows
        yield Case(dtype, SEVERAL, groups, size, only="mixed_mm_few")
    for dtype, held in itertools.product(BOTH, (torch.uint8, torch.int32, torch.int64)):
        for groups, size in (("none", None), ("zeros", 128), ("zeros", 6)):
            yield Case(dtype, RAGGED, groups, size, held)
            yield Case(dtype, (200, 512, 512), groups, size, held, only="mixed_mm")
            yield Case(dtype, (200, 512, 512), groups, size, held, offset=1)
            yield Case(dtype, FEW, groups, size, held, columns=True)
    for dtype, (groups, size), side in itertools.product(BOTH, _GROUPS[::3] + _GROUPS[1:2], DIVIDED):
        yield Case(dtype, (300, 528, 336), groups, size, tiling=Tiling(*side, 1))
        yield Case(dtype, (200, 528, 1104), groups, size, tiling=Tiling(*side, 3))
    for dtype in BOTH:
        yield Case(dtype, FEW, "scales", 32)
        yield Case(dtype, MANY, "scales", 32)


def mixed_mm_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()


def gradient_calls() -> Iterator[Call]:
    for dtype, (groups, size), sizes in itertools.product(BOTH, _GROUPS[:4], (FEW, SOME)):
        yield Case(dtype, sizes, groups, size).call(gradient=True)
