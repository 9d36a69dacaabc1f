"""scaled_mm over tensor maps, step by step without a device: see `tests.kernels.gluon_stub` for what that shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from nojit.kernels import library
from nojit.kernels.products.splits import splits_of
from nojit.kernels.products.tile_costs import Tiling
from nojit.kernels.scaled_mm import launch as launch_module
from nojit.kernels.scaled_mm import scaled_mm
from nojit.kernels.scaled_mm.cost import TWO_WIDTHS, parts_of_blocks
from torch import Tensor

from tests.kernels import sm90
from tests.kernels.test_scaled_mm import E4, E5, OUTS, PAIRS, SCALES, check, operands, scales

# as few stages as work: the more often they are used again, the more is seen
TILES = {
    "128 x 256": {"BLOCK_M": 128, "BLOCK_N": 256, "GROUP": 2, "STAGES": 2},
    "128 x 128": {"BLOCK_M": 128, "BLOCK_N": 128, "GROUP": 1, "STAGES": 2},
    "64 x 64": {"BLOCK_M": 64, "BLOCK_N": 64, "GROUP": 2, "STAGES": 3},
    # two products at a time
    "64 x 128": {"BLOCK_M": 64, "BLOCK_N": 128, "GROUP": 2, "STAGES": 5},
}
chosen: dict[str, int] = {}
asked: list[str] = []


def provide(name: str):
    """Give kernels as Python; the sums of parts too."""
    return sm90.noted(merge if name == "scaled_mm_merge" else sm90.provide(name, lambda: chosen), name, asked)


def merge(partial: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor, out: Tensor, *numbers: int) -> None:
    rows, cols, _, _, scaled, has_bias, *strides = numbers
    total = partial.sum(0)[0, :, :cols]
    if not scaled:
        total = total * scale_a.as_strided((rows, 1), (strides[0], 0)) * scale_b.as_strided((1, cols), (0, strides[1]))
    if has_bias:
        total = total + bias.as_strided((cols,), strides[2:3]).float()
    out.as_strided((rows, cols), strides[3:]).copy_(total)


@pytest.fixture(autouse=True, params=TILES.values(), ids=TILES.keys())
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device of a few processors that takes maps."""
    monkeypatch.setattr(launch_module, "has_maps", lambda _: True)
    chosen.clear()
    chosen.update(request.param)
    asked.clear()
    with library.override(provide):
        yield


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    ("kind", "m", "n", "k"),
    [
        ("ends", 136, 272, 400),
        ("whole", 136, 272, 272),
        ("whole", 5, 80, 144),
        ("ends", 5, 80, 144),
        ("whole", 200, 16, 16),
        ("ends", 70, 144, 656),
    ],
)
def test_products(kind, m, n, k, fast):
    for formats, dtype in zip(PAIRS, OUTS, strict=True):
        a, b = operands(m, n, k, formats)
        given = scales(m, n, k, kind)
        check(scaled_mm(a, b, *given, out_dtype=dtype, use_fast_accum=fast), a, b, *given)
        if dtype != torch.float32:
            bias = torch.randn(n).to(dtype)
            check(scaled_mm(a, b, *given, bias, dtype, fast), a, b, *given, bias)
    assert set(asked) == {"scaled_mm_sm90"}


@pytest.mark.parametrize("sizes", [(136, 272, 400), (5, 80, 144)], ids=str)
@pytest.mark.parametrize("kind", SCALES[2:])
def test_scales_of_blocks(kind, sizes):
    m, n, k = sizes
    a, b = operands(m, n, k)
    bias = torch.randn(n).half()
    scale_a, scale_b = scales(m, n, k, kind)
    for given in ((scale_a, scale_b), (scale_a.t().contiguous().t(), scale_b)):
        check(scaled_mm(a, b, *given, bias, torch.float16), a, b, *given, bias)
    assert set(asked) == {"scaled_mm_sm90"}


def test_parts_of_the_depth():
    m, n, k = 9, 48, 2064
    assert splits_of(1, m, n, k, 132) > 1
    a, b = operands(m, n, k)
    bias = torch.randn(n).bfloat16()
    for kind, fast in product(("whole", "ends", "128x128 1x128"), (False, True)):
        given = scales(m, n, k, kind)
        check(scaled_mm(a, b, *given, bias, use_fast_accum=fast), a, b, *given, bias)
    assert set(asked) == {"scaled_mm_sm90", "scaled_mm_merge"}


@pytest.mark.parametrize("tile", TWO_WIDTHS, ids=lambda tile: f"{tile.rows} x {tile.cols}")
def test_tiles_of_two_widths(tile, monkeypatch):
    monkeypatch.setattr(launch_module, "tiling_of", lambda *_: Tiling(tile.rows, tile.cols, 1))
    for m, n, k in ((200, 288, 1296), (70, 400, 2048), (40, 80, 144)):
        a, b = operands(m, n, k)
        given = scales(m, n, k, "whole")
        check(scaled_mm(a, b, *given), a, b, *given)
    assert set(asked) == {"scaled_mm_tiles_sm90"}


