"""Operators under autocast do as torch's do: products get its dtype, and sums keep that of their operand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from nojit.kernels.block_sparse import BlockLayout, BlockSparseAttention, block_sparse_matmul, block_sparse_softmax
from nojit.kernels.flash_attention import flash_attention
from nojit.kernels.flex import DenseBias, flex_attention
from nojit.kernels.flex_decoding import flex_decoding
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

LAYOUT = BlockLayout(torch.tensor([[1, 0], [1, 1]]), 16)
BIAS = torch.randn(2, 1, 32)
Attend = Callable[..., Tensor]

pytestmark = pytest.mark.usefixtures("interpreted")


def sparse_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return BlockSparseAttention(LAYOUT)(q, k, v, relative_position=BIAS.to(q.dtype), attention_mask=q.new_zeros(32, 32))


@pytest.mark.parametrize("attend", [flash_attention, sparse_attention])
@pytest.mark.parametrize("mixed", [False, True])
def test_attention_is_that_of_operands_cast_before(attend: Attend, mixed: bool) -> None:
    wide = [torch.randn(1, 2, 32, 16, requires_grad=True) for _ in range(3)]
    narrow = [value.detach().bfloat16().requires_grad_() for value in wide]
    given = [wide[0], narrow[1], wide[2]] if mixed else wide
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(*given)
        assert out.dtype == scaled_dot_product_attention(*given).dtype == torch.bfloat16
    expected = attend(*narrow)
    assert torch.equal(out, expected)
    grads = torch.autograd.grad(out, given, torch.ones_like(out))
    for grad, operand, right in zip(
        grads, given, torch.autograd.grad(expected, narrow, torch.ones_like(out)), strict=True
    ):
        assert grad.dtype == operand.dtype
        assert torch.equal(grad.bfloat16(), right)


@pytest.mark.parametrize("attend", [flex_attention, flex_decoding])
def test_a_dense_bias_is_cast_as_operands_are(attend: Attend) -> None:
    q, bias = torch.randn(1, 2, 32, 16), torch.randn(1, 2, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(q, q, q, DenseBias(bias))
    low = q.bfloat16()
    assert torch.equal(out, attend(low, low, low, DenseBias(bias.bfloat16())))


def test_gradients_of_a_dense_bias_keep_its_dtype() -> None:
    q, bias = torch.randn(1, 2, 32, 16), torch.randn(1, 2, 32, 32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        flex_attention(q, q, q, DenseBias(bias), deterministic=False).sum().backward()
    assert bias.grad.dtype == torch.float32


def test_autocast_that_is_off_or_of_other_devices_changes_nothing() -> None:
    q = torch.randn(1, 2, 32, 16)
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert flash_attention(q, q, q).dtype == torch.float32
    with torch.autocast("xpu", torch.bfloat16, enabled=False):
        assert flash_attention(q, q, q).dtype == torch.float32


def test_the_softmax_keeps_its_operands_dtype() -> None:
    x = torch.randn(1, 6, 16, 16).half()
    with torch.autocast("cpu", torch.bfloat16):
        result = block_sparse_softmax(x, LAYOUT, relative_position=BIAS, attention_mask=torch.zeros(32, 32))
    assert result.dtype == torch.float16
    assert torch.equal(result, block_sparse_softmax(x, LAYOUT, relative_position=BIAS.half()))


def test_a_product_into_out_keeps_its_operands_dtype() -> None:
    a, out = torch.randn(1, 2, 32, 16), torch.empty(1, 6, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        block_sparse_matmul(a, a, LAYOUT, "sdd", trans_b=True, out=out)
        assert block_sparse_matmul(a, a, LAYOUT, "sdd", trans_b=True).dtype == torch.bfloat16
    assert torch.equal(out, block_sparse_matmul(a, a, LAYOUT, "sdd", trans_b=True))


@pytest.mark.parametrize("attend", [flash_attention, sparse_attention])
def test_traces_without_a_graph_break(attend: Attend) -> None:
    LAYOUT.for_heads(2).packing("cpu", torch.bfloat16)
    q = torch.randn(1, 2, 32, 16)
    with torch.autocast("cpu", torch.bfloat16):
        expected = attend(q, q, q)
        assert torch.equal(torch.compile(attend, backend="aot_eager", fullgraph=True)(q, q, q), expected)
