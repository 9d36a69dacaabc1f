"""Products in parts of K with large tiles: the sm_90 kernel step by step without a device, and which products take parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.bmm import baddbmm, bmm, mm
from nojit.kernels.bmm import launch as launch_module
from nojit.kernels.gemm.matrices import Layout, mapped
from nojit.kernels.gemm.parts import Parts, parts_of

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.interpreter import Interpreter

chosen: list[Parts] = []
asked: list[str] = []


@pytest.fixture
def device(interpreted: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device that takes maps, which divides K as `chosen` says."""
    sm90.pretend(monkeypatch, launch_module)
    monkeypatch.setattr(launch_module, "parts_of", lambda *_: chosen[0])

    def provide(name: str) -> Any:
        return sm90.noted(
            interpreted(name) if name == "bmm_merge" else sm90.provide(name, lambda: {"STAGES": 2}), name, asked
        )

    asked.clear()
    with library.override(provide):
        yield


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("parts", [Parts(3, 128, 128), Parts(2, 128, 256)], ids=str)
@pytest.mark.parametrize(("trans_a", "trans_b"), list(product([False, True], repeat=2)))
def test_products(trans_a, trans_b, parts):
    chosen[:] = [parts]
    a, b = sm90.stored((2, 136, 520), trans_a), sm90.stored((2, 520, 264), trans_b)
    assert_accurate(bmm(a, b), a.double() @ b.double(), a @ b)
    source = torch.randn(264).bfloat16()
    exact = torch.relu(source.double() + a[0].double() @ b[0].double())
    assert_accurate(baddbmm(source, a[:1], b[:1], activation="relu")[0], exact, exact.bfloat16())
    assert asked == ["bmm_parts_sm90", "bmm_merge"] * 2


@pytest.mark.usefixtures("device")
def test_batch_invariance_divides_nothing():
    chosen[:] = [Parts(3, 128, 128)]
    names: list[str] = []
    with library.override(lambda name: lambda *_, **__: names.append(name), batch_invariant=True):
        mm(sm90.stored((136, 520), False), sm90.stored((520, 264), True))
    assert names == ["bmm_sm90"]


def parts(batch: int, m: int, n: int, k: int, processors: int = 132) -> Parts | None:
    maps = mapped(Layout((batch, m, k), (m * k, k, 1)), 2), mapped(Layout((batch, k, n), (k * n, 1, k)), 2)
    return parts_of(maps, (batch, m, n, k), processors)


@pytest.mark.parametrize("sizes", [(1, 100, 1640, 12728), (1, 258, 584, 13464), (1, 98, 1744, 11640)], ids=str)
def test_deep_products_of_few_tiles_take_parts(sizes):
    """They were slower by a third at least with tiles of 64 x 64."""
    found = parts(*sizes)
    assert found is not None
    assert (found.rows, found.cols) in {(128, 128), (128, 256)}


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((1, 64, 1640, 12728), id="few rows"),
        pytest.param((1, 4096, 4096, 4096), id="many tiles"),
        pytest.param((1, 1024, 1024, 1024), id="shallow"),
        pytest.param((64, 128, 128, 8192), id="a batch"),
        pytest.param((1, 128, 128, 512), id="short"),
    ],
)
def test_other_products_take_none(sizes):
    assert parts(*sizes) is None


def test_parts_have_some_depth_and_their_sums_a_limit():
    taken = 0
    for m, n, k in product((65, 128, 1000), (64, 1000, 9000), (512, 4096, 16384, 65536)):
        if found := parts(1, m, n, k):
            assert k // found.number >= 256
            assert found.number * m * n <= 1 << 25
            taken += 1
    assert taken
