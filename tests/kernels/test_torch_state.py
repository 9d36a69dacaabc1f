from __future__ import annotations

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.b2b_gemm import b2b_gemm
from nojit.kernels.block_sparse import BlockLayout, block_sparse_matmul
from nojit.kernels.bmm import mm
from nojit.kernels.calls.torch_state import differentiates, is_plain, written
from nojit.kernels.conv import conv2d
from nojit.kernels.flash_attention import flash_attention
from nojit.kernels.flex import flex_attention
from nojit.kernels.flex_decoding import flex_decoding
from nojit.kernels.gated_mm import gated_mm
from nojit.kernels.mixed_mm import uint4x2_mixed_mm
from nojit.kernels.mm_plus_mm import mm_plus_mm
from nojit.kernels.norm import rms_norm
from nojit.kernels.pointwise import silu, vector_add
from nojit.kernels.scaled_mm import scaled_mm
from nojit.runtime import _core
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

LAYOUT = BlockLayout(torch.ones(1, 1, 1, dtype=torch.bool), 16)


@pytest.fixture(autouse=True)
def launches():
    """Count launches; a call that skips the dispatcher launches like any other."""
    seen = []
    with library.override(lambda name: lambda *args, **constexprs: seen.append(name)):
        yield seen


def test_plain_tensors():
    x = torch.randn(3)
    assert is_plain(x)
    assert is_plain(x, None, x[1:])
    assert is_plain()


class Own(torch.nn.Parameter):
    """A class made of torch's."""


def test_parameters_are_plain_where_no_gradient_is_recorded():
    x = torch.randn(3)
    weight, frozen = torch.nn.Parameter(x), torch.nn.Parameter(x, requires_grad=False)
    assert not is_plain(x, weight)
    assert is_plain(x, frozen)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert is_plain(x, weight)
            assert not is_plain(Own(x))
            assert not is_plain(torch.nn.UninitializedParameter())


def test_what_must_be_seen_is_not_plain():
    x = torch.randn(3)
    assert not is_plain(x, torch.randn(3, requires_grad=True))
    assert not is_plain(x.to("meta"))
    assert not is_plain([1.0])
    with TorchFunctionMode():
        assert not is_plain(x)
    with TorchDispatchMode():
        assert not is_plain(x)
    with forward_ad.dual_level():
        assert not is_plain(x)


@pytest.mark.parametrize(
    "call",
    [
        silu,
        lambda w: vector_add(w, w),
        lambda w: mm(torch.nn.Parameter(w[0, 0]), torch.nn.Parameter(w[0, 0].mT)),
        lambda w: flash_attention(w, w, w),
        lambda w: flex_attention(w, w, w),
        lambda w: conv2d(w, torch.nn.Parameter(torch.ones(1, 1, 1, 1))),
        lambda w: rms_norm(w, torch.nn.Parameter(torch.ones(16))),
    ],
)
def test_what_is_computed_of_parameters_is_none(call, launches):
    weight = torch.nn.Parameter(torch.randn(1, 1, 4, 16))
    with torch.no_grad():
        for _ in range(2):
            result = call(weight)
            assert type(result) is torch.Tensor
            assert not result.requires_grad
    assert len(launches) == 2


def test_a_parameter_may_be_written_to(launches):
    weight = torch.nn.Parameter(torch.randn(8))
    with torch.no_grad():
        for version in (1, 2):
            assert vector_add(weight, torch.ones(8), out=weight) is weight
            assert weight._version == version
    assert len(launches) == 2


def test_grad_mode_counts():
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        assert is_plain(x)
    with torch.inference_mode():
        assert is_plain(x)


def test_transforms_see_the_operator():
    seen = []
    torch.func.vmap(lambda x: seen.append(is_plain(x)) or x)(torch.randn(2, 3))
    assert seen == [False]


def test_transforms_hide_no_gradient():
    x, trained = torch.randn(2, 2, 3), torch.randn(2, 2, 3, requires_grad=True)
    assert not differentiates(x, None)
    assert differentiates(None, x, trained)
    seen = []
    for operands in ((x, trained), (x, x)):
        torch.func.vmap(torch.func.vmap(lambda *each: seen.append(differentiates(*each)) or each))(*operands)
        with torch.no_grad():
            torch.func.vmap(lambda *each: seen.append(differentiates(*each)) or each)(*operands)
    assert seen == [True, False, False, False]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: flex_decoding(*(x[None, None],) * 3),
        lambda x: scaled_mm(x.to(torch.float8_e4m3fn), x.to(torch.float8_e4m3fn).mT, x[0, 0], x[0, 0]),
        lambda x: uint4x2_mixed_mm(
            x.detach().half(), torch.zeros(8, 16, dtype=torch.uint8), scales=x[:1].half(), group_size=16
        ),
        lambda x: mm(x, x, out=torch.empty_like(x)),
    ],
)
def test_what_is_refused_outside_of_a_transform_is_refused_within(call):
    x = torch.randn(3, 16, 16, requires_grad=True)
    with pytest.raises((NotImplementedError, ValueError)) as outside:
        call(x[0])
    with pytest.raises(type(outside.value)) as within:
        torch.func.vmap(call)(x)
    assert str(within.value) == str(outside.value)


