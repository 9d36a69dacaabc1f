"""The products over tensor maps, step by step without a device: see `tests.kernels.gluon_stub` for what that shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.bmm import baddbmm, bmm, mm, reference
from nojit.kernels.bmm import launch as launch_module
from nojit.kernels.bmm.cost import Schedule
from nojit.kernels.products.activations import ACTIVATIONS, FUNCTIONS
from nojit.kernels.products.splits import TILE, splits_of
from nojit.runtime.errors import KernelNotFoundError
from torch import Tensor

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate

# as few stages as work: the more often they are used again, the more is seen
TILES = {
    "128 x 256": {"BLOCK_M": 128, "BLOCK_N": 256, "GROUP": 2, "STAGES": 2},
    "64 x 64": {"BLOCK_M": 64, "BLOCK_N": 64, "GROUP": 2, "STAGES": 3},
}
chosen: dict[str, int] = {}
asked: list[str] = []


def provide(name: str):
    """Give kernels as Python; the sums of parts too."""
    return sm90.noted(merge if name == "bmm_merge" else sm90.provide(name, lambda: chosen), name, asked)


def schedule_of(
    _: object, sizes: tuple[int, int, int, int], processors: int, *, copied_rows: int, **__: object
) -> Schedule | None:
    """Name the tile of the moment where rows or tiles are few; K has parts where tiles are few."""
    schedule = Schedule(chosen["BLOCK_M"], chosen["BLOCK_N"], splits_of(*sizes, processors))
    return schedule if schedule.parts > 1 or copied_rows < TILE else None


def merge(partial: Tensor, out: Tensor, source: Tensor, *numbers: Any) -> None:
    batch, rows, cols, _, _, activation, alpha, beta = numbers[:8]
    name = list(ACTIVATIONS)[activation]
    added = source.as_strided((batch, rows, cols), numbers[8:11]) if beta else torch.zeros(1, 1, 1, dtype=out.dtype)
    total = partial.sum(0)[:, :, :cols] * alpha + beta * added.float()
    out.as_strided((batch, rows, cols), numbers[11:]).copy_(FUNCTIONS[name](total))


@pytest.fixture(autouse=True, params=TILES.values(), ids=TILES.keys())
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device of a few processors that takes maps."""
    sm90.pretend(monkeypatch, launch_module)
    monkeypatch.setattr(launch_module, "few_rows_of", lambda *_: None)
    monkeypatch.setattr(launch_module, "schedule_of", schedule_of)
    chosen.clear()
    chosen.update(request.param)
    asked.clear()
    with library.override(provide):
        yield


@pytest.mark.parametrize(("trans_a", "trans_b"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("sizes", [(2, 136, 264, 200), (3, 8, 72, 1032), (1, 24, 200, 64), (1, 200, 8, 64)], ids=str)
def test_products(sizes, trans_a, trans_b):
    batch, m, n, k = sizes
    a, b = sm90.stored((batch, m, k), trans_a), sm90.stored((batch, k, n), trans_b)
    assert_accurate(bmm(a, b), a.double() @ b.double(), a @ b)
    assert_accurate(mm(a[0], b[0]), a[0].double() @ b[0].double(), a[0] @ b[0])
    assert set(asked) <= {"bmm_sm90", "bmm_tiles_sm90", "bmm_merge"}


def test_a_bundle_without_other_tiles_runs_products_by_those_that_it_has():
    def untiled(name: str):
        if name != "bmm_sm90":
            raise KernelNotFoundError("expected a bundle that holds the kernel", got=f"none with {name!r}")
        return provide(name)

    a, b = sm90.stored((1, 24, 1096), False), sm90.stored((1, 1096, 72), True)
    with library.override(untiled):
        assert_accurate(bmm(a, b), a.double() @ b.double(), a @ b)
    assert asked == ["bmm_sm90"]


@pytest.mark.parametrize("depth", [72, 1096], ids=["whole", "in parts"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_done_to_a_product(activation, depth):
    a, b = sm90.stored((2, 72, depth), False), sm90.stored((2, depth, 72), True)
    words = {"beta": -0.5, "alpha": 0.0625, "activation": activation}
    for shape in ((2, 72, 72), (72,), (72, 1), ()):
        source = torch.randn(shape).bfloat16()
        exact = reference.baddbmm(source.double(), a.double(), b.double(), **words)
        assert_accurate(baddbmm(source, a, b, **words), exact, exact.bfloat16())
    assert ("bmm_merge" in asked) == (depth > 1000)


def test_operands_that_products_share():
    a, b = sm90.stored((1, 72, 64), False).expand(3, -1, -1), sm90.stored((3, 64, 72), True)
    assert_accurate(bmm(a, b), a.double() @ b.double(), a @ b)
    assert_accurate(bmm(b, b[:1].expand(3, -1, -1).mT), b.double() @ b[:1].double().mT, b @ b[:1].mT)
    assert set(asked) == {"bmm_sm90"}


def test_a_result_by_columns_is_that_of_the_transposes():
    a, b = sm90.stored((2, 136, 64), False), sm90.stored((2, 64, 72), False)
    out = torch.full((2, 72, 136), float("nan")).bfloat16().mT
    assert bmm(a, b, out=out) is out
    assert_accurate(out, a.double() @ b.double(), a @ b)
    assert asked == ["bmm_sm90"]


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(ones(8, 9), ones(9, 8), id="strides of no 16 bytes"),
        pytest.param(ones(8, 8), ones(8, 9), id="results of no 16 bytes"),
        pytest.param(ones(65)[1:].view(8, 8), ones(8, 8), id="unaligned"),
        pytest.param(ones(8, 0), ones(0, 8), id="no depth"),
        pytest.param(ones(1, 8).expand(8, 8), ones(8, 8), id="repeated"),
        pytest.param(ones(8, 8).float(), ones(8, 8).float(), id="fp32"),
    ],
)
def test_what_maps_cannot_describe_goes_over_pointers(a, b):
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        mm(a, b)
    assert names == ["bmm"]
