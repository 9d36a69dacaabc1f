"""gated_mm: through Triton's interpreter as two kernels, and the kernel over tensor maps step by step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.expand import expand_kernel
from nojit.kernels import library
from nojit.kernels.bmm import launch as products
from nojit.kernels.gated_mm import gated_mm, launch, reference
from nojit.kernels.gated_mm.cost import SIDES, tile_of
from nojit.kernels.products.matrices import Layout, mapped
from nojit.runtime.errors import ArgumentError, KernelNotFoundError
from torch import Tensor

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.interpreter import Interpreter
from tests.kernels.test_bmm import WAYS, laid_out

MANIFEST = Path(__file__).resolve().parents[2] / "manifests/gated_mm.toml"
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
ACTIVATIONS = ("silu", "gelu", "relu")
LARGE = 132
"""SMs of an H200."""


def operands(m: int, n: int, k: int, dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(shape).to(dtype) for shape in ((m, k), (k, 2 * n))]


def check(values: list[Tensor], activation: str = "silu", out: Tensor | None = None) -> None:
    exact = reference.gated_mm(*(value.double() for value in values), activation=activation)
    torchs = reference.gated_mm(*values, activation=activation)
    assert_accurate(gated_mm(*values, activation=activation, out=out), exact, torchs)


@pytest.fixture
def apart(interpreted: Interpreter) -> Iterator[None]:
    """Have kernels of products and pointwise operators, and none of both."""

    def provide(name: str) -> Any:
        if name == launch.KERNEL:
            raise KernelNotFoundError("none", got=name)
        return interpreted(name)

    with library.override(provide):
        yield


@pytest.mark.usefixtures("apart")
class TestByTwoKernels:
    """What every device runs."""

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("ways", [*zip(WAYS, WAYS, strict=True), WAYS[:2], WAYS[1:3]], ids=str)
    def test_any_strides(self, ways, dtype):
        check([laid_out(value, way) for value, way in zip(operands(33, 20, 70, dtype), ways, strict=True)])

    @pytest.mark.parametrize("seed", range(6))
    def test_any_sizes(self, seed):
        rng = random.Random(seed)
        sizes = (rng.choice((1, 3, 17, 64, 65, 130)) for _ in range(3))
        check(operands(*sizes, rng.choice(FLOATS)), rng.choice(ACTIVATIONS))

    @pytest.mark.parametrize("sizes", [(3, 4, 0), (0, 4, 5), (3, 0, 5)], ids=str)
    def test_nothing_to_multiply(self, sizes):
        values = operands(*sizes, torch.float32)
        torch.testing.assert_close(gated_mm(*values), reference.gated_mm(*values))

    def test_a_cached_call_reads_new_operands(self):
        for _ in range(3):
            check(operands(5, 6, 7, torch.float32))

    def test_out_may_lie_any_way(self):
        values = operands(20, 12, 16, torch.float32)
        for way in WAYS:
            out = laid_out(torch.full((20, 12), float("nan")), way)
            assert gated_mm(*values, out=out) is out
            torch.testing.assert_close(out, reference.gated_mm(*values))

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_gradients(self, activation):
        values = [value.requires_grad_() for value in operands(9, 6, 10, torch.float32)]
        wide = [value.detach().double().requires_grad_() for value in values]
        grad = torch.randn(9, 6)
        right = torch.autograd.grad(reference.gated_mm(*wide, activation=activation), wide, grad.double())
        found = torch.autograd.grad(gated_mm(*values, activation=activation), values, grad)
        for got, value in zip(found, right, strict=True):
            torch.testing.assert_close(got.double(), value, rtol=1e-5, atol=1e-4)

    def test_the_operator_is_torchs_kind(self):
        values = operands(5, 3, 6, torch.float32)
        torch.library.opcheck(torch.ops.nojit.gated_mm.default, (*values, "silu"))
        torch.library.opcheck(torch.ops.nojit.gated_mm_out.default, (*values, "silu", torch.empty(5, 3)))
        traced = torch.compile(gated_mm, backend="aot_eager", fullgraph=True)
        assert torch.equal(traced(*values), gated_mm(*values))
        values[1].requires_grad_()
        assert traced(*values).requires_grad
        with pytest.raises(NotImplementedError, match="call gated_mm"):
            torch.ops.nojit.gated_mm(*values, "silu").sum().backward()

    def test_autocast_casts_as_torchs_products(self):
        values = operands(5, 3, 6, torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            result = gated_mm(*values)
        assert torch.equal(result, gated_mm(*(value.bfloat16() for value in values)))

    def test_mistakes_are_named(self):
        a, b = operands(5, 3, 6, torch.float32)
        for call, error, words in (
            (lambda: gated_mm(a[None], b), ValueError, "input: expected 2 dimensions"),
            (lambda: gated_mm(a, b[:5]), ValueError, "mat2: expected 6 rows"),
            (lambda: gated_mm(a, b[:, 1:]), ValueError, "mat2: expected an even number of columns"),
            (lambda: gated_mm(a, b.half()), ArgumentError, "mat2: expected torch.float32 as input has"),
            (lambda: gated_mm(a.int(), b.int()), ArgumentError, "input: expected torch.float16"),
            (lambda: gated_mm(a, b, activation="tanh"), ValueError, "activation: expected 'silu'"),
            (lambda: gated_mm(a, b, out=a), ValueError, "out: expected shape .5, 3."),
            (lambda: gated_mm(a, b, out=a[:, 1:4]), ValueError, "out: expected memory of its own"),
            (lambda: gated_mm(a.clone().requires_grad_(), b, out=a[:, :3].clone()), ValueError, "require no grad"),
        ):
            with pytest.raises(error, match=words):
                call()


class TestOneRow:
    """What `sm_90` runs for one row, if maps describe the operands and the weights are stored by columns."""

    asked: list[str]

    @pytest.fixture(autouse=True)
    def device(self, interpreted: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Have a device that takes maps, where kernels of one row run."""
        sm90.pretend(monkeypatch, launch)
        sm90.pretend(monkeypatch, products)
        self.asked = []
        with library.override(lambda name: sm90.noted(interpreted(name), name, self.asked)):
            yield

    @pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
    @pytest.mark.parametrize("sizes", [(37, 1048), (1, 8), (8, 2056), (264, 520)], ids=str)
    def test_any_sizes(self, sizes, dtype):
        n, k = sizes
        check([sm90.stored((1, k), False, dtype), sm90.stored((k, 2 * n), True, dtype)])
        assert self.asked == ["gated_mm_row"]

    def test_out_may_lie_any_way_and_nothing_beside_it_is_written(self):
        values = [sm90.stored((1, 72), False), sm90.stored((72, 52), True)]
        wide = torch.full((1, 80), 7.0).bfloat16()
        check(values, out=wide[:, 1:79:3])
        assert self.asked == ["gated_mm_row"]
        assert (wide[:, [0, 2, 3, 79]] == 7).all()

    def test_nothing_past_the_operands_is_read(self):
        wide_a, wide_b = (torch.full(shape, float("nan")).bfloat16() for shape in ((3, 272), (96, 272)))
        check([wide_a[1:2, :264].normal_(), wide_b[8:80, :264].normal_().mT])
        assert self.asked == ["gated_mm_row"]

    def test_other_calls_run_on_other_kernels(self):
        def launched(
            m: int, activation: str = "silu", columns: bool = True, *, batch_invariant: bool = False
        ) -> list[str]:
            names: list[str] = []
            values = sm90.stored((m, 136), False), sm90.stored((136, 144), columns)
            with library.override(lambda name: lambda *_, **__: names.append(name), batch_invariant=batch_invariant):
                gated_mm(*values, activation=activation)
            return names

        assert launched(1) == ["gated_mm_row"]
        assert launched(1, "gelu") == ["bmm_row", "geglu"]
        assert launched(2) == ["bmm_row", "swiglu_rectangles"]
        assert launched(1, batch_invariant=True) == ["gated_mm_sm90"]
        assert launched(1, columns=False) == ["gated_mm_sm90"]

    def test_a_bundle_without_the_kernel_runs_two(self, interpreted):
        def provide(name: str) -> Any:
            if name == launch.ROW_KERNEL:
                raise KernelNotFoundError("none", got=name)
            return sm90.noted(interpreted(name), name, self.asked)

        with library.override(provide):
            check([sm90.stored((1, 72), False), sm90.stored((72, 48), True)])
        assert self.asked == ["bmm_row", "swiglu"]


