"""Attention on a device as programs use it: trained with, captured, compiled."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.flash_attention import (  # noqa: E402
    FlashAttention,
    flash_attention,
    launch_sm90_bwd_wide,
    reference,
)
from torch import Tensor  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402

pytestmark = pytest.mark.usefixtures("operators")

WORDS = [{}, {"is_causal": True}, {"window": (200, 30)}, {"is_causal": True, "window": 300}]


def operands(dtype: torch.dtype = torch.bfloat16, *, heads: int = 8, kv_heads: int = 2) -> tuple[Tensor, ...]:
    shapes = ((2, heads, 799, 128), (2, kv_heads, 1024, 128), (2, kv_heads, 1024, 128))
    return tuple(torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for shape in shapes)


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_gradients_repeat_to_the_bit(words):
    given = operands()
    grad = torch.randn_like(given[0])
    first = torch.autograd.grad(flash_attention(*given, **words), given, grad)
    for _ in range(9):
        again = torch.autograd.grad(flash_attention(*given, **words), given, grad)
        assert all(same_bits(value, other) for value, other in zip(first, again, strict=True))


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_a_captured_pass_replays_with_what_memory_holds_then(words):
    given = operands()
    grad = torch.randn_like(given[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    # one stream for both: autograd remembers that of the first use
    with torch.cuda.stream(side):
        torch.autograd.grad(flash_attention(*given, **words), given, grad)
        with torch.cuda.graph(graph, stream=side):
            out = flash_attention(*given, **words)
            gradients = torch.autograd.grad(out, given, grad)
    torch.cuda.current_stream().wait_stream(side)
    with torch.no_grad():
        for value in (*given, grad):
            value.normal_()
    graph.replay()
    anew = [value.detach().clone().requires_grad_() for value in given]
    expected = flash_attention(*anew, **words)
    rights = (expected, *torch.autograd.grad(expected, anew, grad))
    for value, right in zip((out, *gradients), rights, strict=True):
        assert same_bits(value, right)


def test_compiled_with_inductor():
    given = operands()
    module = FlashAttention(is_causal=True)
    compiled = torch.compile(lambda *x: module(*x).square().sum(), fullgraph=True)
    got = torch.autograd.grad(compiled(*given), given)
    expected = torch.autograd.grad(module(*given).square().sum(), given)
    for value, right in zip(got, expected, strict=True):
        torch.testing.assert_close(value, right)


def test_an_expanded_gradient_is_read_and_not_written():
    given = operands()
    expected = torch.autograd.grad(flash_attention(*given), given, torch.ones_like(given[0]))
    got = torch.autograd.grad(flash_attention(*given).sum(), given)
    for value, right in zip(got, expected, strict=True):
        assert same_bits(value, right)


# lengths, heads and heads of keys, width, mask: what the kernel for sm_90 shares out in many ways
SHARED_OUT = [
    ((1, 1), (1, 1), 64, {}),
    ((1, 2000), (3, 3), 128, {}),
    ((333, 517), (4, 2), 128, {}),
    ((517, 333), (4, 1), 128, {"is_causal": True}),
    ((300, 1300), (8, 2), 128, {"is_causal": True, "causal_alignment": "bottom_right"}),
    ((1300, 300), (2, 2), 128, {"is_causal": True, "causal_alignment": "bottom_right"}),
    ((1000, 1000), (2, 2), 80, {"is_causal": True}),
    ((1000, 600), (4, 1), 40, {"is_causal": True}),
    ((4096, 4096), (8, 4), 128, {"is_causal": True}),
    ((4096, 4096), (8, 8), 64, {"is_causal": True}),
    ((4096, 4096), (8, 8), 128, {}),
]


@pytest.mark.parametrize("case", SHARED_OUT, ids=str)
def test_in_order_gradients_repeat_and_in_any_they_are_near(case):
    (q_len, kv_len), (heads, kv_heads), dim, words = case
    shapes = ((2, heads, q_len, dim), (2, kv_heads, kv_len, dim), (2, kv_heads, kv_len, dim))
    given = tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for shape in shapes)
    grad = torch.randn_like(given[0])

    def differentiate(deterministic: bool) -> tuple[Tensor, ...]:
        return torch.autograd.grad(flash_attention(*given, deterministic=deterministic, **words), given, grad)

    first = differentiate(True)
    for _ in range(9):
        assert all(same_bits(value, other) for value, other in zip(first, differentiate(True), strict=True))
    for value, other in zip(first, differentiate(False), strict=True):
        # sums in fp32 in another order, rounded once
        torch.testing.assert_close(value, other, rtol=2**-7, atol=1e-5 * float(value.abs().max()) + 1e-8)


@pytest.mark.parametrize("words", [{}, {"is_causal": True}], ids=str)
@pytest.mark.parametrize("dims", [(256, 256), (192, 192), (160, 160), (192, 128)], ids=str)
def test_wide_heads_in_more_tiles_than_there_are_programs(dims, words):
    """A tile's results may lie where its queries lay, and those of the next tile follow."""
    q = view((4, 16, 1000, dims[0]), torch.bfloat16, 1)
    k, v = (view((4, 4, 1000, dim), torch.bfloat16, seed) for seed, dim in ((2, dims[0]), (3, dims[1])))
    out, lse = flash_attention(q, k, v, return_lse=True, **words)
    exact, torchs = (
        scaled_dot_product_attention(*(value.to(dtype) for value in (q, k, v)), enable_gqa=True, **words)
        for dtype in (torch.float64, torch.bfloat16)
    )
    assert_accurate(out, exact, torchs)
    for _ in range(9):
        again = flash_attention(q, k, v, return_lse=True, **words)
        assert same_bits(again[0], out)
        assert same_bits(again[1], lse)


