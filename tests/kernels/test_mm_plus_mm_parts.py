"""Sums of two products in parts: when they are faster, and the sm_90 kernels step by step without a device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.expand import expand_kernel
from nojit.kernels import library
from nojit.kernels.bmm.cost import Schedule
from nojit.kernels.mm_plus_mm import launch, mm_plus_mm, reference
from nojit.kernels.mm_plus_mm.cost import FIXED, schedules_of
from nojit.kernels.products.matrices import Layout, mapped
from nojit.kernels.products.splits import copied_rows
from torch import Tensor

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.interpreter import Interpreter

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
LARGE = 132
"""SMs of an H200."""
SCHEDULES = [
    pytest.param((Schedule(64, 64, 3), Schedule(64, 128, 1)), id="parts and a whole"),
    pytest.param((Schedule(192, 128, 1), Schedule(128, 192, 2)), id="a whole and parts"),
]
chosen: list[tuple[Schedule, ...]] = []
asked: list[str] = []


@pytest.fixture
def device(interpreted: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device that takes maps, which runs sums as `chosen` says."""
    sm90.pretend(monkeypatch, launch)
    monkeypatch.setattr(launch, "schedules_of", lambda *_, **__: chosen[0])

    def provide(name: str) -> Any:
        kernel = interpreted(name) if name == "bmm_merge" else sm90.provide(name, lambda: {"GROUP": 2, "STAGES": 2})
        return sm90.noted(kernel, name, asked)

    asked.clear()
    with library.override(provide):
        yield


def factors(m: int, n: int, k: int, more: int, trans: tuple[bool, ...] = (False,) * 4) -> list[Tensor]:
    shapes = (m, k), (k, n), (m, more), (more, n)
    return [sm90.stored(shape, columns) for shape, columns in zip(shapes, trans, strict=True)]


def check(values: list[Tensor], out: Tensor | None = None) -> None:
    exact = reference.mm_plus_mm(*(value.double() for value in values))
    assert_accurate(mm_plus_mm(*values, out=out), exact, reference.mm_plus_mm(*values))


@pytest.mark.usefixtures("device")
class TestLaunches:
    @pytest.mark.parametrize("schedules", SCHEDULES)
    @pytest.mark.parametrize("trans", list(product([False, True], repeat=4)), ids=str)
    def test_every_transpose(self, trans, schedules):
        chosen[:] = [schedules]
        check(factors(136, 200, 328, 72, trans))
        assert asked == ["bmm_tiles_sm90", "bmm_tiles_sm90", "bmm_merge"]

    @pytest.mark.parametrize("rows", [1, 16, 24, 64])
    def test_few_rows(self, rows):
        chosen[:] = [(Schedule(64, 64, 4), Schedule(64, 128, 2))]
        check(factors(rows, 136, 520, 136))

    def test_cached_calls_and_a_result_of_the_callers_own(self):
        chosen[:] = [(Schedule(64, 128, 2), Schedule(64, 128, 1))]
        for out in (
            None,
            torch.full((136, 72), float("nan")).bfloat16(),
            torch.full((72, 136), float("nan")).bfloat16().mT,
        ):
            for _ in range(2):
                check(factors(136, 72, 200, 72), out)
        assert asked == ["bmm_tiles_sm90", "bmm_tiles_sm90", "bmm_merge"] * 6

    def test_one_launch_where_that_is_faster(self):
        chosen[:] = [(Schedule(64, 128),)]
        check(factors(136, 72, 200, 72))
        assert asked == ["mm_plus_mm_sm90"]


def test_batch_invariance_takes_one_launch_with_a_tile_of_its_own(device: None) -> None:
    del device
    chosen[:] = [(Schedule(128, 128, 2), Schedule(64, 128, 1))]
    tiles: set[tuple[str, int, int]] = set()

    def note(name: str) -> Any:
        return lambda *_, **named: tiles.add((name, named["BLOCK_M"], named["BLOCK_N"]))

    with library.override(note, batch_invariant=True):
        for rows in (8, 136, 1000):
            mm_plus_mm(*factors(rows, 72, 200, 72))
    assert tiles == {("mm_plus_mm_sm90", 128, 128)}


