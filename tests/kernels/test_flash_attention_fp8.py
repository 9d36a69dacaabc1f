"""Attention over eight-bit operands: the values of a bf16 call, less of them, and an output in bf16."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own spelling
from nojit.kernels.attention.band_masks import NO_MASK
from nojit.kernels.calls import tensor_maps
from nojit.kernels.flash_attention import flash_attention, reference
from nojit.kernels.flash_attention import launch as flash_launch
from nojit.kernels.flash_attention.problems import PROBLEMS, AttentionShape
from nojit.kernels.problem import requested
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate

FP8 = torch.float8_e4m3fn

pytestmark = pytest.mark.usefixtures("interpreted")


def make(problem: AttentionShape) -> tuple[Tensor, Tensor, Tensor]:
    q = torch.randn(problem.batch, problem.heads, problem.q_len, problem.head_dim)
    k = torch.randn(problem.batch, problem.kv_heads, problem.kv_len, problem.head_dim)
    v = torch.randn(problem.batch, problem.kv_heads, problem.kv_len, problem.v_dim)
    return q.to(FP8), k.to(FP8), v.to(FP8)


def torchs(q: Tensor, k: Tensor, v: Tensor, *, scale=None, **words) -> Tensor:
    """torch's own operator, which knows no such operands, over the same values in bf16."""
    mask = reference.visible(q.shape[2], k.shape[2], q.device, **words)
    wide = (x.to(torch.bfloat16) for x in (q, k, v))
    return torch.nan_to_num(F.scaled_dot_product_attention(*wide, attn_mask=mask, scale=scale, enable_gqa=True))


def check(q: Tensor, k: Tensor, v: Tensor, **arguments) -> Tensor:
    """Hold output and log-sums to the exact ones; return the output."""
    out, lse = flash_attention(q, k, v, return_lse=True, **arguments)
    exact, exact_lse = reference.flash_attention(q.double(), k.double(), v.double(), **arguments)
    assert out.dtype == torch.bfloat16
    assert_accurate(out, exact, torchs(q, k, v, **arguments))
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-5)
    return out


@pytest.mark.parametrize("problem", PROBLEMS["test"], ids=lambda problem: problem.name)
def test_is_as_accurate_as_torch_in_bf16(problem):
    check(*make(problem), is_causal=problem.is_causal, causal_alignment=problem.causal_alignment)


@pytest.mark.parametrize("words", [{"window": (9, 30)}, {"is_causal": True, "window": 20}], ids=str)
def test_windows(words):
    check(*make(AttentionShape("", 1, 4, 2, 90, 150, 64, 64)), **words, causal_alignment="bottom_right")


@pytest.mark.parametrize("scale", [0.0, -0.7, 3.0])
def test_any_scale(scale):
    check(*make(AttentionShape("", 1, 2, 2, 40, 150, 32, 32)), scale=scale, is_causal=True)


def test_the_least_and_the_largest_values():
    q, k, v = (x.double() for x in make(AttentionShape("", 1, 2, 1, 40, 70, 64, 64)))
    check((q / 64).to(FP8), k.to(FP8), (v * 100).clamp(-448, 448).to(FP8))
    # below 2^-6 there are no more than three bits
    check(q.to(FP8), (k / 256).to(FP8), (v / 256).to(FP8))


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), id="heads inside"),
        pytest.param(lambda x: x.repeat(1, 1, 1, 2)[..., x.shape[-1] :], id="half of wider rows"),
        pytest.param(lambda x: x.repeat(1, 1, 2, 1)[:, :, ::2], id="every other row"),
        pytest.param(lambda x: x.flatten().repeat(2)[3 : 3 + x.numel()].view(x.shape), id="unaligned"),
        pytest.param(lambda x: x[:1, :1].expand_as(x), id="one head for all"),
    ],
)
def test_any_strides(arrange):
    check(*(arrange(x) for x in make(AttentionShape("", 2, 4, 4, 19, 23, 48, 48))), is_causal=True)


def test_the_output_lies_in_memory_as_the_queries_do():
    q, k, v = (torch.randn(2, 20, 3, 32).to(FP8).transpose(1, 2) for _ in range(3))
    assert flash_attention(q, k, v).stride() == q.stride()


@pytest.mark.parametrize(("dims", "width"), [((8, 8), 64), ((64, 65), 128), ((192, 128), 256)])
def test_one_width_of_a_few_is_asked_for(dims, width):
    q, k, v = make(AttentionShape("", 1, 2, 1, 5, 6, *dims))
    launch, out = requested(lambda: flash_attention(q, k, v))
    assert launch.kernel == "flash_attention_fwd_fp8"
    assert launch.named == {"MASK": "none", "BLOCK_D": width, "BLOCK_DV": width}
    assert out.shape == (1, 2, 5, dims[1])


def test_nothing_runs_before_sm_90(monkeypatch):
    class Cuda(torch.Tensor):
        """Says that it lies on a device."""

        is_cuda = True

    monkeypatch.setattr(tensor_maps, "_facts", lambda _: SimpleNamespace(major=8, minor=9))
    q, k, v = make(AttentionShape("", 1, 1, 1, 2, 2, 64, 64))
    with pytest.raises(
        ArgumentError, match=r"q: expected a device of sm_90 or newer for torch.float8_e4m3fn, got sm_89"
    ):
        flash_launch.launch_forward(q.as_subclass(Cuda), k, v, q.to(torch.bfloat16), None, 1.0, NO_MASK)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("return_lse", [False, True])
def test_there_are_no_gradients(place, return_lse):
    given = make(AttentionShape("", 1, 1, 1, 4, 5, 16, 16))
    given[place].requires_grad_()
    with pytest.raises(
        ArgumentError, match=r"q: expected .*float32 where gradients are required, got torch.float8_e4m3fn"
    ):
        flash_attention(*given, return_lse=return_lse)
    with torch.no_grad():
        assert flash_attention(*given).dtype == torch.bfloat16


def test_operands_are_of_one_dtype():
    q, k, v = make(AttentionShape("", 1, 1, 1, 4, 5, 16, 16))
    with pytest.raises(ArgumentError, match=r"v: expected torch.float8_e4m3fn as q has, got torch.bfloat16"):
        flash_attention(q, k, v.to(torch.bfloat16))
    with pytest.raises(
        ArgumentError, match=r"q: expected torch.float16 or .* or torch.float8_e4m3fn, got torch.float8_e5m2"
    ):
        flash_attention(*(x.to(torch.float8_e5m2) for x in (q, k, v)))


def test_operator_is_sound():
    given = make(AttentionShape("", 1, 2, 1, 5, 6, 16, 24))
    arguments = (*given, None, True, "bottom_right", 2, None, True)
    # the other checks compare copies of the operands by arithmetic that torch has not for them
    torch.library.opcheck(torch.ops.nojit.flash_attention.default, arguments, test_utils="test_faketensor")


def test_traces_without_a_graph_break():
    traced = torch.compile(lambda *x: flash_attention(*x, is_causal=True), backend="eager", fullgraph=True)
    given = make(AttentionShape("", 1, 2, 1, 5, 6, 16, 16))
    assert torch.equal(traced(*given), flash_attention(*given, is_causal=True))
