"""Calls of scaled products: formats, scales, results, alignments and tiles, with and without a bias."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

import torch
from nojit.kernels.products.tile_costs import Tiling
from nojit.kernels.scaled_mm import launch, op, reference, scaled_mm
from nojit.kernels.scaled_mm.cost import DIVIDED, TWO_WIDTHS
from torch import Tensor

from tests.gpu.call import Call, Outputs, view

E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2
PAIRS = ((E4, E4), (E4, E5), (E5, E4))
OUTS = (torch.bfloat16, torch.float16, torch.float32)
KINDS = ("whole", "ends", "1x128 128x128", "1x128 1x128", "128x128 1x128", "128x128 128x128")

# M, N, K
WHOLE = (1312, 2112, 144)
DEEP = (1312, 2112, 400)
FEW = (7, 208, 400)
CUT = (48, 208, 2064)
SHARED = (2200, 2064, 1040)


def fp8(shape: tuple[int, ...], seed: int, format_: torch.dtype = E4, offset: int = 0) -> Tensor:
    """Make an fp8 tensor so many bytes past an aligned address."""
    values = view(shape, torch.bfloat16, seed).to(format_)
    flat = torch.empty(values.numel() + offset, dtype=format_, device="cuda")
    flat[offset:].view(torch.uint8).copy_(values.flatten().view(torch.uint8))
    return flat[offset:].view(shape)


def torch_sums(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, fast: bool, whole: bool) -> Tensor:
    """Multiply by torch's operator: scales are applied to what it returns in fp32, unless `whole` of blocks one after the other."""
    one, depth = torch.ones((), device="cuda"), a.shape[1]
    total = torch.zeros(a.shape[0], b.shape[1], device="cuda")
    for start in range(0, depth, depth if whole else 128):
        part = slice(start, depth if whole else min(start + 128, depth))
        # torch wants rows at multiples of 16 bytes, however those of `a` and `b` lie
        left, right = a[:, part].clone(), b[part].t().clone().t()
        raw = torch._scaled_mm(left, right, one, one, out_dtype=torch.float32, use_fast_accum=fast and whole)
        of_a = reference.spread(scale_a, a).expand(a.shape)
        of_b = reference.spread(scale_b, b).expand(b.shape)
        total += raw * of_a[:, start : start + 1] * of_b[start : start + 1]
    return total


