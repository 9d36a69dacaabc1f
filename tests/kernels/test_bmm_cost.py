"""Which way a dense product runs: ways that were faster on an H200, for every shape one that has a kernel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.expand import expand_kernel
from nojit.kernels.bmm.cost import TILES, Schedule, schedule_of
from nojit.kernels.products.matrices import Layout, mapped
from nojit.kernels.products.splits import copied_rows
from nojit.kernels.products.tile_costs import Tile

MANIFEST = Path(__file__).resolve().parents[2] / "manifests/bmm.toml"
LARGE = 132
"""SMs of an H200."""


def schedule(
    batch: int, m: int, n: int, k: int, *, rows_of_a: bool = True, columns: bool = True, **named: Any
) -> Schedule | None:
    """Choose the way of a product of contiguous operands."""
    of_a = mapped(Layout((batch, m, k), (m * k, k, 1) if rows_of_a else (m * k, 1, m)), 2)
    of_b = mapped(Layout((batch, k, n), (n * k, 1, k) if columns else (n * k, n, 1)), 2)
    assert of_a is not None
    assert of_b is not None
    processors = named.pop("processors", LARGE)
    boxes = copied_rows(m, whole=of_a.is_transposed)
    return schedule_of((of_a, of_b), (batch, m, n, k), processors, copied_rows=boxes, **named)


@cache
def built() -> frozenset[tuple[object, ...]]:
    """Return the cases of `bmm_tiles_sm90`."""
    (spec,) = (one for one in load_manifest(MANIFEST).kernel if one.name == "bmm_tiles_sm90")
    names = ("dtype", "PANEL", "TRANS_A", "TRANS_B", "ROWS", "BLOCK_M", "BLOCK_N")
    variants = expand_kernel(spec, "sm_90", "here").variants
    return frozenset(tuple(dict(variant.axes)[name] for name in names) for variant in variants)


@given(
    st.tuples(*(st.integers(1, most) for most in (64, 20_000, 2_500, 4_000))),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 20, 114, LARGE]),
)
def test_every_product_gets_a_way_that_has_a_kernel(sizes, rows_of_a, columns, has_epilogue, processors):
    batch, m, n, k = sizes
    m = m if rows_of_a else 8 * m
    found = schedule(
        batch, m, 8 * n, 8 * k, rows_of_a=rows_of_a, columns=columns, has_epilogue=has_epilogue, processors=processors
    )
    if found is None:
        return
    assert not has_epilogue or not found.is_shared
    if found.is_shared or (has_epilogue and found.parts == 1):
        return
    panel = 64 if found.parts == 1 else 32
    boxes = copied_rows(m, whole=not rows_of_a)
    assert ("bf16", panel, not rows_of_a, columns, boxes, found.rows, found.cols) in built()
    assert found.parts == 1 or (8 * k // found.parts >= 192 and found.parts * batch * m * 8 * n <= 1 << 25)


@pytest.mark.parametrize(
    ("sizes", "columns", "chosen"),
    [
        pytest.param((1, 1888, 1048, 4168), False, Schedule(192, 192, 2), id="64 us, then 46"),
        pytest.param((19, 136, 440, 1432), True, Schedule(192, 128), id="a batch: 32 us, then 20"),
        pytest.param((1, 129, 1904, 14080), True, Schedule(192, 128, 8), id="48 us, then 30"),
        pytest.param((1, 96, 2992, 14288), True, Schedule(128, 192, 8), id="52 us, then 36"),
        pytest.param((1, 931, 8440, 864), False, Schedule(128, 256), id="45 us, then 32"),
        pytest.param((1, 6183, 264, 3032), True, Schedule(128, 192, is_copied=True), id="a copy of b"),
        pytest.param((1, 6460, 2592, 12680), True, Schedule(192, 192, is_copied=True), id="few in the last wave"),
    ],
)
def test_ways_that_were_faster_are_chosen(sizes, columns, chosen):
    assert schedule(*sizes, columns=columns) == chosen


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((1, 8192, 8192, 64), id="a tile takes less time than its sums"),
        pytest.param((1, 128 * LARGE, 256, 8192), id="whole waves"),
        pytest.param((1, 128 * LARGE + 1, 256, 1 << 31), id="steps that int32 cannot count"),
        pytest.param((1, 384, 6480, 11016), id="fewer tiles than programs"),
        pytest.param((1, 128, 128, 8), id="smallest"),
    ],
)
def test_other_products_do_not_share_a_wave(sizes):
    found = schedule(*sizes)
    assert found is not None
    assert not found.is_shared


def test_the_tuned_table_chooses_where_it_was_measured():
    assert schedule(1, 4096, 4096, 4096) is None
    assert schedule(1, 4096, 4096, 4096, has_epilogue=True) is not None
    assert schedule(1, 4096, 4096, 4104) is not None


def test_rows_that_are_no_whole_vectors_are_not_copied():
    of_a = mapped(Layout((1, 6000, 6004), (0, 6008, 1)), 2)
    assert of_a is not None
    found = schedule_of((of_a, of_a), (1, 6000, 6000, 6004), LARGE)
    assert found is not None
    assert not found.is_copied


@given(st.sampled_from(TILES), st.integers(1, 50), st.integers(1, 5_000))
def test_more_waves_or_steps_never_take_less_time(tile, waves, steps):
    def time(waves: int, steps: int) -> float:
        return tile.time(waves, steps, 1, 1000, (True, True))

    assert time(waves, steps) < time(waves + 1, steps)
    assert time(waves, steps) < time(waves, steps + 1)


def test_tiles_have_numbers_that_can_be_times():
    for tile in TILES:
        assert all(number >= 0 for number in tile)
        assert tile.few_rows < tile.step, f"steps of {tile} would take no time"
        assert isinstance(tile, Tile)
