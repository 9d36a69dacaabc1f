"""Attention over e4m3 by the kernels for sm_90: which calls they take, what they are asked for, how values are turned."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.attention.band_masks import NO_MASK, BandMask
from nojit.kernels.calls import tensor_maps
from nojit.kernels.flash_attention import flash_attention, launch_sm90_fp8
from nojit.kernels.flash_attention import launch as flash_launch
from nojit.kernels.problem import requested
from torch import Tensor

from tests.kernels.attention_stub import in_fours

FP8 = torch.float8_e4m3fn
CAUSAL = BandMask("causal", 0, 37)


def made(*shape: int) -> Tensor:
    return torch.randn(shape).to(FP8)


def operands(heads: int = 8, q_len: int = 1100, kv_len: int = 70, dim: int = 48) -> tuple[Tensor, ...]:
    """Return q, k, v with two heads of keys, and the output."""
    q, k, v = made(2, heads, q_len, dim), made(2, 2, kv_len, dim), made(2, 2, kv_len, dim)
    return q, k, v, q.to(torch.bfloat16)


@pytest.fixture
def hopper(monkeypatch):
    """Have tensors on the host pass for those of an sm_90."""
    monkeypatch.setattr(launch_sm90_fp8, "has_maps", lambda device: True)
    monkeypatch.setattr(library, "has", lambda name: name.startswith("flash_attention"))
    monkeypatch.setattr(tensor_maps, "_facts", lambda _: SimpleNamespace(major=9, multi_processor_count=132))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("length", "dim"), [(33, 64), (150, 96), (16, 32), (1, 128)])
def test_values_become_columns_with_the_keys_of_each_16_in_fours(length, dim):
    v = made(2, length, 3, dim).transpose(1, 2)
    columns = launch_sm90_fp8.launch_values(tensor_maps.described(v))
    padded = torch.nn.functional.pad(v.float().mT, (0, -length % 16))
    assert torch.equal(columns.float(), in_fours(padded))


def test_the_first_kernel_is_asked_for_what_the_call_says():
    v = operands(dim=96)[2][..., :80]
    values, columns = requested(lambda: launch_sm90_fp8.launch_values(tensor_maps.described(v)))
    assert values.kernel == "flash_attention_values"
    assert values.args == (v, columns, 2, 2, 70, 80, 80, *v.stride()[:3])
    assert columns.shape == (2, 2, 80, 80)


def test_a_call_runs_over_maps(hopper, monkeypatch):
    asked = []
    caller = SimpleNamespace(
        make=lambda function, *args, **named: function(*args, **named),
        launch=lambda kernel, **named: asked.append((kernel, named)),
        constant=lambda *_: None,
    )
    q, k, v, out = operands()
    flash_launch.launch_forward(q, k, v, out, None, 0.5, CAUSAL, caller)
    (first, values), (second, words) = asked
    assert (first, second) == ("flash_attention_values", "flash_attention_fwd_fp8_sm90")
    assert words["v_map"].base is values["out_ptr"]
    assert [words[name].base for name in ("q_map", "k_map", "out_map")] == [q, k, out]
    sizes = ("causal_offset", "batch", "heads", "group", "q_len", "kv_len", "programs")
    assert [words[name] for name in sizes] == [37, 2, 8, 4, 1100, 70, 132]
    assert (words["CAUSAL"], words["BLOCK_D"], words["BLOCK_DV"], words["DEPTH"]) == (True, 64, 64, 64)


def test_other_calls_run_over_pointers(hopper, monkeypatch):
    q, k, v, out = operands()

    def taken(*given: Tensor, scale: float = 1.0, mask: BandMask = NO_MASK) -> bool:
        return launch_sm90_fp8.fp8_maps_of(*given, scale, mask) is not None

    assert taken(q, k, v, out)
    for lacking in ("flash_attention_values", "flash_attention_fwd_fp8_sm90"):
        with monkeypatch.context() as patch:
            patch.setattr(library, "has", lambda name, lacking=lacking: name != lacking)
            assert not taken(q, k, v, out)
    assert not taken(q, k, v, out, scale=-1.0)
    # masked scores are -inf, and times 0 NaN
    assert not taken(q, k, v, out, scale=0.0)
    assert not taken(q, k, v, out, scale=1e-50)
    assert not taken(q, k, v, out, mask=BandMask("window", -5, 5))
    assert not taken(q, k[:, :, :0], v[:, :, :0], out)
    assert not taken(*(each.to(torch.bfloat16) for each in (q, k, v)), out)
    assert taken(q, k, v[..., :32], out[..., :32])
    # rows that TMA cannot describe, or that are loaded one by one
    assert not taken(*operands(dim=40))
    assert not taken(*operands(dim=144))
    assert not taken(q, k, v[..., :40], out[..., :40])
    assert not taken(q, k, v.flatten().repeat(2)[3 : 3 + v.numel()].view(v.shape), out)


@pytest.mark.parametrize(
    ("dim", "q_len", "taken"), [(64, 1023, False), (64, 1024, True), (96, 255, False), (96, 256, True)]
)
def test_few_queries_run_over_pointers(hopper, dim, q_len, taken):
    # one kernel of few programs takes less time than two
    maps = launch_sm90_fp8.fp8_maps_of(*operands(2, q_len, dim=dim), 1.0, NO_MASK)
    assert (maps is not None) == taken


@pytest.mark.usefixtures("interpreted")
def test_without_maps_nothing_is_turned():
    q, k, v, _ = operands(dim=64)
    launch, _ = requested(lambda: flash_attention(q, k, v))
    assert launch.kernel == "flash_attention_fwd_fp8"