def test_both_ways_launch_once(launches):
    x = torch.randn(3)
    silu(x)
    silu(x.requires_grad_())
    assert launches == ["silu", "silu"]


def test_meta_tensors_get_a_result_and_no_launch(launches):
    x = torch.empty(3, 3, device="meta")
    for call in (silu, lambda x: mm(x, x)):
        assert call(x).is_meta
        with torch.autocast("cpu", torch.bfloat16):
            assert call(x).dtype == x.dtype
    assert launches == []


def test_autograd_knows_what_was_written():
    out = torch.zeros(3)
    assert written(out) is out
    assert out._version == 1


def test_a_lazy_negation_is_not_plain():
    negated = torch.complex(torch.zeros(2), torch.ones(2)).conj().imag
    assert negated.is_neg()
    assert not is_plain(negated)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int32])
def test_a_lazy_negation_of_any_dtype_is_not_plain(dtype):
    tensor = torch.ones(2).to(dtype)
    assert is_plain(tensor)
    assert not is_plain(torch._neg_view(tensor))


@pytest.mark.parametrize(
    ("dtype", "asked"),
    [
        (torch.bfloat16, ["requires_grad", "is_negated"]),
        (torch.float8_e4m3fn, ["requires_grad", "is_negated"]),
        (torch.float16, ["requires_grad", "is_negated"]),
        (torch.float32, ["requires_grad", "is_negated"]),
        (torch.complex64, ["requires_grad", "is_negated"]),
        (torch.int64, ["is_negated"]),
        (torch.uint8, ["is_negated"]),
    ],
)
def test_a_tensor_is_asked_only_what_its_dtype_leaves_open(dtype, asked):
    """Each question costs a call more than all else that is read of a tensor."""
    found = []
    plain = _core.Plain(
        (torch.Tensor,),
        property(lambda tensor: found.append("requires_grad") or tensor.requires_grad),
        lambda tensor: found.append("is_negated") or tensor.is_neg(),
        torch.is_grad_enabled,
        (),
    )
    assert plain({"cpu"}, torch.zeros(2).to(dtype))
    assert found == asked


# of torch itself, at its first jvp
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "call",
    [
        silu,
        lambda x: flash_attention(x, x, x),
        lambda x: vector_add(x, x, out=torch.empty_like(x)),
        lambda x: conv2d(x, torch.ones(2, 1, 3, 3)),
        lambda x: conv2d(x[0], torch.ones(2, 1, 3, 3)),
    ],
)
def test_tangents_are_refused_not_dropped(call, launches):
    x = torch.randn(1, 1, 4, 16)
    with pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
        torch.func.jvp(call, (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
        call(forward_ad.make_dual(x, x))
    assert launches == []
    with forward_ad.dual_level():
        call(x)
    assert len(launches) == 1


@pytest.mark.parametrize(
    "call",
    [
        silu,
        lambda x: flash_attention(x, x, x),
        lambda x: mm(x[0, 0], torch.ones(16, 4)),
        lambda x: block_sparse_matmul(x.expand(1, 1, 4, 16).mT, x, LAYOUT, "sdd"),
        lambda x: conv2d(x, torch.ones(2, 1, 3, 3)),
    ],
)
def test_gradients_of_transforms_are_refused_by_name(call, launches):
    x = torch.randn(1, 1, 4, 16)
    words = "torch.func does not differentiate by: call torch.autograd.grad"
    for differentiate in (torch.func.grad, torch.func.jacrev):
        with pytest.raises(NotImplementedError, match=words):
            differentiate(lambda x: call(x).sum())(x)
    with pytest.raises(NotImplementedError, match=words):
        torch.func.grad(lambda x: torch.func.vmap(call)(x).sum())(x[None])
    # of what is differentiated by something else nothing is asked
    torch.func.grad(lambda factor: call(x).sum() * factor)(torch.ones(()))
    x.requires_grad_()
    torch.func.grad(lambda factor: call(x).sum() * factor)(torch.ones(()))
    assert len(launches) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda out: mm(out, out, out=out),
        lambda out: mm_plus_mm(out, out, out, out, out=out),
        lambda out: gated_mm(out, out, out=out),
        lambda out: b2b_gemm(out, out, out, out=out),
        lambda out: vector_add(out, out, out=out),
        lambda out: uint4x2_mixed_mm(out.half(), torch.zeros(8, 16).byte(), out=torch._neg_view(out.half())),
        lambda out: block_sparse_matmul(
            torch.ones(1, 1, 16, 16), torch.ones(1, 1, 16, 16), LAYOUT, "dsd", out=out[None, None]
        ),
    ],
)
def test_a_lazy_negation_is_not_written_to(call):
    with pytest.raises(ValueError, match="out: expected a tensor without a lazy negation"):
        call(torch._neg_view(torch.zeros(16, 16)))
