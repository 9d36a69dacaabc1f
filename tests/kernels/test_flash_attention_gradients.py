"""The gradients of attention: exact, for who needs them, however the operands lie."""

from __future__ import annotations

import pytest
import torch
from nojit.kernels.flash_attention import FlashAttention, flash_attention, reference
from nojit.kernels.flash_attention.problems import PROBLEMS, AttentionShape
from torch import Tensor

from tests.kernels.accuracy import assert_accurate
from tests.kernels.test_flash_attention import FLOATS, make

pytestmark = pytest.mark.usefixtures("interpreted")

SMALL = AttentionShape("", 1, 2, 1, 20, 33, 32, 32)


def differentiate(function, operands, grads, **words) -> tuple[Tensor, ...]:
    """Return the gradients of those operands that require any, for the output alone or for the log-sums too."""
    out, lse = function(*operands, **words)
    results = (out, lse)[: len(grads)]
    return torch.autograd.grad(results, [x for x in operands if x.requires_grad], grads)


def ours(*operands: Tensor, **words) -> tuple[Tensor, Tensor]:
    return flash_attention(*operands, return_lse=True, **words)


def plain(*operands: Tensor, **words) -> tuple[Tensor, Tensor]:
    """Attention in torch's eager operators, products in the operands' precision and the softmax in fp32, as ours."""
    q, k, v = operands
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scale = words.pop("scale", None)
    scores = (q @ k.mT).float() * (q.shape[3] ** -0.5 if scale is None else scale)
    seen = reference.visible(q.shape[2], k.shape[2], q.device, **words)
    blind = ~seen.any(-1)[:, None]
    scores = scores.masked_fill(~seen, float("-inf")).masked_fill(blind, 0.0)
    weights = torch.softmax(scores, -1).masked_fill(blind, 0.0)
    return weights.to(q.dtype) @ v, torch.logsumexp(scores, -1)


def recomputed(lse: Tensor, gradients: tuple[Tensor, ...]) -> float:
    """Bound what comes of weights that are recomputed from log-sums in fp32, as every fused kernel does.

    Two roundings of a log-sum change weights by its size times a unit; terms are about as large as the largest gradient,
    also where they cancel.
    """
    sums = lse.detach()[torch.isfinite(lse)].abs()
    largest = max((float(value.abs().max()) for value in gradients if value.numel()), default=0.0)
    return 2 * torch.finfo(torch.float32).eps * max(1.0, float(sums.max()) if sums.numel() else 0.0) * largest


def check(operands: tuple[Tensor, ...], *, with_lse: bool = False, **words) -> tuple[Tensor, ...]:
    """Hold the gradients to the exact ones; return them."""
    q, _, v = operands
    shape = (*q.shape[:3], v.shape[3])
    grads = (torch.randn(shape).to(q.dtype), torch.randn(shape[:3]))[: 2 if with_lse else 1]
    wide = tuple(x.detach().double().requires_grad_(x.requires_grad) for x in operands)
    exact = differentiate(reference.flash_attention, wide, tuple(grad.double() for grad in grads), **words)
    torchs = differentiate(plain, operands, grads, **words)
    got = differentiate(ours, operands, grads, **words)
    slack = recomputed(reference.flash_attention(*wide, **words)[1], exact)
    for value, right, own, operand in zip(got, exact, torchs, [x for x in operands if x.requires_grad], strict=True):
        assert value.dtype == operand.dtype
        assert_accurate(value, right, own, 3.0, slack)
    return got


def needing(operands: tuple[Tensor, ...], which: str = "qkv") -> tuple[Tensor, ...]:
    return tuple(x.requires_grad_(name in which) for name, x in zip("qkv", operands, strict=True))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS["test"], ids=lambda problem: problem.name)
def test_are_as_accurate_as_torchs(problem, dtype):
    if dtype == torch.float32 and max(problem.head_dim, problem.v_dim) > 128:
        pytest.skip("fp32 heads end at 128")
    operands = needing(make(problem, dtype))
    check(operands, is_causal=problem.is_causal, causal_alignment=problem.causal_alignment)


