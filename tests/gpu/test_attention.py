"""Attention on a device as programs use it: trained with, captured, compiled."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.flash_attention import FlashAttention, flash_attention  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.gpu.replay import same_bits  # noqa: E402

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
    with torch.cuda.stream(side):
        torch.autograd.grad(flash_attention(*given, **words), given, grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flash_attention(*given, **words)
        gradients = torch.autograd.grad(out, given, grad)
    with torch.no_grad():
        for value in (*given, grad):
            value.normal_()
    graph.replay()
    expected = flash_attention(*given, **words)
    rights = (expected, *torch.autograd.grad(expected, given, grad))
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
