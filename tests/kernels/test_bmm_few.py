"""Products with few rows, in the interpreter: the kernel, and which calls it serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.bmm import baddbmm, bmm, mm
from nojit.kernels.bmm import launch as launch_module

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.interpreter import Interpreter

asked: list[str] = []


@pytest.fixture
def device(interpreted: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device that takes maps, where only this kernel runs."""
    sm90.pretend(monkeypatch, launch_module)
    asked.clear()

    def provide(name: str) -> Any:
        return sm90.noted(interpreted(name), name, asked)

    with library.override(provide):
        yield


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "sizes", [(1, 37, 1048), (2, 37, 2056), (3, 40, 264), (8, 72, 8), (9, 136, 1032), (16, 7, 520)], ids=str
)
def test_products(sizes, dtype):
    m, n, k = sizes
    a, b = sm90.stored((m, k), False, dtype), sm90.stored((k, n), True, dtype)
    assert_accurate(mm(a, b), a.double() @ b.double(), a @ b)
    assert_accurate(bmm(a[None], b[None])[0], a.double() @ b.double(), a @ b)
    assert asked == ["bmm_row" if m < 3 else "bmm_few"] * 2


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_columns_are_the_rows_of_the_transposed_product(n):
    a, b = sm90.stored((136, 264), False), sm90.stored((264, n), True)
    assert_accurate(mm(a, b), a.double() @ b.double(), a @ b)
    source = torch.randn(136, 1).bfloat16()
    exact = torch.relu(a.double() @ b.double() * 0.5 - source.double())
    result = baddbmm(source, a[None], b[None], beta=-1, alpha=0.5, activation="relu")[0]
    assert_accurate(result, exact, exact.bfloat16())
    assert asked == ["bmm_row" if n < 3 else "bmm_few"] * 2


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("m", [1, 2, 5])
def test_epilogues_views_and_results_by_columns(m):
    a, b = sm90.stored((7, 264), False)[:m, 8:], sm90.stored((264, 80), True)[8:, :72]
    source = torch.randn(72).bfloat16()
    out = torch.full((1, 72, m), float("nan")).bfloat16().mT
    exact = torch.nn.functional.silu(source.double() + a.double() @ b.double())
    assert baddbmm(source, a[None], b[None], activation="silu", out=out) is out
    assert_accurate(out[0], exact, exact.bfloat16())
    assert asked == ["bmm_row" if m < 3 else "bmm_few"]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("m", [1, 2, 5])
def test_nothing_past_the_operands_is_read(m):
    """Rows and columns around the operands are NaN."""
    wide_a, wide_b = (torch.full(shape, float("nan")).bfloat16() for shape in ((9, 272), (96, 272)))
    a, b = wide_a[:m, :264].normal_(), wide_b[:72, :264].normal_().mT
    assert_accurate(mm(a, b), a.double() @ b.double(), a @ b)
    assert asked == ["bmm_row" if m < 3 else "bmm_few"]


def launched(a: torch.Tensor, b: torch.Tensor, *, batch_invariant: bool = False) -> list[str]:
    names: list[str] = []
    with library.override(lambda name: lambda *_, **__: names.append(name), batch_invariant=batch_invariant):
        (mm if a.dim() == 2 else bmm)(a, b)
    return names


@pytest.mark.usefixtures("device")
def test_other_products_run_on_other_kernels():
    few = sm90.stored((3, 512), False), sm90.stored((512, 256), True)
    assert launched(*few) == ["bmm_few"]
    assert launched(*few, batch_invariant=True) == ["bmm_sm90"]
    assert launched(sm90.stored((17, 512), False), few[1]) == ["bmm_tiles_sm90"]
    assert launched(few[0], sm90.stored((512, 256), False)) == ["bmm_tiles_sm90"], "b by rows"
    assert launched(sm90.stored((3, 512), True), few[1]) == ["bmm"], "rows of a are not contiguous"
    assert launched(sm90.stored((16, 512), True), few[1]) == ["bmm_tiles_sm90"], "rows of a are not contiguous"
    assert launched(few[0].float(), few[1].float()) == ["bmm"]
    assert launched(sm90.stored((512 * 3 + 1,), False)[1:].view(3, 512), few[1]) == ["bmm"], "an address is not aligned"
    assert launched(torch.stack([few[0]] * 2), torch.stack([few[1]] * 2)) == ["bmm_tiles_sm90"]


@pytest.mark.usefixtures("device")
def test_wide_and_deep_products_of_several_rows_run_on_other_kernels():
    def kernel(m: int, n: int, k: int) -> str:
        return launched(sm90.stored((m, k), False), sm90.stored((k, n), True))[0]

    assert kernel(1, 4096, 64) == "bmm_row"
    assert kernel(2, 16 * 132, 64) == "bmm_row"
    assert kernel(2, 16 * 132 + 8, 64) == "bmm_tiles_sm90"
    assert kernel(16, 64, 4096 + 4 * 64) == "bmm_few"
    assert kernel(16, 64, 4096 + 4 * 64 + 8) == "bmm_tiles_sm90"
