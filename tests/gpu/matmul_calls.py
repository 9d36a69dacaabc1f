"""Calls of block-sparse products: every mode, transpose, tile, alignment and dtype, and gradients of both operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from unittest import mock

import torch
from nojit.kernels.block_sparse import packing, reference
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.matmul import launch_sm90
from nojit.kernels.block_sparse.matmul.op import block_sparse_matmul
from torch import Tensor

from tests.gpu.calls import Call, Outputs, view

# of both widths, rows of strips and tiles of sparse results
_HEIGHTS = {torch.float16: (64, 128), torch.bfloat16: (64, 128), torch.float32: (32, 64, 128)}
_TILES = {torch.float16: packing.TILES[True], torch.bfloat16: packing.TILES[True], torch.float32: packing.TILES[False]}
_BLOCKS = (16, 32, 64, 128)
VECTOR_FACTOR = 5.0
"""Of torch's own error: it multiplies by a vector with sums in many parts, which err less than one long sum does."""
TF32_FACTOR = 5.0
"""Of torch's own error: sm_90's tensor cores cut operands to TF32 where cuBLAS rounds them, twice the error and one-sided."""


@dataclass(frozen=True)
class Case:
    """One product; whatever the rule for tiles says, it runs with this one."""

    mode: str
    dtype: torch.dtype
    block: int
    tile: tuple[int, int]
    """Rows of strips and tiles, and columns of tiles."""
    trans: tuple[bool, bool, bool] = (False, False, False)
    offset: int = 0
    free: int = 272
    tf32: bool = False
    deterministic: bool = True
    maps: bool = True
    """Whether the kernels over tensor maps may run where they can."""

    @property
    def label(self) -> str:
        names = [name for name, on in zip("abc", self.trans, strict=True) if on]
        flags = [f"trans {''.join(names)}" if names else "", "tf32" if self.tf32 else ""]
        flags += [
            "" if self.deterministic else "any order",
            "" if self.maps else "pointers",
            f"offset {self.offset}",
            f"free {self.free}",
        ]
        words = " ".join(filter(None, flags))
        return f"{self.mode} {str(self.dtype)[6:]} block {self.block} tile {self.tile} {words}"

    def layout(self) -> BlockLayout:
        """Make a layout with long rows, an empty row, an empty column, and an empty head."""
        rows, cols = 650 // self.block, 900 // self.block
        chance = torch.Generator().manual_seed(self.block)
        active = torch.rand(3, rows, cols, generator=chance) < 0.3
        active[0, 0], active[:, 2], active[:, :, 0], active[-1] = False, True, False, False
        layout = BlockLayout(active, self.block)
        with self._fixed():
            layout.packing("cuda", self.dtype)
        return layout

    @contextmanager
    def _fixed(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, value in (("choose_height", self.tile[0]), ("choose_tile", self.tile)):
                stack.enter_context(mock.patch.object(packing, name, return_value=value))
            # so that rows of this length are cut
            stack.enter_context(mock.patch.object(packing, "LONG_ROWS", 128))
            yield

    def _kernels(self) -> AbstractContextManager[object]:
        return nullcontext() if self.maps else mock.patch.object(launch_sm90, "takes_maps", return_value=False)

    def inputs(self, layout: BlockLayout) -> tuple[Tensor, Tensor]:
        (rows, cols), (trans_a, trans_b, trans_c) = layout.shape, self.trans

        def dense(seed: int, height: int, width: int, transposed: bool) -> Tensor:
            sides = (width, height) if transposed else (height, width)
            return view((2, 3, *sides), self.dtype, seed, offset=self.offset)

        sparse = view((2, layout.nnz, self.block, self.block), self.dtype, 3, offset=self.offset)
        if self.mode == "sdd":
            m, n = (cols, rows) if trans_c else (rows, cols)
            return dense(1, m, self.free, trans_a), dense(2, self.free, n, trans_b)
        if self.mode == "dsd":
            return sparse, dense(2, rows if trans_a else cols, self.free, trans_b)
        return dense(1, self.free, cols if trans_b else rows, trans_a), sparse

    def _factor(self) -> float:
        if self.tf32:
            return TF32_FACTOR
        return VECTOR_FACTOR if self.free == 1 and self.dtype == torch.float32 else 2.0

    def call(self, *, gradients: bool = False, of: str = "ab", expanded: bool = False) -> Call:
        """Make the call.

        Args:
            gradients: whether those of operands are computed, too.
            of: which operands have one.
            expanded: whether the gradient that comes in repeats one number, as that of a sum does.
        """
        # made where it is used: of many calls, a checker launches a few
        layout = cache(self.layout)
        words = dict(zip(("trans_a", "trans_b", "trans_c"), self.trans, strict=True))

        def run(function: Callable[..., Tensor], wide: torch.dtype | None = None, **more: bool) -> Outputs:
            a, b = (x.to(wide) if wide else x for x in self.inputs(layout()))
            with switched(self.tf32 and wide is None), self._kernels():
                if not gradients:
                    return (function(a, b, layout(), self.mode, **words, **more),)
                wanted = [x.requires_grad_() for name, x in (("a", a), ("b", b)) if name in of]
                out = function(a, b, layout(), self.mode, **words, **more)
                grad = view(() if expanded else tuple(out.shape), self.dtype, 4).to(out.dtype).expand(out.shape)
                return (out.detach(), *torch.autograd.grad(out, wanted, grad))

        asked = f"{'' if of == 'ab' else f' gradient of {of}'}{' expanded' if expanded else ''}"
        return Call(
            f"block_sparse_matmul {self.label}{asked}",
            lambda: run(block_sparse_matmul, deterministic=self.deterministic),
            lambda: run(reference.block_sparse_matmul, torch.float64),
            lambda: run(reference.block_sparse_matmul),
            (2.0, *(3.0,) * len(of)) if gradients else (self._factor(),),
        )


@contextmanager
def switched(allow: bool) -> Iterator[None]:
    """Set torch's switch for TF32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allow
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _precisions() -> Iterator[tuple[torch.dtype, bool]]:
    yield from ((dtype, False) for dtype in _HEIGHTS)
    yield torch.float32, True


def _both_ways(  # noqa: PLR0917 - the facts of a case
    mode: str, dtype: torch.dtype, block: int, tile: tuple[int, int], offset: int, tf32: bool
) -> Iterator[Case]:
    """List the transposes of both operands, over pointers and, where there are such kernels, over maps."""
    mappable = (
        dtype != torch.float32 and block >= launch_sm90.LEAST_BLOCK and tile[0] == launch_sm90.ROWS and not offset
    )
    for trans_a, trans_b, maps in itertools.product((False, True), (False, True), (False, True)):
        if mappable or not maps:
            yield Case(mode, dtype, block, tile, (trans_a, trans_b, False), offset, tf32=tf32, maps=maps)


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for (dtype, tf32), block, offset in itertools.product(_precisions(), _BLOCKS, (0, 1)):
        for height, mode in itertools.product(_HEIGHTS[dtype], ("dsd", "dds")):
            if height >= block:
                yield from _both_ways(mode, dtype, block, (height, 128), offset, tf32)
        for tile in _TILES[dtype]:
            if tile[0] >= block:
                yield from _both_ways("sdd", dtype, block, tile, offset, tf32)
    for dtype, mode, block in itertools.product((torch.float16, torch.bfloat16), ("dsd", "dds"), (32, 64)):
        for turned in (False, True):
            # as wide as a head
            trans = (turned, False, False) if mode == "dsd" else (False, turned, False)
            yield Case(mode, dtype, block, (128, 128), trans, free=64)
    for dtype, mode in itertools.product(_HEIGHTS, ("sdd", "dsd", "dds")):
        for free in (1, 40, 799):
            yield Case(mode, dtype, 64, (64, 128), (False, True, True), free=free)
        yield Case(mode, dtype, 64, (64, 128), (True, False, True), deterministic=False)


def matmul_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()


def gradient_calls() -> Iterator[Call]:
    for dtype, mode, block in itertools.product(_HEIGHTS, ("sdd", "dsd", "dds"), (16, 64)):
        for trans in itertools.product((False, True), repeat=3):
            yield Case(mode, dtype, block, (64, 128), trans, free=96).call(gradients=True)
    for dtype, mode in itertools.product(_HEIGHTS, ("sdd", "dsd", "dds")):
        case = Case(mode, dtype, 64, (64, 128), (False, mode == "sdd", False), free=96)
        for of in ("a", "b"):
            yield case.call(gradients=True, of=of)
            yield case.call(gradients=True, of=of, expanded=True)
        yield case.call(gradients=True, expanded=True)