def schedules(sizes: tuple[int, int, int, int], trans: tuple[bool, ...] = (False,) * 4, **named: Any) -> Any:
    """Choose how a sum of contiguous operands runs, by M, N, K and L."""
    m, n, k, more = sizes
    maps = []
    for (rows, cols), columns in zip(((m, k), (k, n), (m, more), (more, n)), trans, strict=True):
        of = mapped(Layout((1, rows, cols), (0, 1, rows) if columns else (0, cols, 1)), 2)
        assert of is not None
        maps.append(of)
    return schedules_of(tuple(maps), sizes, named.get("processors", LARGE), divides=named.get("divides", True))


def cases_of(manifest: str, kernel: str, profile: str = "full") -> list[dict[str, Any]]:
    """Return the cases of a kernel in a profile, by the names of their axes."""
    (spec,) = (one for one in load_manifest(MANIFESTS / manifest).kernel if one.name == kernel)
    return [dict(variant.axes) for variant in expand_kernel(spec, "sm_90", "here", profile).variants]


@cache
def summing() -> frozenset[tuple[object, ...]]:
    """Return the cases of `bmm_tiles_sm90` that write sums."""
    names = ("dtype", "TRANS_A", "TRANS_B", "ROWS", "BLOCK_M", "BLOCK_N")
    found = cases_of("bmm.toml", "bmm_tiles_sm90")
    return frozenset(tuple(case[name] for name in names) for case in found if case["PANEL"] == 32)


@cache
def whole(profile: str) -> frozenset[tuple[object, ...]]:
    """Return the cases of `mm_plus_mm_sm90`."""
    names = ("dtype", "TRANS_A", "TRANS_B", "TRANS_C", "TRANS_D", "BLOCK_M", "BLOCK_N")
    found = cases_of("mm_plus_mm.toml", "mm_plus_mm_sm90", profile)
    return frozenset(tuple(case[name] for name in names) for case in found)


@given(
    st.tuples(*(st.integers(1, most) for most in (9_000, 1_100, 1_100, 600))),
    st.tuples(*[st.booleans()] * 4),
    st.sampled_from([1, 20, 114, LARGE]),
)
def test_every_sum_gets_a_way_that_has_a_kernel(sizes, trans, processors):
    m, n, k, more = sizes
    m = 8 * m if trans[0] or trans[2] else m
    sizes = (m, 8 * n, 8 * k, 8 * more)
    found = schedules(sizes, trans, processors=processors)
    if len(found) == 1:
        assert ("bf16", *trans, found[0].rows, found[0].cols) in whole("full")
        return
    for one, (of_a, of_b) in zip(found, (trans[:2], trans[2:]), strict=True):
        assert ("bf16", of_a, of_b, copied_rows(m, whole=of_a), one.rows, one.cols) in summing()
    assert sum(one.parts for one in found) * m * 8 * n <= 1 << 25


@given(st.tuples(*(st.integers(1, most) for most in (9_000, 1_100, 1_100, 600))), st.booleans())
def test_core_bundles_have_the_tiles_that_are_chosen_for_them(sizes, columns):
    m, n, k, more = sizes
    trans = (False, columns) * 2
    (found,) = schedules((m, 8 * n, 8 * k, 8 * more), trans, divides=False)
    assert ("bf16", *trans, found.rows, found.cols) in whole("core")
    assert ("bf16", *trans, *FIXED[:2]) in whole("core")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param((1266, 1880, 3016, 2928), (Schedule(128, 256),), id="wide tiles in one wave: 114 us before"),
        pytest.param(
            (2, 280, 7088, 48), (Schedule(64, 64, 7), Schedule(64, 128)), id="few tiles and deep: 20 us before"
        ),
        pytest.param((4096, 4096, 64, 64), (Schedule(128, 256),), id="writing dominates"),
        pytest.param((8192, 8192, 8192, 8192), (Schedule(128, 256),), id="many waves"),
    ],
)
def test_faster_ways_are_chosen(sizes, expected):
    assert schedules(sizes) == expected
