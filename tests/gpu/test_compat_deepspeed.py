"""DeepSpeed's classes on a device, from a bundle, as exact as torch's attention over a dense mask."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.compat import deepspeed  # noqa: E402

from tests.kernels.accuracy import assert_accurate  # noqa: E402

pytestmark = pytest.mark.usefixtures("operators")


def attend_densely(q, k, v, bias):
    """Attend in the operands' dtype, step by step; a row that sees nothing gives 0."""
    scores = q @ k.mT * q.shape[-1] ** -0.5 + bias.to(q.dtype)
    return torch.softmax(scores, -1).masked_fill((scores == float("-inf")).all(-1, keepdim=True), 0.0) @ v


def bias_of(module, padding, seen):
    """Spread the blocks of the module's layout and both masks over [B, H, S, S]."""
    block, blocks = module.sparsity_config.block, padding.shape[1] // module.sparsity_config.block
    layout = module.master_layout[:, :blocks, :blocks].bool()
    active = layout.repeat_interleave(block, 1).repeat_interleave(block, 2) & (seen != 0)
    return padding[:, None, None, :].masked_fill(~active, float("-inf"))


def results(attend, dtype, operands, grad):
    operands = [value.detach().to(dtype).requires_grad_() for value in operands]
    out = attend(*operands)
    return (out.detach(), *torch.autograd.grad(out, operands, grad.to(dtype)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_self_attention(block, dtype):
    config = deepspeed.BigBirdSparsityConfig(4, block, different_layout_per_head=True)
    module = deepspeed.SparseSelfAttention(config, max_seq_length=2048).cuda()
    torch.manual_seed(3)
    length = 1024
    # rounded once, so that every precision sees the same numbers
    operands = [torch.randn(2, 4, length, 64, device="cuda").to(dtype).double() for _ in range(3)]
    grad = torch.randn(2, 4, length, 64, device="cuda").to(dtype)
    padding = torch.randint(-8, 1, (2, length), device="cuda").to(dtype)
    seen = (torch.rand(length, length, device="cuda") > 0.2).to(dtype)
    bias = bias_of(module, padding, seen)
    exact = results(partial(attend_densely, bias=bias), torch.float64, operands, grad)
    torchs = results(partial(attend_densely, bias=bias), dtype, operands, grad)
    ours = results(lambda q, k, v: module(q, k, v, None, padding, seen), dtype, operands, grad)
    for value, right, own, factor in zip(ours, exact, torchs, (2.0, 3.0, 3.0, 3.0), strict=True):
        assert_accurate(value, right, own, factor)


@pytest.mark.parametrize("block_128", [False, True])
def test_flash_attention(block_128):
    q, k, v = (torch.randn(2, 3, 517, 64, device="cuda").half().double() for _ in range(3))
    exact, torchs = (
        torch.softmax(q.to(dtype) @ k.to(dtype).mT * 0.2, -1) @ v.to(dtype) for dtype in (torch.float64, torch.float16)
    )
    got = deepspeed.triton_flash_attn()(q.half(), k.half(), v.half(), 0.2, block_128=block_128)
    assert_accurate(got, exact, torchs)
