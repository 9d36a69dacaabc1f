"""Products whose programs share the last wave: the sm_90 kernel step by step without a device, its sums in the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.bmm import baddbmm, bmm, mm
from nojit.kernels.bmm import launch as launch_module
from nojit.kernels.bmm.cost import Schedule
from nojit.kernels.manifest_kernels import by_position

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.gluon_stub import load
from tests.kernels.interpreter import Interpreter

FILES = (*sm90.SHARED, *sm90.WAVES, "bmm/kernel_sm90_waves.py")
asked: list[str] = []
programs: list[int] = []


def schedule_of(*_: Any, has_epilogue: bool, **__: Any) -> Schedule:
    """Share the last wave wherever that is allowed."""
    return Schedule(64, 64) if has_epilogue else Schedule(128, 256, is_shared=True)


@pytest.fixture(autouse=True)
def device(interpreted: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device of a few processors that takes maps, which share the last wave."""
    sm90.pretend(monkeypatch, launch_module)
    programs[:] = [5]
    monkeypatch.setattr(launch_module, "processors", lambda _: programs[0])
    monkeypatch.setattr(launch_module, "schedule_of", schedule_of)
    kernel = load("bmm_waves_sm90_kernel", *(sm90.KERNELS / path for path in FILES))

    def run(*args: Any, **named: Any) -> None:
        (left, right, out, sums, *numbers), constexprs = by_position("bmm_waves_sm90", args, named)
        # what nobody stores must not be read
        sums.fill_(float("nan"))
        assert numbers[-1] == programs[0]
        kernel(programs[0], *map(sm90.argument, (left, right, out, sums)), *numbers, **constexprs, STAGES=2)

    def provide(name: str) -> Any:
        def launch(*args: Any, **named: Any) -> None:
            asked.append(name)
            (run if name == "bmm_waves_sm90" else interpreted(name))(*args, **named)

        return launch

    asked.clear()
    with library.override(provide):
        yield


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        pytest.param(5, (1, 136, 264, 1032), id="fewer tiles than programs"),
        pytest.param(3, (2, 136, 264, 1000), id="a rest of two of eight tiles, by three programs"),
        pytest.param(7, (1, 1000, 200, 72), id="a rest of one, short"),
        pytest.param(5, (4, 104, 504, 456), id="a rest of three"),
        pytest.param(5, (3, 200, 280, 840), id="parts that end within tiles"),
    ],
)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, True), (True, False)])
def test_products(sizes, count, trans_a, trans_b):
    programs[:] = [count]
    batch, m, n, k = sizes
    a, b = sm90.stored((batch, m, k), trans_a), sm90.stored((batch, k, n), trans_b)
    result = bmm(a, b)
    assert asked == ["bmm_waves_sm90", "bmm_waves_merge"]
    assert_accurate(result, a.double() @ b.double(), a @ b)


@pytest.mark.parametrize("cols", [264, 261])
def test_results_within_larger_tensors(cols):
    a, b = sm90.stored((136, 256), False), sm90.stored((256, 264), False)[:, :cols]
    # columns that are no multiple of 8, in rows that are
    out = torch.full((140, 272), 7.0).bfloat16()
    assert mm(a, b, out=out[2:138, :cols]) is not None
    assert asked == ["bmm_waves_sm90", "bmm_waves_merge"]
    assert_accurate(out[2:138, :cols], a.double() @ b.double(), a @ b)
    out[2:138, :cols] = 7.0
    assert (out == 7.0).all(), "written beyond the result"


def test_a_result_by_columns_is_that_of_the_transposes():
    a, b = sm90.stored((2, 136, 264), False), sm90.stored((2, 264, 72), False)
    out = torch.full((2, 72, 136), float("nan")).bfloat16().mT
    assert bmm(a, b, out=out) is out
    assert asked == ["bmm_waves_sm90", "bmm_waves_merge"]
    assert_accurate(out, a.double() @ b.double(), a @ b)


def test_a_shared_matrix_and_a_cached_call():
    a, b = sm90.stored((1, 72, 640), False).expand(3, -1, -1), sm90.stored((3, 640, 72), True)
    first = bmm(a, b)
    assert_accurate(first, a.double() @ b.double(), a @ b)
    assert torch.equal(bmm(a, b), first)
    assert asked == ["bmm_waves_sm90", "bmm_waves_merge"] * 2


@pytest.mark.parametrize(("trans_a", "trans_b"), list(product([False, True], repeat=2)))
def test_bits_do_not_depend_on_the_order_of_programs(trans_a, trans_b):
    a, b = sm90.stored((136, 1032), trans_a), sm90.stored((1032, 264), trans_b)
    assert torch.equal(mm(a, b), mm(a, b))


def test_what_is_done_to_a_product_or_must_not_depend_on_its_rows_is_not_shared(monkeypatch):
    names: list[str] = []
    a, b = sm90.stored((136, 64), False), sm90.stored((64, 264), False)
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        mm(a, b, activation="relu")
        baddbmm(torch.zeros(1, 136, 264).bfloat16(), a[None], b[None])
    with library.override(lambda name: lambda *_, **__: names.append(name), batch_invariant=True):
        mm(a, b)
    assert names == ["bmm_sm90"] * 3
