"""fp8 products whose programs share the last wave: the sm_90 kernel step by step without a device, its sums in the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.kernels import library
from nojit.kernels.scaled_mm import launch as launch_module
from nojit.kernels.scaled_mm import scaled_mm
from nojit.kernels.scaled_mm.cost import is_shared

from tests.kernels import sm90
from tests.kernels.interpreter import Interpreter
from tests.kernels.test_scaled_mm import check, operands, scales

BOTH = ["scaled_mm_waves_sm90", "bmm_waves_merge"]
STAGES = 2
LARGE = 132
"""SMs of an H200."""
asked: list[str] = []


@pytest.fixture(autouse=True)
def device(interpreted: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device of a few processors that takes maps, which share the last wave."""
    monkeypatch.setattr(launch_module, "has_maps", lambda _: True)
    monkeypatch.setattr(launch_module, "processors", lambda _: sm90.PROGRAMS)
    monkeypatch.setattr(launch_module, "is_shared", lambda *_: True)

    def provide(name: str) -> Any:
        kernel = interpreted(name) if name == "bmm_waves_merge" else sm90.provide(name, lambda: {"STAGES": STAGES})

        def launch(*args: Any, **named: Any) -> None:
            asked.append(name)
            if "sums_ptr" in named and name != "bmm_waves_merge":
                # what nobody stores must not be read
                named["sums_ptr"].fill_(float("nan"))
            kernel(*args, **named)

        return launch

    asked.clear()
    with library.override(provide):
        yield


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((136, 272, 1296), id="a whole wave and a rest of one"),
        pytest.param((200, 528, 4368), id="a whole wave and three programs for each tile"),
        pytest.param((400, 272, 144), id="a rest of two of eight tiles, less than two steps deep"),
        pytest.param((72, 272, 1040), id="fewer tiles than programs"),
    ],
)
def test_products(sizes):
    a, b = operands(*sizes)
    given = scales(*sizes, "whole")
    check(scaled_mm(a, b, *given), a, b, *given)
    assert asked == BOTH


def test_a_result_within_a_larger_tensor():
    a, b = operands(136, 272, 1296)
    given = scales(136, 272, 1296, "whole")
    wide = torch.full((140, 288), 7.0).bfloat16()
    out = wide[2:138, 8:280]
    assert scaled_mm(a, b, *given, out=out) is out
    assert asked == BOTH
    check(out, a, b, *given)
    out[:] = 7.0
    assert (wide == 7.0).all(), "written beyond the result"


def test_only_coarse_sums_with_one_scale_each_share_the_last_wave(monkeypatch):
    names: list[str] = []
    sizes = (136, 272, 144)
    a, b = operands(*sizes)
    whole = scales(*sizes, "whole")
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        scaled_mm(a, b, *scales(*sizes, "ends"))
        scaled_mm(a, b, *whole, torch.randn(272).bfloat16())
        scaled_mm(a, b, *whole, use_fast_accum=True)
        scaled_mm(a, b, *whole, out_dtype=torch.float16)
        scaled_mm(a[:16], b, *whole)
    with library.override(lambda name: lambda *_, **__: names.append(name), batch_invariant=True):
        scaled_mm(a, b, *whole)
    assert {*names} == {"scaled_mm_sm90"}


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((315, 12992, 13360), id="153 tiles on 132 SMs"),
        pytest.param((783, 9712, 6160), id="266 tiles on 132 SMs"),
    ],
)
def test_a_last_wave_of_few_tiles_is_shared(sizes):
    assert is_shared(*sizes, LARGE, False)


@given(st.integers(17, 8192), st.integers(1, 1024), st.integers(1, 1024), st.sampled_from([1, 20, 114, LARGE]))
def test_a_shared_last_wave_has_tiles(rows, cols, depth, processors):
    if is_shared(rows, 16 * cols, 16 * depth, processors, True):
        assert -(-rows // 128) * -(-16 * cols // 256) % processors