@pytest.mark.parametrize("tiling", [Tiling(64, 64, 3), Tiling(64, 128, 2), Tiling(128, 128, 5)], ids=str)
def test_parts_of_the_depth_with_a_tile_of_their_own(tiling, monkeypatch):
    monkeypatch.setattr(launch_module, "tiling_of", lambda *_: tiling)
    for m, n, k in ((20, 208, 2064), (136, 272, 1280)):
        a, b = operands(m, n, k)
        for kind in ("whole", "ends"):
            given, bias = scales(m, n, k, kind), torch.randn(n).bfloat16()
            check(scaled_mm(a, b, *given, bias), a, b, *given, bias)
    assert set(asked) == {"scaled_mm_parts_sm90", "scaled_mm_merge"}


def test_only_coarse_sums_of_many_rows_are_divided_by_cost(monkeypatch):
    monkeypatch.setattr(launch_module, "tiling_of", lambda *_: Tiling(64, 64, 3))
    a, b = operands(20, 48, 2064)
    given = scales(20, 48, 2064, "ends")
    scaled_mm(a, b, *given, out_dtype=torch.float16)
    scaled_mm(a, b, *given, use_fast_accum=True)
    scaled_mm(a[:16], b, given[0][:16], given[1])
    scaled_mm(a, b, *scales(20, 48, 2064, "1x128 1x128"))
    assert set(asked) == {"scaled_mm_sm90", "scaled_mm_merge"}


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        pytest.param((16, 3968, 14848), 4, id="few rows and deep: 1.8 times as fast as whole"),
        pytest.param((8, 3200, 10752), 5, id="few rows and deep: 1.7 times as fast as whole"),
        pytest.param((4096, 4096, 4096), 1, id="many tiles"),
        pytest.param((16, 512, 512), 1, id="shallow"),
    ],
)
def test_deep_products_with_scales_of_blocks_are_divided_by_cost(sizes, parts):
    assert parts_of_blocks(*sizes, 132) == parts


@hypothesis.given(st.integers(1, 8192), st.integers(1, 1024), st.integers(1, 1024), st.sampled_from([1, 20, 114, 132]))
def test_parts_with_scales_of_blocks_stay_deep_and_their_sums_few(rows, cols, depth, processors):
    parts = parts_of_blocks(rows, 16 * cols, 16 * depth, processors)
    assert parts == 1 or (parts * 3 * 128 <= 16 * depth and parts * rows * 16 * cols <= 1 << 25)


def test_batch_invariance_divides_no_scales_of_blocks():
    a, b = operands(9, 48, 2064)
    given = scales(9, 48, 2064, "1x128 128x128")
    with library.override(provide, batch_invariant=True):
        check(scaled_mm(a, b, *given), a, b, *given)
    assert asked == ["scaled_mm_sm90"]


def test_a_result_of_the_callers_own():
    a, b = operands(20, 48, 80)
    given = scales(20, 48, 80, "ends")
    wide = torch.full((20, 64), float("nan")).bfloat16()
    out = wide[:, 8:56]
    assert scaled_mm(a, b, *given, out=out) is out
    check(out, a, b, *given)
    assert wide[:, :8].isnan().all()
    assert wide[:, 56:].isnan().all()
    assert asked == ["scaled_mm_sm90"]


def fp8(*shape: int) -> Tensor:
    return torch.ones(shape).to(E4)


ONES = torch.ones(20, 1), torch.ones(1, 32)


@pytest.mark.parametrize(
    ("a", "b", "given", "bias"),
    [
        pytest.param(fp8(20 * 80 + 1)[1:].view(20, 80), fp8(32, 80).t(), ONES, None, id="unaligned"),
        pytest.param(fp8(20, 88)[:, :80], fp8(32, 80).t(), ONES, None, id="rows of no 16 bytes"),
        pytest.param(fp8(1, 80).expand(20, -1), fp8(32, 80).t(), ONES, None, id="repeated"),
        pytest.param(fp8(20, 80), fp8(32, 88)[:, :80].t(), ONES, None, id="columns of no 16 bytes"),
        pytest.param(fp8(20, 0), fp8(32, 0).t(), ONES, None, id="no depth"),
        pytest.param(fp8(20, 80), fp8(32, 80).t(), (ONES[0], torch.ones(1, 64)[:, ::2]), None, id="scales apart"),
        pytest.param(fp8(20, 80), fp8(32, 80).t(), ONES, torch.ones(64).bfloat16()[::2], id="bias apart"),
        pytest.param(
            fp8(20, 144), fp8(32, 144).t(), (torch.ones(20, 2), torch.ones(32, 2).t()), None, id="scales by rows"
        ),
        pytest.param(
            fp8(20, 144), fp8(32, 144).t().to(E5), (torch.ones(20, 2), torch.ones(2, 1)), None, id="blocks of e5m2"
        ),
    ],
)
def test_what_maps_cannot_describe_goes_over_pointers(a, b, given, bias):
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        scaled_mm(a, b, *given, bias)
    assert names == ["scaled_mm"]