@pytest.mark.parametrize("offset", [0, 1])
def test_keys_and_values_past_two_to_the_31_elements(offset):
    """Many heads, and gradients: the last head of the last batch lies where 32 bits would wrap."""
    k, v = (view((64, 8, 32_800, 128), torch.bfloat16, seed, offset=offset) for seed in (1, 2))
    q, grad = (view((64, 8, 16, 128), torch.bfloat16, seed, offset=offset) for seed in (3, 4))
    given = [value.requires_grad_() for value in (q, k, v)]
    out = flash_attention(*given)
    found = [value[-1:, -1:].clone() for value in (out.detach(), *torch.autograd.grad(out, given, grad))]
    last = [value.detach()[-1:, -1:] for value in (*given, grad)]

    def attend(dtype: torch.dtype) -> tuple[Tensor, ...]:
        *operands, own = (value.to(dtype, copy=True) for value in last)
        result = scaled_dot_product_attention(*(value.requires_grad_() for value in operands))
        return (result.detach(), *torch.autograd.grad(result, operands, own))

    factors = (2.0, 3.0, 3.0, 3.0)
    for value, exact, torchs, factor in zip(found, attend(torch.float64), attend(torch.bfloat16), factors, strict=True):
        assert_accurate(value, exact, torchs, factor)
    torch.cuda.empty_cache()


@pytest.mark.parametrize("words", [{}, {"window": (3000, None)}], ids=str)
def test_one_head_past_two_to_the_31_elements(words):
    """Weights of all but the last keys vanish, so that those alone are compared; what lies before is read all the same."""
    seen, words = 4096, {"causal_alignment": "bottom_right", **words}
    q = view((1, 1, 16, 128), torch.bfloat16, 1).abs()
    k, v = (view((1, 1, (1 << 24) + seen, 128), torch.bfloat16, seed) for seed in (2, 3))
    k[..., :-seen, :].fill_(-8)
    out = flash_attention(q, k, v, **words)
    last = (q, k[..., -seen:, :].clone(), v[..., -seen:, :].clone())
    mask = reference.visible(16, seen, q.device, **words)
    exact, torchs = (
        scaled_dot_product_attention(*(value.to(dtype) for value in last), attn_mask=mask)
        for dtype in (torch.float64, torch.bfloat16)
    )
    assert_accurate(out, exact, torchs)
    torch.cuda.empty_cache()


@pytest.mark.parametrize("words", [{}, {"is_causal": True}], ids=str)
@pytest.mark.parametrize("dims", [(256, 256), (192, 192), (136, 136), (192, 128)], ids=str)
def test_gradients_of_wide_heads_repeat_and_are_near_in_parts(dims, words, monkeypatch):
    shapes = ((2, 8, 1000, dims[0]), (2, 2, 1333, dims[0]), (2, 2, 1333, dims[1]))
    given = tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for shape in shapes)
    words = words | {"causal_alignment": "bottom_right"}
    grad = torch.randn(2, 8, 1000, dims[1], device="cuda", dtype=torch.bfloat16)

    def differentiate() -> tuple[Tensor, ...]:
        return torch.autograd.grad(flash_attention(*given, **words), given, grad)

    first = differentiate()
    for _ in range(9):
        assert all(same_bits(value, other) for value, other in zip(first, differentiate(), strict=True))
    # one tile of queries at a time, with sums that launches carry
    monkeypatch.setattr(launch_sm90_bwd_wide, "SCORE_BYTES", 1)
    for value, other in zip(first, differentiate(), strict=True):
        # sums in fp32 in another order, rounded once
        torch.testing.assert_close(value, other, rtol=2**-7, atol=1e-5 * float(value.abs().max()) + 1e-8)