@pytest.mark.parametrize("window", [5, (0, 0), (20, None), (None, 3)], ids=str)
@pytest.mark.parametrize(("is_causal", "alignment"), [(False, "top_left"), (True, "bottom_right")])
@pytest.mark.parametrize(("q_len", "kv_len"), [(70, 150), (150, 20)])
def test_of_windows(q_len, kv_len, window, is_causal, alignment):
    operands = needing(make(AttentionShape("", 1, 2, 1, q_len, kv_len, 16, 16), torch.float32))
    check(operands, with_lse=True, window=window, is_causal=is_causal, causal_alignment=alignment)


@pytest.mark.parametrize("dims", [(80, 80), (96, 40), (16, 111), (40, 24)])
def test_of_widths_that_are_no_powers_of_two(dims):
    check(needing(make(AttentionShape("", 1, 4, 2, 20, 40, *dims), torch.bfloat16)), is_causal=True)


@pytest.mark.parametrize("scale", [0.0, -0.7, 3.0])
def test_of_any_scale(scale):
    check(needing(make(SMALL, torch.float32)), scale=scale, is_causal=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_through_the_log_sums(dtype):
    check(needing(make(SMALL, dtype)), with_lse=True, is_causal=True, causal_alignment="bottom_right")


def test_through_the_log_sums_alone():
    q, k, v = needing(make(SMALL, torch.float32))
    _, lse = ours(q, k, v)
    wide = tuple(x.detach().double().requires_grad_() for x in (q, k, v))
    exact = torch.autograd.grad(reference.flash_attention(*wide)[1].sum(), wide[:2])
    *got, dv = torch.autograd.grad(lse.sum(), (q, k, v))
    for value, right in zip(got, exact, strict=True):
        torch.testing.assert_close(value.double(), right, rtol=1e-5, atol=1e-5)
    assert not dv.any()


@pytest.mark.parametrize("which", ["q", "k", "v", "kv", "qv"])
def test_only_what_is_needed_is_computed(which):
    from nojit.kernels import library

    asked = []
    kernel = library.CURRENT.source.kernel
    with library.override(lambda name: asked.append(name) or kernel(name)):
        check(needing(make(SMALL, torch.float32), which))
    kernels = ["flash_attention_fwd", "flash_attention_bwd_delta"]
    kernels += ["flash_attention_bwd_dkdv"] * bool(set(which) & set("kv")) + ["flash_attention_bwd_dq"] * ("q" in which)
    assert asked == kernels


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), id="heads inside"),
        pytest.param(lambda x: torch.cat([x, x], -1)[..., x.shape[-1] :], id="half of wider rows"),
        pytest.param(lambda x: torch.cat([x, x], 2)[:, :, ::2], id="every other row"),
        pytest.param(lambda x: torch.cat([x.flatten()[:3], x.flatten()])[3:].view(x.shape), id="unaligned"),
        pytest.param(lambda x: x[:1, :1].expand_as(x), id="one head for all"),
    ],
)
def test_of_any_strides(arrange):
    operands = needing(tuple(arrange(x) for x in make(AttentionShape("", 2, 2, 2, 19, 23, 48, 48), torch.float16)))
    for gradient in check(operands, is_causal=True):
        assert gradient.stride(3) == 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_of_an_expanded_gradient(dtype):
    """What `sum` and `mean` pass back has strides of 0; it is read, and never written."""
    q, k, v = needing(make(SMALL, dtype))
    one = torch.ones((), dtype=dtype)
    for grad in (one.expand(1, 2, 20, 32), one.expand(32).clone().expand(1, 2, 20, 32)):
        expected = torch.autograd.grad(flash_attention(q, k, v), (q, k, v), torch.ones(1, 2, 20, 32, dtype=dtype))
        for value, right in zip(torch.autograd.grad(flash_attention(q, k, v), (q, k, v), grad), expected, strict=True):
            assert torch.equal(value, right)
    assert one == 1


