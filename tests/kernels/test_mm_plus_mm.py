"""mm_plus_mm: through Triton's interpreter, and the kernel over tensor maps step by step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.bmm.cost import Schedule
from nojit.kernels.mm_plus_mm import launch, mm_plus_mm, reference
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.test_bmm import WAYS, laid_out

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
TILES = [Schedule(128, 256), Schedule(64, 128), Schedule(64, 64)]


def operands(m: int, n: int, k: int, more: int, dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(shape).to(dtype) for shape in ((m, k), (k, n), (m, more), (more, n))]


def check(given: list[Tensor]) -> None:
    exact = reference.mm_plus_mm(*(value.double() for value in given))
    assert_accurate(mm_plus_mm(*given), exact, reference.mm_plus_mm(*given))


@pytest.mark.usefixtures("interpreted")
class TestOverPointers:
    """What every device runs."""

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("ways", [*zip(*[WAYS] * 4, strict=True), WAYS, WAYS[::-1]], ids=str)
    def test_any_strides(self, ways, dtype):
        check([laid_out(value, way) for value, way in zip(operands(33, 40, 70, 25, dtype), ways, strict=True)])

    @pytest.mark.parametrize("seed", range(10))
    def test_any_sizes(self, seed):
        rng = random.Random(seed)
        sizes = (rng.choice((1, 3, 16, 17, 64, 65, 100, 130)) for _ in range(4))
        check([laid_out(value, rng.choice(WAYS)) for value in operands(*sizes, rng.choice(FLOATS))])

    @pytest.mark.parametrize("sizes", [(3, 4, 0, 5), (3, 4, 5, 0), (3, 4, 0, 0), (0, 4, 5, 6), (3, 0, 5, 6)], ids=str)
    def test_nothing_to_multiply(self, sizes):
        given = operands(*sizes, torch.float32)
        torch.testing.assert_close(mm_plus_mm(*given), reference.mm_plus_mm(*given))

    def test_out_may_lie_any_way(self):
        given = operands(20, 24, 16, 40, torch.float32)
        for way in WAYS:
            out = laid_out(torch.full((20, 24), float("nan")), way)
            assert mm_plus_mm(*given, out=out) is out
            torch.testing.assert_close(out, reference.mm_plus_mm(*given))

    def test_gradients(self):
        given = [value.requires_grad_() for value in operands(9, 12, 10, 5, torch.float32)]
        wide = [value.detach().double().requires_grad_() for value in given]
        for grad in (torch.randn(9, 12), torch.ones(1).expand(9, 12)):
            right = torch.autograd.grad(reference.mm_plus_mm(*wide), wide, grad.double())
            for got, value in zip(torch.autograd.grad(mm_plus_mm(*given), given, grad), right, strict=True):
                torch.testing.assert_close(got.double(), value, rtol=1e-5, atol=1e-5)
        (one,) = torch.autograd.grad(mm_plus_mm(*(x.detach() for x in given[:3]), given[3]), given[3:], grad)
        assert torch.equal(one, got)

    def test_gradients_of_gradients(self):
        results = []
        given = [value.requires_grad_() for value in operands(5, 6, 7, 3, torch.float32)]
        wide = [value.detach().double().requires_grad_() for value in given]
        for run, values in ((mm_plus_mm, given), (reference.mm_plus_mm, wide)):
            (da,) = torch.autograd.grad(run(*values).square().sum(), values[0], create_graph=True)
            results.append(torch.autograd.grad(da.square().sum(), values))
        for got, right in zip(*results, strict=True):
            torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-3 * float(right.abs().max()))

    @pytest.mark.parametrize("gradient", [False, True])
    def test_the_operator_is_torchs_kind(self, gradient):
        given = [value.requires_grad_(gradient) for value in operands(5, 6, 7, 3, torch.float32)]
        torch.library.opcheck(torch.ops.nojit.mm_plus_mm.default, tuple(given))
        if not gradient:
            torch.library.opcheck(torch.ops.nojit.mm_plus_mm_out.default, (*given, torch.empty(5, 6)))
        traced = torch.compile(mm_plus_mm, backend="aot_eager", fullgraph=True)
        assert torch.equal(traced(*given), mm_plus_mm(*given))

    def test_autocast_casts_as_torchs_products(self):
        given = operands(5, 6, 7, 3, torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            result = mm_plus_mm(*given)
        assert torch.equal(result, mm_plus_mm(*(value.bfloat16() for value in given)))

    def test_mistakes_are_named(self):
        a, b, c, d = operands(5, 6, 7, 3, torch.float32)
        for call, error, words in (
            (lambda: mm_plus_mm(a[None], b, c, d), ValueError, "a: expected 2 dimensions"),
            (lambda: mm_plus_mm(a, c, c, d), ValueError, "b: expected shape .7, 3."),
            (lambda: mm_plus_mm(a, b, b, d), ValueError, "c: expected shape .5, 6."),
            (lambda: mm_plus_mm(a, b, c, c), ValueError, "d: expected shape .3, 6."),
            (lambda: mm_plus_mm(a, b, c, d.half()), ArgumentError, "d: expected torch.float32 as a has"),
            (lambda: mm_plus_mm(a.int(), b, c, d), ArgumentError, "a: expected torch.float16"),
            (lambda: mm_plus_mm(a, b, c, d, out=a), ValueError, "out: expected shape"),
            (lambda: mm_plus_mm(a[:, :6], b[:6], c, d, out=a[:, 1:]), ValueError, "out: expected memory of its own"),
            (lambda: mm_plus_mm(a.clone().requires_grad_(), b, c, d, out=a[:, :6]), ValueError, "require no grad"),
        ):
            with pytest.raises(error, match=words):
                call()


class TestOverMaps:
    """What `sm_90` runs where maps describe all operands."""

    @pytest.fixture(autouse=True, params=TILES, ids=lambda tile: f"{tile.rows} x {tile.cols}")
    def device(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Have a device that takes maps, with a tile."""
        sm90.pretend(monkeypatch, launch)
        monkeypatch.setattr(launch, "schedules_of", lambda *_, **__: (request.param,))
        with library.override(lambda name: sm90.provide(name, lambda: {"GROUP": 2, "STAGES": 2})):
            yield

    @pytest.mark.parametrize("trans", list(product([False, True], repeat=4)), ids=str)
    def test_every_transpose(self, trans):
        given = operands(136, 264, 200, 72, torch.bfloat16)
        check([value.mT.contiguous().mT if turned else value for value, turned in zip(given, trans, strict=True)])

    @pytest.mark.parametrize("sizes", [(8, 72, 64, 1032), (200, 8, 1032, 16), (264, 520, 8, 8)], ids=str)
    def test_products_of_different_depths(self, sizes):
        check(operands(*sizes, torch.float16))

    def test_a_result_by_columns_is_that_of_the_transposes(self):
        given = operands(136, 72, 64, 72, torch.bfloat16)
        out = torch.full((72, 136), float("nan")).bfloat16().mT
        assert mm_plus_mm(*given, out=out) is out
        exact = reference.mm_plus_mm(*(value.double() for value in given))
        assert_accurate(out, exact, reference.mm_plus_mm(*given))

    @pytest.mark.parametrize("place", range(5))
    def test_what_maps_cannot_describe_goes_over_pointers(self, place):
        given = operands(8, 8, 8, 8, torch.bfloat16)
        out = torch.empty(8, 8).bfloat16()
        values = [laid_out(value, "gaps") if number == place else value for number, value in enumerate((*given, out))]
        names: list[str] = []
        with library.override(lambda name: lambda *_, **__: names.append(name)):
            mm_plus_mm(*values[:4], out=values[4])
        assert names == ["mm_plus_mm"]
