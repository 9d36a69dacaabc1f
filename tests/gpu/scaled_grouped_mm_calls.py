"""Calls of grouped fp8 products: lengths of groups, scales, sums and alignments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from nojit.kernels.scaled_grouped_mm import launch, op, reference, scaled_grouped_mm
from nojit.kernels.scaled_grouped_mm.cost import TILES
from torch import Tensor

from tests.gpu.call import Call, Outputs, view
from tests.gpu.grouped_mm_calls import FEW, LARGE, RAGGED, SPARSE, chosen
from tests.gpu.scaled_mm_calls import fp8, prepared_anew, torch_sums

KINDS = ("ends", "tiles")


@dataclass(frozen=True)
class Case:
    """One grouped product."""

    lengths: tuple[int, ...] = RAGGED
    n: int = 272
    k: int = 208
    kind: str = "ends"
    fast: bool = False
    past: int = 9
    """Rows past the last end."""
    offset: int = 0
    maps: bool = True
    """Whether the kernel over tensor maps may run where it can."""
    tile: tuple[int, int] | None = None
    """Rows and columns of the tile, if the cost model is not to choose."""

    @property
    def label(self) -> str:
        flags = (
            self.kind,
            "fast" if self.fast else "",
            f"{self.past} past",
            f"offset {self.offset}" if self.offset else "",
            "" if self.maps else "pointers",
            "" if self.tile is None else f"{self.tile[0]} x {self.tile[1]}",
        )
        lengths = f"{len(self.lengths)} groups, {sum(self.lengths)} rows"
        return f"{lengths} {self.n} {self.k} {' '.join(filter(None, flags))}"

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Make both factors, their scales and the ends; rows past the last end are NaN."""
        rows, groups = sum(self.lengths), len(self.lengths)
        a = fp8((rows + self.past, self.k), 1, offset=self.offset)
        a.view(torch.uint8)[rows:] = 0x7F
        b = fp8((groups, self.n, self.k), 2, offset=self.offset)
        high, wide = -(-self.k // 128), -(-self.n // 128)
        shapes = ((len(a),), (groups, self.n)) if self.kind == "ends" else ((len(a), high), (groups, high, wide))
        scales = (view(shape, torch.float32, seed).abs() + 0.5 for shape, seed in zip(shapes, (3, 4), strict=True))
        offs = torch.tensor(self.lengths, device="cuda").cumsum(0).to(torch.int32)
        return a, b.mT, *scales, offs  # type: ignore[return-value]

    def run(self) -> Outputs:
        """Multiply; rows past the last end must stay as they are."""
        given, rows = self.inputs(), sum(self.lengths)
        out = torch.full((rows + self.past, self.n), float("nan"), dtype=torch.bfloat16, device="cuda")
        out[rows:] = 7.0
        with chosen(launch, self.tile), prepared_anew(self.maps, op, launch):
            scaled_grouped_mm(*given, use_fast_accum=self.fast, out=out)
        assert (out[rows:] == 7).all(), "rows past the last end were written"
        return (out[:rows],)

    def exact(self) -> Outputs:
        """Multiply in fp64."""
        return (reference.scaled_grouped_mm(*self.inputs())[: sum(self.lengths)],)

    def torchs(self) -> Outputs:
        """Multiply group by group, by torch's dense operator."""
        a, b, scale_a, scale_b, offs = self.inputs()
        whole = self.kind == "ends"
        sums = [torch.zeros(0, self.n, device="cuda")]
        for group, (length, end) in enumerate(zip(self.lengths, offs.tolist(), strict=True)):
            if length:
                rows = slice(end - length, end)
                of_a, of_b = (scale_a[rows, None], scale_b[group, None]) if whole else (scale_a[rows], scale_b[group])
                sums.append(torch_sums(a[rows], b[group], of_a, of_b, fast=self.fast, whole=whole))
        return (torch.cat(sums).bfloat16(),)

    def call(self) -> Call:
        return Call(f"scaled_grouped_mm {self.label}", self.run, self.exact, self.torchs, (2.0,))


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for kind, lengths in itertools.product(KINDS, (RAGGED, FEW, LARGE)):
        for fast in (False, True) if kind == "ends" else (False,):
            yield Case(lengths, kind=kind, fast=fast)
            # an odd number of steps, several columns of tiles
            yield Case(lengths, 1600, 1040, kind, fast, past=0)
            yield Case(lengths, 144, 2064, kind, fast)
        yield Case(lengths, kind=kind, maps=False)
        yield Case(lengths, 512, 256, kind, maps=False)
        yield Case(lengths, 144, 80, kind, offset=1)
    for kind, (lengths, n) in itertools.product(KINDS, ((SPARSE, 1600), ((200,) * 12, 1024), ((0, 90, 0), 144))):
        yield Case(lengths, n, 1040, kind, past=0)
    for kind, tile, lengths in itertools.product(KINDS, TILES, (RAGGED, SPARSE)):
        yield Case(lengths, 528, 656, kind, tile=(tile.rows, tile.cols))
    yield Case((0, 0, 0))
    yield Case((1,), 16, 16, past=0)
    # sums of many products, where those of the tensor cores are off
    for fast in (False, True):
        yield Case((256, 0, 1500), 512, 16384, fast=fast)


def scaled_grouped_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()