def test_rows_that_see_nothing_give_zero():
    """Whatever is passed back to their log-sums, which are -inf."""
    q, k, v = needing(make(AttentionShape("", 1, 2, 1, 140, 9, 32, 32), torch.float16))
    out, lse = ours(q, k, v, is_causal=True, causal_alignment="bottom_right")
    dlse = torch.ones_like(lse)
    dlse[:, :, :131] = float("nan")
    dq, dk, dv = torch.autograd.grad((out, lse), (q, k, v), (torch.ones_like(out), dlse))
    assert not dq[:, :, :131].any()
    assert all(torch.isfinite(value).all() for value in (dq, dk, dv))


def test_neither_padding_nor_neighbours_leak_in():
    """Rows and columns beyond the operands hold NaN, as the memory of a larger tensor may."""
    operands = make(AttentionShape("", 1, 2, 2, 37, 45, 40, 40), torch.float16)
    around = [torch.full((1, 2, x.shape[2] + 100, 64), float("nan"), dtype=x.dtype) for x in operands]
    inside = [memory[:, :, : x.shape[2], : x.shape[3]] for memory, x in zip(around, operands, strict=True)]
    for view, x in zip(inside, operands, strict=True):
        view.copy_(x)
    grad = torch.full((1, 2, 137, 64), float("nan"), dtype=torch.float16)[:, :, :37, :40].normal_()
    got = [
        torch.autograd.grad(flash_attention(*needing(x), is_causal=True), x, grad)
        for x in (tuple(inside), tuple(operands))
    ]
    for value, right in zip(*got, strict=True):
        assert torch.equal(value, right)


@pytest.mark.parametrize(
    ("q_shape", "k_shape"),
    [((0, 2, 5, 32), (0, 2, 5, 32)), ((2, 2, 0, 32), (2, 2, 5, 32)), ((2, 2, 5, 32), (2, 2, 0, 32))],
)
def test_of_nothing_are_zero(q_shape, k_shape):
    q, k, v = (torch.randn(shape, requires_grad=True) for shape in (q_shape, k_shape, k_shape))
    flash_attention(q, k, v).sum().backward()
    for value in (q, k, v):
        assert value.grad.shape == value.shape
        assert not value.grad.any()


def test_repeat_to_the_bit():
    operands = needing(make(AttentionShape("", 1, 4, 2, 70, 80, 32, 32), torch.bfloat16))
    grad = torch.randn(1, 4, 70, 32).to(torch.bfloat16)
    first, again = (differentiate(ours, operands, (grad,), is_causal=True) for _ in range(2))
    for value, other in zip(first, again, strict=True):
        assert torch.equal(value, other)


def test_there_is_no_second_derivative():
    q, k, v = needing(make(SMALL, torch.float32))
    (dq,) = torch.autograd.grad(flash_attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="flash_attention has no second derivative"):
        dq.sum().backward()


