"""Calls of grouped products: dtypes, lengths of groups, layouts, biases and alignments, and ranges of K."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

import torch
from nojit.kernels.grouped_mm import grouped_mm, launch, op, reference
from nojit.kernels.grouped_mm.cost import TILES
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, view
from tests.gpu.gemm_calls import as_tf32, in_fp32, prepared_anew
from tests.gpu.matmul_calls import TF32_FACTOR, switched

RAGGED = (65, 1, 0, 127, 300, 0, 64, 128)
FEW = (0, 3, 17, 1, 0, 0, 40, 64, 5, 0)
LARGE = (1000, 3000, 1, 130)
SPARSE = tuple(1 + 7 * (group % 11 == 0) for group in range(160))


@contextmanager
def chosen(module: ModuleType, tile: tuple[int, int] | None) -> Iterator[None]:
    """Have a module that prepares launches choose `tile`, unless it is None."""
    plain = module.tile_of
    with mock.patch.object(module, "tile_of", lambda *sizes, **named: tile or plain(*sizes, **named)):
        yield


@dataclass(frozen=True)
class Case:
    """One grouped product."""

    lengths: tuple[int, ...] = RAGGED
    n: int = 264
    k: int = 200
    dtype: torch.dtype = torch.bfloat16
    columns: bool = True
    """Whether matrices are stored by columns, as weights are."""
    bias: str = "none"
    """A bias of each group, one of all of them (``shared``), or none."""
    past: int = 9
    """Rows past the last end."""
    offset: int = 0
    maps: bool = True
    """Whether the kernel over tensor maps may run where it can."""
    depth: bool = False
    """Whether the groups are ranges of K."""
    tf32: bool = False
    tile: tuple[int, int] | None = None
    """Rows and columns of the tile, if the cost model is not to choose."""

    @property
    def label(self) -> str:
        lengths = f"{len(self.lengths)} groups, {sum(self.lengths)} rows"
        flags = (
            str(self.dtype)[6:],
            "columns" if self.columns else "",
            f"bias {self.bias}" if self.bias != "none" else "",
            f"{self.past} past",
            f"offset {self.offset}" if self.offset else "",
            "" if self.maps else "pointers",
            "depth" if self.depth else "",
            "tf32" if self.tf32 else "",
            "" if self.tile is None else f"{self.tile[0]} x {self.tile[1]}",
        )
        return f"{lengths} {self.n} {self.k} {' '.join(filter(None, flags))}"

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Make both factors, the ends and the bias; rows past the last end are NaN."""
        rows, groups = sum(self.lengths), len(self.lengths)
        a = view((rows + self.past, self.k), self.dtype, 1, offset=self.offset)
        a[rows:] = float("nan")
        offs = torch.tensor(self.lengths, device="cuda").cumsum(0).to(torch.int32)
        if self.depth:
            b = view((rows + self.past, self.n), self.dtype, 2, offset=self.offset)
            b[rows:] = float("nan")
            return (a.t() if self.columns else a.t().contiguous()), b, offs, None
        sides = (self.n, self.k) if self.columns else (self.k, self.n)
        b = view((groups, *sides), self.dtype, 2, offset=self.offset)
        shape = (self.n,) if self.bias == "shared" else (groups, self.n)
        bias = None if self.bias == "none" else view(shape, self.dtype, 3)
        return a, b.mT if self.columns else b, offs, bias

    def run(self) -> Outputs:
        """Multiply; rows past the last end must stay as they are."""
        a, b, offs, bias = self.inputs()
        rows = sum(self.lengths)
        with switched(self.tf32), chosen(launch, self.tile), prepared_anew(op, launch, self.maps):
            if self.depth:
                return (grouped_mm(a, b, offs),)
            out = torch.full((rows + self.past, self.n), float("nan"), dtype=self.dtype, device="cuda")
            out[rows:] = 7.0
            grouped_mm(a, b, offs, bias=bias, out=out)
        assert (out[rows:] == 7).all(), "rows past the last end were written"
        return (out[:rows],)

    def exact(self, *, cut: bool = False) -> Outputs:
        """Multiply in fp64; with `cut`, operands of TF32."""
        a, b, offs, bias = self.inputs()
        a, b = (as_tf32(a), as_tf32(b)) if cut else (a, b)
        whole = reference.grouped_mm(a.double(), b.double(), offs, bias=None if bias is None else bias.double())
        return (whole if self.depth else whole[: sum(self.lengths)],)

    def torchs(self) -> Outputs:
        """Multiply group by group, and add the bias in fp32."""
        if self.tf32:
            return in_fp32(self.exact(cut=True))
        a, b, offs, bias = self.inputs()
        if bias is None:
            whole = reference.grouped_mm(a, b, offs)
        else:
            whole = reference.grouped_mm(a.float(), b.float(), offs, bias=bias.float()).to(self.dtype)
        return (whole if self.depth else whole[: sum(self.lengths)],)

    def call(self) -> Call:
        return Call(f"grouped_mm {self.label}", self.run, self.exact, self.torchs, (TF32_FACTOR if self.tf32 else 2.0,))


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for dtype, columns in itertools.product(DTYPES, (False, True)):
        for lengths in (RAGGED, FEW, LARGE, SPARSE):
            for bias in ("none", "shared", "each"):
                yield Case(lengths, dtype=dtype, columns=columns, bias=bias)
            # sizes that suit every hint, and none
            yield Case(lengths, 512, 256, dtype, columns, maps=False)
            yield Case(lengths, 135, 77, dtype, columns, offset=1)
            yield Case(lengths, 512, 256, dtype, columns, depth=True)
            yield Case(lengths, 512, 256, dtype, columns, depth=True, maps=False)
            yield Case(lengths, 264, 200, dtype, columns, depth=True)
            yield Case(lengths, 135, 77, dtype, columns, depth=True, offset=1)
        yield Case((700, 900, 0, 800), 1600, 320, dtype, columns, maps=False)
        yield Case((700, 900, 0, 800), 1600, 48, dtype, columns, depth=True)
    for columns, bias, (lengths, n) in itertools.product(
        (False, True), ("none", "each"), ((SPARSE, 1600), (LARGE, 4096), ((200,) * 12, 1024), ((0, 90, 0), 136))
    ):
        for dtype in (torch.float16, torch.bfloat16):
            yield Case(lengths, n, 1032, dtype, columns, bias, past=0)
    for columns, bias, tile, lengths in itertools.product((False, True), ("none", "each"), TILES, (RAGGED, SPARSE)):
        for dtype in (torch.float16, torch.bfloat16):
            yield Case(lengths, 520, 328, dtype, columns, bias, tile=(tile.rows, tile.cols))
    for columns, (n, k, offset) in itertools.product((False, True), ((512, 256, 0), (135, 77, 1))):
        for depth in (False, True):
            yield Case(RAGGED, n, k, torch.float32, columns, offset=offset, depth=depth, tf32=True)
    yield Case((0, 0, 0))
    yield Case((1,), past=0)
    yield Case((512,) * 3, 8, 8, past=0)


def grouped_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()