class TestOverMaps:
    """What `sm_90` runs where maps describe all operands."""

    @pytest.fixture(autouse=True, params=SIDES, ids="{0[0]} x {0[1]}".format)
    def device(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Have a device that takes maps, with a tile."""
        sm90.pretend(monkeypatch, launch)
        monkeypatch.setattr(launch, "tile_of", lambda *_: request.param)
        with library.override(lambda name: sm90.provide(name, lambda: {"GROUP": 2, "STAGES": 2})):
            yield

    @pytest.mark.parametrize("columns", [False, True])
    @pytest.mark.parametrize(
        "sizes", [(136, 264, 200), (24, 128, 136), (20, 56, 1032), (300, 16, 136), (700, 264, 192)], ids=str
    )
    def test_any_sizes(self, sizes, columns):
        a, b = operands(*sizes, torch.bfloat16)
        check([a, b.mT.contiguous().mT if columns else b])

    def test_out_may_have_gaps_between_rows(self):
        values = operands(136, 72, 136, torch.float16)
        check(values, out=torch.full((136, 80), float("nan")).half()[:, :72])

    @pytest.mark.parametrize("place", range(3))
    def test_what_maps_cannot_describe_runs_by_two_kernels(self, place):
        a, b = operands(24, 8, 136, torch.bfloat16)
        values = [a, b, torch.empty(24, 8).bfloat16()]
        values[place] = laid_out(values[place], "gaps")
        with launches() as names:
            gated_mm(*values[:2], out=values[2])
        assert names == ["bmm", "swiglu_rectangles"]

    def test_other_activations_run_by_two_kernels(self):
        with launches() as names:
            gated_mm(*operands(24, 8, 136, torch.bfloat16), activation="relu")
        assert names == ["bmm", "reglu_rectangles"]

    @pytest.mark.parametrize(("k", "kernels"), [(128, ["bmm", "swiglu_rectangles"]), (136, [launch.KERNEL])])
    def test_a_shallow_product_runs_by_two_kernels(self, k, kernels):
        with launches() as names:
            gated_mm(*operands(24, 8, k, torch.bfloat16))
        assert names == kernels


@contextmanager
def launches() -> Iterator[list[str]]:
    """Launch nothing, and note the names of kernels."""
    names: list[str] = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        yield names


def tile(m: int, n: int, k: int, *, columns: bool = True) -> tuple[int, int] | None:
    """Choose the tile for contiguous operands."""
    of_a = mapped(Layout((1, m, k), (0, k, 1)), 2)
    of_b = mapped(Layout((1, k, 2 * n), (0, 1, k) if columns else (0, 2 * n, 1)), 2)
    assert of_a is not None
    assert of_b is not None
    return tile_of((of_a, of_b), (m, n, k), LARGE)


@pytest.mark.parametrize("tokens", [2048, 8192])
def test_prompts_take_one_launch(tokens):
    assert tile(tokens, 14336, 4096) == (128, 256)


@pytest.mark.parametrize("sizes", [(1, 14336, 4096), (256, 128, 16384)], ids=str)
def test_what_is_faster_in_parts_or_by_few_rows_takes_two(sizes):
    assert tile(*sizes) is None


@given(st.tuples(*(st.integers(1, most) for most in (20_000, 2_500, 4_000))), st.booleans())
def test_every_tile_has_a_kernel(sizes, columns):
    m, n, k = sizes
    found = tile(m, 8 * n, 8 * k, columns=columns)
    assert found is None or found in built()


@cache
def built() -> frozenset[tuple[object, ...]]:
    """Return the tiles of `gated_mm_sm90`."""
    (spec,) = (kernel for kernel in load_manifest(MANIFEST).kernel if kernel.name == launch.KERNEL)
    variants = expand_kernel(spec, "sm_90", "here").variants
    return frozenset((dict(variant.axes)["BLOCK_M"], dict(variant.axes)["BLOCK_N"]) for variant in variants)
