"""Products with a copy of the right operand: the copy in the interpreter, the sm_90 kernel step by step."""

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
from nojit.kernels.bmm.launch_padded import LINE

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.interpreter import Interpreter

CONFIG = {"BLOCK_M": 128, "BLOCK_N": 256, "GROUP": 2, "STAGES": 2}
asked: list[str] = []
pitches: list[int] = []


@pytest.fixture
def device(interpreted: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device that takes maps, which copies every right operand."""
    sm90.pretend(monkeypatch, launch_module)
    monkeypatch.setattr(launch_module, "schedule_of", lambda *_, **__: Schedule(128, 256, is_copied=True))
    asked.clear()
    pitches.clear()

    def provide(name: str) -> Any:
        kernel = interpreted(name) if name in {"bmm_pad", "bmm_merge"} else sm90.provide(name, lambda: CONFIG)

        def launch(*args: Any, **named: Any) -> None:
            asked.append(name)
            pitches.extend(named[name].strides[2] for name in ("a_map", "b_map") if name in named)
            kernel(*args, **named)

        return launch

    with library.override(provide):
        yield


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("trans_a", "trans_b"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("sizes", [(2, 136, 264, 200), (1, 200, 72, 520)], ids=str)
def test_products(sizes, trans_a, trans_b):
    batch, m, n, k = sizes
    a, b = sm90.stored((batch, m, k), trans_a), sm90.stored((batch, k, n), trans_b)
    assert_accurate(bmm(a, b), a.double() @ b.double(), a @ b)
    assert asked == ["bmm_pad", "bmm_tiles_sm90"]
    assert pitches[0] == (m if trans_a else k), "the left operand is used as it is"
    assert pitches[1] == -(-(k if trans_b else n) // LINE) * LINE


@pytest.mark.usefixtures("device")
def test_cached_calls_and_an_epilogue():
    a, b = sm90.stored((136, 192), False), sm90.stored((192, 264), False)
    source = torch.randn(264).bfloat16()
    result = mm(a, b)
    assert_accurate(result, a.double() @ b.double(), a @ b)
    assert torch.equal(mm(a, b), result)
    exact = torch.relu(source.double() + a.double() @ b.double())
    assert_accurate(baddbmm(source, a[None], b[None], activation="relu")[0], exact, exact.bfloat16())
    assert asked == [*["bmm_pad", "bmm_tiles_sm90"] * 2, "bmm_pad", "bmm_sm90"]


@pytest.mark.usefixtures("device")
def test_a_shared_matrix_a_result_by_columns_and_rows_within_larger_ones():
    a, b = sm90.stored((1, 72, 136), False).expand(3, -1, -1), sm90.stored((3, 136, 72), True)
    assert_accurate(bmm(a, b), a.double() @ b.double(), a @ b)
    a, b = sm90.stored((2, 136, 264), False)[:, :, 8:], sm90.stored((2, 256, 80), False)[:, :, :72]
    out = torch.full((2, 72, 136), float("nan")).bfloat16().mT
    assert bmm(a, b, out=out) is out
    assert_accurate(out, a.double() @ b.double(), a @ b)
    assert asked == ["bmm_pad", "bmm_tiles_sm90"] * 2


@pytest.mark.usefixtures("device")
def test_batch_invariance_copies_nothing():
    names: list[str] = []
    with library.override(lambda name: lambda *_, **__: names.append(name), batch_invariant=True):
        mm(sm90.stored((128, 72), False), sm90.stored((72, 128), True))
    assert names == ["bmm_sm90"]
