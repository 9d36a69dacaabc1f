"""Products with each tile, whole and in parts of K: the sm_90 kernel step by step without a device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.bmm import baddbmm, bmm, mm
from nojit.kernels.bmm import launch as launch_module
from nojit.kernels.bmm.cost import TILES, Schedule

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.interpreter import Interpreter

chosen: list[Schedule] = []
asked: list[str] = []


@pytest.fixture
def device(interpreted: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device that takes maps, which runs products as `chosen` says."""
    sm90.pretend(monkeypatch, launch_module)
    monkeypatch.setattr(launch_module, "schedule_of", lambda *_, **__: chosen[0])

    def provide(name: str) -> Any:
        return sm90.noted(
            interpreted(name) if name == "bmm_merge" else sm90.provide(name, lambda: {"GROUP": 2, "STAGES": 2}),
            name,
            asked,
        )

    asked.clear()
    with library.override(provide):
        yield


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    "schedule",
    [Schedule(128, 128, 3), Schedule(128, 256, 2), Schedule(192, 128, 2), Schedule(64, 128, 3), Schedule(128, 192, 3)],
    ids=str,
)
@pytest.mark.parametrize(("trans_a", "trans_b"), list(product([False, True], repeat=2)))
def test_products_in_parts(trans_a, trans_b, schedule):
    chosen[:] = [schedule]
    a, b = sm90.stored((2, 136, 520), trans_a), sm90.stored((2, 520, 264), trans_b)
    assert_accurate(bmm(a, b), a.double() @ b.double(), a @ b)
    source = torch.randn(264).bfloat16()
    exact = torch.relu(source.double() + a[0].double() @ b[0].double())
    assert_accurate(baddbmm(source, a[:1], b[:1], activation="relu")[0], exact, exact.bfloat16())
    assert asked == ["bmm_tiles_sm90", "bmm_merge"] * 2


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows} x {tile.cols}")
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, True), (True, False)])
def test_products_with_each_tile(trans_a, trans_b, tile):
    chosen[:] = [Schedule(tile.rows, tile.cols)]
    a, b = sm90.stored((2, 200, 136), trans_a), sm90.stored((2, 136, 264), trans_b)
    assert_accurate(bmm(a, b), a.double() @ b.double(), a @ b)
    assert asked == ["bmm_tiles_sm90"]


@pytest.mark.usefixtures("device")
def test_batch_invariance_divides_nothing():
    chosen[:] = [Schedule(128, 128, 3)]
    names: list[str] = []
    with library.override(lambda name: lambda *_, **__: names.append(name), batch_invariant=True):
        mm(sm90.stored((136, 520), False), sm90.stored((520, 264), True))
    assert names == ["bmm_sm90"]