@dataclass(frozen=True)
class Case:
    """One product."""

    sizes: tuple[int, int, int] = DEEP
    formats: tuple[torch.dtype, torch.dtype] = (E4, E4)
    dtype: torch.dtype = torch.bfloat16
    kind: str = "whole"
    fast: bool = False
    biased: bool = False
    offset: int = 0
    maps: bool = True
    """Whether the kernel over tensor maps may run where it can."""
    gaps: bool = False
    """Whether the result is the caller's own, and its elements lie apart."""
    tiling: Tiling | None = None
    """The tile and the parts of K, if the cost model is not to choose."""
    shared: bool = False
    """Whether programs share the last wave, whatever the cost model says."""

    @property
    def label(self) -> str:
        flags = (
            "x".join(str(each)[13:17] for each in self.formats),
            f"to {str(self.dtype)[6:]}",
            self.kind,
            "fast" if self.fast else "",
            "bias" if self.biased else "",
            f"offset {self.offset}" if self.offset else "",
            "" if self.maps else "pointers",
            "gaps" if self.gaps else "",
            f"{self.tiling.rows} x {self.tiling.cols} in {self.tiling.parts} parts" if self.tiling else "",
            "shared" if self.shared else "",
        )
        return f"{self.sizes} {' '.join(filter(None, flags))}"

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """Make both operands, their scales and the bias."""
        m, n, k = self.sizes
        a, b = (
            fp8(shape, seed, format_, self.offset)
            for shape, seed, format_ in zip(((m, k), (n, k)), (1, 2), self.formats, strict=True)
        )
        scales = (
            view(shape, torch.float32, seed).abs() + 0.5 for shape, seed in zip(self._shapes(), (3, 4), strict=True)
        )
        bias = view((n,), torch.float32, 5).to(self.dtype) if self.biased else None
        return a, b.t(), *scales, bias  # type: ignore[return-value]

    def _shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        m, n, k = self.sizes
        if self.kind in {"whole", "ends"}:
            return ((), (1,)) if self.kind == "whole" else ((m, 1), (1, n))
        of_a, of_b = self.kind.split()
        deep, high, wide = (-(-size // 128) for size in (k, m, n))
        return (m if of_a == "1x128" else high, deep), (deep, n if of_b == "1x128" else wide)

    def run(self) -> Outputs:
        """Multiply; what is not written is NaN."""
        out = None
        if self.gaps:
            m, n, _ = self.sizes
            out = torch.full((m, 2 * n), float("nan"), dtype=self.dtype, device="cuda")[:, ::2]
        with ExitStack() as stack:
            stack.enter_context(prepared_anew(self.maps))
            if self.tiling:
                stack.enter_context(mock.patch.object(launch, "tiling_of", return_value=self.tiling))
            if self.shared:
                stack.enter_context(mock.patch.object(launch, "is_shared", return_value=True))
            return (scaled_mm(*self.inputs(), out_dtype=self.dtype, use_fast_accum=self.fast, out=out),)

    def torchs(self) -> Outputs:
        """Multiply by torch's operator, and add the bias in fp32."""
        a, b, scale_a, scale_b, bias = self.inputs()
        total = torch_sums(a, b, scale_a, scale_b, fast=self.fast, whole=self.kind in {"whole", "ends"})
        return ((total if bias is None else total + bias.float()).to(self.dtype),)

    def call(self) -> Call:
        return Call(
            f"scaled_mm {self.label}",
            self.run,
            lambda: (reference.scaled_mm(*self.inputs()),),
            self.torchs,
            (2.0,),
        )


@contextmanager
def prepared_anew(maps: bool, operator: ModuleType = op, launches: ModuleType = launch) -> Iterator[None]:
    """Prepare the calls of an operator anew, for the kernels that may run."""
    with ExitStack() as stack:
        stack.callback(operator._MEMO.forget)
        operator._MEMO.forget()
        if not maps:
            stack.enter_context(mock.patch.object(launches, "has_maps", return_value=False))
        yield


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for formats, dtype, kind in itertools.product(PAIRS, OUTS, KINDS):
        whole = kind in {"whole", "ends"}
        for fast in (False, True) if whole else (False,):
            yield Case(WHOLE if whole else DEEP, formats, dtype, kind, fast)
            yield Case(FEW, formats, dtype, kind, fast, biased=dtype != torch.float32)
        yield Case(FEW, formats, dtype, kind, offset=1)
        yield Case(DEEP, formats, dtype, kind, maps=False, biased=dtype != torch.float32)
    for dtype, kind in itertools.product(OUTS, KINDS):
        for biased in (False, True) if dtype != torch.float32 else (False,):
            yield Case(CUT, dtype=dtype, kind=kind, biased=biased)
        yield Case(CUT, dtype=dtype, kind=kind, gaps=True)
        yield Case(FEW, dtype=dtype, kind=kind, gaps=True)
        yield Case((1, 16, 16), dtype=dtype, kind=kind)
    # few rows by all tiles, and by parts of the depth
    for rows, (n, k), dtype, kind in itertools.product((1, 9, 24), ((17_408, 400), (208, 2064)), OUTS, KINDS):
        for fast in (False, True) if kind in {"whole", "ends"} else (False,):
            yield Case((rows, n, k), dtype=dtype, kind=kind, fast=fast, biased=dtype != torch.float32)
            if kind == "whole" and dtype != torch.float32:
                yield Case((rows, n, k), dtype=dtype, kind=kind, fast=fast)
    yield from _parts_cases()
    yield from _two_widths_cases()
    yield from _shared_cases()
    # an odd number of steps, where some tiles take two together
    for kind in ("whole", "ends"):
        yield Case((1312, 2112, 272), kind=kind, biased=True)
        yield Case((2624, 8448, 528), kind=kind)
    # sums of many products, where those of the tensor cores are off
    for fast in (False, True):
        yield Case((256, 512, 16384), fast=fast)
        yield Case((640, 4096, 16384), fast=fast, kind="ends", biased=True)


def _parts_cases() -> Iterator[Case]:
    """List products in parts of K with each tile, also of few rows, and with an odd number of steps."""
    for tile, rows, kind in itertools.product(DIVIDED, (24, 200), ("whole", "ends")):
        # boxes of fewer than 64 rows are built for tiles of 64 only
        if rows > 64 or tile[0] == 64:
            yield Case((rows, 528, 2064), kind=kind, tiling=Tiling(*tile, 3))
            yield Case((rows, 528, 2064), kind=kind, biased=True, gaps=True, tiling=Tiling(*tile, 2))


def _two_widths_cases() -> Iterator[Case]:
    """List products with each tile of two widths: wide and narrow ones, with an odd number of steps, and of few rows."""
    for tile, sizes in itertools.product(TWO_WIDTHS, ((1312, 2112, 400), (2200, 272, 2064), (40, 80, 144))):
        yield Case(sizes, tiling=Tiling(tile.rows, tile.cols, 1))


def _shared_cases() -> Iterator[Case]:
    """List products whose programs share the last wave: deep ones, of less than two steps, of fewer tiles than programs."""
    for sizes in (SHARED, (2200, 2064, 144), (136, 2064, 4096)):
        yield Case(sizes, shared=True)


def scaled_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()
