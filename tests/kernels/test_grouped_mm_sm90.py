"""grouped_mm over tensor maps, step by step without a device: see `tests.kernels.gluon_stub` for what that shows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.grouped_mm import grouped_mm
from nojit.kernels.grouped_mm import launch as launch_module
from torch import Tensor

from tests.kernels import sm90
from tests.kernels.gluon_stub import Pointer, functions
from tests.kernels.test_grouped_mm import LENGTHS, check, ends, operands

# as few stages as work: the more often they are used again, the more is seen
TILES = {
    "128 x 256": {"BLOCK_M": 128, "BLOCK_N": 256, "GROUP": 2, "STAGES": 2},
    "128 x 128": {"BLOCK_M": 128, "BLOCK_N": 128, "GROUP": 1, "STAGES": 3},
    "64 x 128": {"BLOCK_M": 64, "BLOCK_N": 128, "GROUP": 4, "STAGES": 2},
}
chosen: dict[str, int] = {}
asked: list[str] = []


def provide(name: str):
    """Give kernels as Python."""
    return sm90.noted(sm90.provide(name, lambda: chosen), name, asked)


@pytest.fixture(autouse=True, params=TILES.values(), ids=TILES.keys())
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device of a few processors that takes maps."""
    sm90.pretend(monkeypatch, launch_module)
    chosen.clear()
    chosen.update(request.param)
    asked.clear()
    with library.override(provide):
        yield


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_groups(lengths):
    a, b, offs = operands(lengths, 200, 136, past=5)
    check(grouped_mm(a, b, offs), a, b, offs)
    bias = torch.randn(len(lengths), 200).bfloat16()
    check(grouped_mm(a, b.contiguous(), offs, bias=bias), a, b, offs, bias)
    assert set(asked) == {"grouped_mm_sm90"}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_groups_of_the_depth(lengths):
    chosen["BLOCK_M"] = 128
    rows = sum(lengths) + 5
    a, b = torch.randn(rows, 136).bfloat16().t(), torch.randn(rows, 200).bfloat16()
    # nobody uses what no group has
    a[:, sum(lengths) :], b[sum(lengths) :] = float("nan"), float("nan")
    check(grouped_mm(a, b, ends(lengths)), a, b, ends(lengths))
    assert asked == ["grouped_mm_depth_sm90"]


def test_what_other_groups_have_stays_out_of_a_product():
    chosen["BLOCK_M"] = 128
    a, b = torch.randn(150, 72).bfloat16().t(), torch.randn(150, 72).bfloat16()
    a[0, 70], b[70, 0] = float("inf"), float("nan")
    offs = ends((70, 1, 0, 79))
    result = grouped_mm(a, b, offs)
    assert torch.isfinite(result[[0, 2, 3]]).all()
    assert result[1, :, 0].isnan().all()
    check(result[[0, 2, 3]], *_without(a, b, 70), ends((70, 0, 79)))


def _without(a: Tensor, b: Tensor, place: int) -> tuple[Tensor, Tensor]:
    """Leave out one place of K."""
    kept = torch.arange(b.shape[0]) != place
    return a[:, kept], b[kept]


def test_matrices_that_groups_share():
    a, b, offs = operands((5, 0, 70), 72, 136)
    shared = b[:1].expand(3, -1, -1)
    bias = torch.randn(72).bfloat16()
    check(grouped_mm(a, shared, offs, bias=bias), a, shared, offs, bias)
    assert asked == ["grouped_mm_sm90"]


def test_rows_of_no_group_are_not_written():
    a, b, offs = operands((5, 0, 70, 64), 72, 64, past=60)
    wide = torch.full((199, 96), 7.0).bfloat16()
    out = wide[:, 8:80]
    assert grouped_mm(a, b, offs, out=out) is out
    check(out, a, b, offs)
    assert (wide[139:] == 7).all()
    assert (wide[:, :8] == 7).all()
    assert (wide[:, 80:] == 7).all()
    assert asked == ["grouped_mm_sm90"]


