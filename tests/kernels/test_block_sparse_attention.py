from __future__ import annotations

import pytest
import torch
from nojit.kernels.block_sparse import BlockLayout, BlockSparseAttention, softmax_bwd
from nojit.runtime.errors import ArgumentError
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional

# a rectangle, for any number of heads
LAYOUT = BlockLayout(torch.tensor([[1, 0, 0], [1, 1, 1]]), 16)
SEEN = LAYOUT.active.repeat_interleave(16, 0).repeat_interleave(16, 1)

pytestmark = pytest.mark.usefixtures("interpreted")


def operands() -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, 2, *size, requires_grad=True) for size in ((32, 8), (48, 8), (48, 12)))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_is_attention_over_a_dense_mask(is_causal, scale):
    q, k, v = operands()
    seen = SEEN.tril() if is_causal else SEEN
    out = BlockSparseAttention(LAYOUT, is_causal=is_causal, scale=scale)(q, k, v)
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    for ours, theirs in zip(
        torch.autograd.grad(out, (q, k, v), grad), torch.autograd.grad(expected, (q, k, v), grad), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_takes_a_bias_and_masks():
    q, k, v = operands()
    bias, padding, mask = torch.randn(2, 1, 1, 48), torch.rand(2, 48) > 0.3, torch.randn(32, 48)
    padding[:, 0] = True
    module = BlockSparseAttention(LAYOUT, key_padding_mask_mode="mul")
    out = module(q, k, v, relative_position=bias, key_padding_mask=padding, attention_mask=mask)
    terms = (bias + mask).masked_fill(~(SEEN & padding[:, None, None]), float("-inf"))
    torch.testing.assert_close(out, functional.scaled_dot_product_attention(q, k, v, attn_mask=terms))


def test_traces_without_a_graph_break():
    q, k, v = operands()
    module = BlockSparseAttention(BlockLayout(LAYOUT.active[None].expand(2, 2, 3), 16))
    expected = module(q, k, v)
    traced = torch.compile(module, backend="aot_eager", fullgraph=True)(q, k, v)
    assert torch.equal(traced, expected)
    grad = torch.randn_like(traced)
    for ours, theirs in zip(
        torch.autograd.grad(traced, (q, k, v), grad), torch.autograd.grad(expected, (q, k, v), grad), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("one_by_one")
def test_vmap_maps_over_sequences():
    q, k, v = (value.detach() for value in operands())
    module = BlockSparseAttention(LAYOUT)
    expected = module(q, k, v)
    found = torch.vmap(lambda *one: module(*(value[None] for value in one))[0])(q, k, v)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("trained", [False, True])
def test_fake_tensors_have_a_fake_output(trained):
    real = operands()
    expected = BlockSparseAttention(LAYOUT)(*real)
    module = BlockSparseAttention(BlockLayout(LAYOUT.active, 16))
    with FakeTensorMode():
        q, k, v = (torch.randn(value.shape, requires_grad=trained) for value in real)
        bias, padding = torch.randn(2, 1, 1, 48), torch.zeros(2, 48)
        out = module(q, k, v, relative_position=bias, key_padding_mask=padding)
        assert isinstance(out, FakeTensor)
        assert (out.shape, out.stride()) == (expected.shape, expected.stride())
        if trained:
            out.sum().backward()
            assert [value.grad.shape for value in (q, k, v)] == [value.shape for value in (q, k, v)]
        y = torch.randn(2, 2 * LAYOUT.nnz, 16, 16)
        assert softmax_bwd(y, y, 1.0, LAYOUT).shape == y.shape


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("q", torch.zeros(2, 2, 16, 8), r"q: expected shape \(2, 2, 32, 8\) \[B, H, M, D\]"),
        ("q", torch.zeros(2, 32, 8), "q: expected 4 dimensions"),
        ("k", torch.zeros(2, 2, 48, 4), r"k: expected shape \(2, 2, 48, 8\) \[B, H, N, D\]"),
        ("k", torch.zeros(2, 2, 48, 8).half(), "k: expected torch.float32 as q has"),
        ("v", torch.zeros(2, 1, 48, 8), r"v: expected shape \(2, 2, 48, 8\) \[B, H, N, Dv\]"),
        ("attention_mask", torch.zeros(48, 32), "attention_mask: expected shape"),
    ],
)
def test_refuses_by_the_names_of_its_own_operands(name, value, message):
    given = dict(zip("qkv", operands(), strict=True)) | {name: value}
    with pytest.raises((ArgumentError, ValueError), match=message):
        BlockSparseAttention(LAYOUT)(**given)


def test_rows_without_elements_have_no_scale_of_their_own():
    q, k, v = operands()
    with pytest.raises(ValueError, match="q: expected at least 1 element in a row, where no scale is given, got 0"):
        BlockSparseAttention(LAYOUT)(q[..., :0], k[..., :0], v)
    assert BlockSparseAttention(LAYOUT, scale=1.0)(q[..., :0], k[..., :0], v).isfinite().all()