def test_the_bare_operator_needs_the_log_sums():
    q, k, v = needing(make(SMALL, torch.float32))
    words = (None, False, "top_left", None, None, False)
    out, _ = torch.ops.nojit.flash_attention.default(q, k, v, *words)
    with pytest.raises(NotImplementedError, match="expected return_lse=True for gradients"):
        out.sum().backward()


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("which", ["qkv", "k"])
def test_vmap_maps_over_calls(which, times):
    operands = needing(make(AttentionShape("", 4, 2, 1, 5, 6, 16, 24), torch.float32), which)
    asked = [x for x in operands if x.requires_grad]

    def call(q, k, v):
        return flash_attention(q, k, v, is_causal=True)

    mapped, split = call, [x.unflatten(0, (2, 2) if times == 2 else (4,)).unsqueeze(times) for x in operands]
    for _ in range(times):
        mapped = torch.func.vmap(mapped)
    expected, found = call(*operands), mapped(*split)
    assert torch.equal(found.reshape(expected.shape), expected)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, asked, grad)
    for mine, theirs in zip(torch.autograd.grad(found, asked, grad.view_as(found)), wanted, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.usefixtures("one_by_one")
def test_vmap_maps_over_calls_when_compiled():
    operands = needing([x[:, None] for x in make(AttentionShape("", 4, 2, 1, 5, 6, 16, 24), torch.float32)])
    compiled = torch.compile(torch.func.vmap(flash_attention), backend="aot_eager", fullgraph=True)
    found, expected = compiled(*operands), flash_attention(*(x.flatten(0, 1) for x in operands))[:, None]
    assert torch.equal(found, expected)
    for mine, theirs in zip(*(torch.autograd.grad(out.sum(), operands) for out in (found, expected)), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("with_dlse", [False, True])
@pytest.mark.parametrize("wanted", [[True, True, True], [True, False, False], [False, True, False]], ids=str)
def test_backward_operator_is_sound(wanted, with_dlse):
    q, k, v = make(AttentionShape("", 1, 2, 1, 5, 6, 16, 24), torch.float32)
    out, lse = ours(q, k, v, is_causal=True, window=2)
    arguments = (torch.randn_like(out), torch.randn_like(lse) if with_dlse else None, q, k, v, out, lse)
    words = (None, True, "top_left", 2, 2, wanted)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.nojit.flash_attention_backward.default, arguments + words, test_utils=checks)


def test_operator_is_sound_with_gradients():
    operands = needing(make(AttentionShape("", 1, 2, 1, 5, 6, 16, 24), torch.float32))
    torch.library.opcheck(
        torch.ops.nojit.flash_attention.default, (*operands, None, True, "bottom_right", 2, None, True)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dout": torch.zeros(1, 2, 20, 16)}, r"dout: expected shape \(1, 2, 20, 32\) \[B, H, M, Dv\]"),
        ({"lse": torch.zeros(1, 2, 19)}, r"lse: expected shape \(1, 2, 20\) \[B, H, M\]"),
        ({"dlse": torch.zeros(1, 2, 19)}, r"dlse: expected shape \(1, 2, 20\) \[B, H, M\]"),
    ],
)
def test_the_backward_operator_refuses(change, message):
    q, k, v = make(SMALL, torch.float32)
    given = {"dout": torch.zeros(1, 2, 20, 32), "dlse": None, "q": q, "k": k, "v": v}
    given |= {"out": torch.zeros(1, 2, 20, 32), "lse": torch.zeros(1, 2, 20)} | change
    words = (None, False, "top_left", None, None, [True, True, True])
    with pytest.raises(ValueError, match=message):
        torch.ops.nojit.flash_attention_backward.default(*given.values(), *words)


def test_compiled_without_a_graph_break():
    def loss(*operands: Tensor) -> Tensor:
        out, lse = flash_attention(*operands, is_causal=True, window=7, return_lse=True)
        return out.square().sum() + lse.sum()

    q, k, v = needing(make(SMALL, torch.float32))
    traced = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for value, right in zip(
        torch.autograd.grad(traced(q, k, v), (q, k, v)), torch.autograd.grad(loss(q, k, v), (q, k, v)), strict=True
    ):
        assert torch.equal(value, right)


def test_module():
    q, k, v = needing(make(SMALL, torch.float32))
    module = FlashAttention(scale=0.5, is_causal=True, causal_alignment="bottom_right", window=(5, None))
    expected = flash_attention(q, k, v, scale=0.5, is_causal=True, causal_alignment="bottom_right", window=(5, None))
    assert torch.equal(module(q, k, v), expected)
    assert "window=(5, None)" in repr(module)
    assert not list(module.parameters())
    with pytest.raises(ValueError, match="causal_alignment: expected"):
        FlashAttention(causal_alignment="middle")
    with pytest.raises(ValueError, match="window: expected"):
        FlashAttention(window=-1)