@pytest.mark.parametrize("given", [(5, 3, 90, 12), (-4, 6, 6, 17), (2_000_000_000, 3, 4, 5)], ids=str)
def test_ends_that_make_no_sense_stay_within_the_result(given):
    a, b, _ = operands((5, 0, 12, 0), 24, 40)
    memory = torch.full((40, 24), 7.0).bfloat16()
    grouped_mm(a, b, torch.tensor(given, dtype=torch.int32), out=memory[10:27])
    assert (memory[:10] == 7).all()
    assert (memory[27:] == 7).all()


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(ones(8, 9), ones(2, 9, 8), id="strides of no 16 bytes"),
        pytest.param(ones(8, 8), ones(2, 8, 9), id="results of no 16 bytes"),
        pytest.param(ones(8, 8), ones(2, 12, 8).mT[:, :8], id="columns of no 16 bytes"),
        pytest.param(ones(65)[1:].view(8, 8), ones(2, 8, 8), id="unaligned"),
        pytest.param(ones(8, 8).t(), ones(2, 8, 8), id="by columns"),
        pytest.param(ones(8, 0), ones(2, 0, 8), id="no depth"),
        pytest.param(ones(8, 8).float(), ones(2, 8, 8).float(), id="fp32"),
    ],
)
def test_what_maps_cannot_describe_goes_over_pointers(a, b):
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        grouped_mm(a, b, ends((4, 4)))
    assert names == ["grouped_mm"]


def cursor_functions() -> dict[str, Any]:
    """Return the functions of cursors as plain Python."""
    paths = ("kernel_functions.py", "products/kernel_tiles.py", "products/kernel_groups.py")
    return functions(*(sm90.KERNELS / path for path in paths))


@pytest.mark.parametrize("tile", [(16, 64), (64, 256)], ids=str)
def test_a_cursor_reads_many_groups_at_once(tile):
    device, reads = cursor_functions(), Counter()
    load = device["tl"].load

    def counted(pointer: Pointer) -> Any:
        reads["ends"] += 1
        return load(pointer)

    device["tl"].load = counted
    lengths = (0,) * 255 + (3,)
    cursor = device["seek"](0, -1, 0, 0, 0, Pointer(ends(lengths)), 256, 3, 64, torch.arange(32), *tile)
    assert cursor == (255, 0, 0, 3)
    assert reads["ends"] <= 2 * 9


@pytest.mark.parametrize("seed", range(6))
def test_programs_compute_each_tile_once(seed):
    """Walk the cursor alone, as every part of every program does."""
    rng = random.Random(seed)
    block_m, block_n, height = chosen["BLOCK_M"], chosen["BLOCK_N"], chosen["GROUP"]
    lengths = tuple(rng.choice((0, 0, 1, 63, 64, 65, 300, 1000)) for _ in range(rng.choice((1, 3, 40, 512))))
    n, rows, offs = rng.choice((8, 256, 300, 1030)), sum(lengths) + 9, Pointer(ends(lengths))
    device = cursor_functions()
    programs, seen, lanes = rng.choice((1, 7, 132)), Counter(), torch.arange(32)
    for program in range(programs):
        number, cursor = program, (-1, 0, 0, 0)
        while (cursor := device["seek"](number, *cursor, offs, len(lengths), rows, n, lanes, block_m, block_n))[
            0
        ] < len(lengths):
            row, col, left = device["place_in"]((number, *cursor), n, block_m, block_n, height)
            assert left > 0
            seen[cursor[0], row, row + left, col] += 1
            number += programs
    expected = {
        (group, row, last, col)
        for group, last in enumerate(ends(lengths).tolist())
        for row in range(last - lengths[group], last, block_m)
        for col in range(0, n, block_n)
    }
    assert seen == dict.fromkeys(expected, 1)
