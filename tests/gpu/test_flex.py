"""Flex attention on a device: every variant, gradients, determinism, CUDA graphs, torch's compiler, work by active blocks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.block_mask.masks import tables_of  # noqa: E402
from nojit.kernels.flex import Causal, Window, create_block_mask, flex_attention, reference  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask as torchs_block_mask  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.flex_calls import LONG, Case, flex_calls, flex_captured_calls, flex_gradient_calls  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.parametrize("call", list(flex_calls()), ids=lambda call: call.label)
def test_attention_is_as_exact_as_torchs(steered, call):
    check(call, steered)


@pytest.mark.parametrize("call", list(flex_gradient_calls()), ids=lambda call: call.label)
def test_gradients_are_as_exact_as_torchs(steered, call):
    check(call, steered)


@pytest.mark.parametrize("call", list(flex_captured_calls()), ids=lambda call: call.label)
def test_gradients_of_what_is_captured_are_as_exact_as_torchs(steered, call):
    check(call, steered)


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered, "flex_attention")


@pytest.mark.parametrize(
    "case",
    [
        Case(torch.bfloat16, (128, 128), "dilated", "chain"),
        Case(torch.bfloat16, (128, 128), "documents", "alibi", LONG),
        Case(torch.bfloat16, (64, 64), "window", lengths=LONG),
        Case(torch.bfloat16, (64, 64), "patches", lengths=LONG),
        Case(torch.bfloat16, (128, 128), "dilated", lengths=LONG, kv_heads=4),
        Case(torch.float32, (64, 64)),
    ],
)
def test_ten_runs_give_the_same_bits(operators, case):
    def results():
        inputs = [each.requires_grad_() for each in case.inputs()]
        out, lse = case.run(inputs)
        return out, lse, *torch.autograd.grad(out, inputs, case.grads()[0])

    first = results()
    for _ in range(9):
        for one, other in zip(first, results(), strict=True):
            assert same_bits(one, other)


@pytest.mark.parametrize("mask_mod", [Causal(), Window(100, 0), lambda b, h, q, k: (q - k) % 3 == 0])
def test_a_graph_replays_it(operators, mask_mod):
    q, k, v = (view((2, 4, 512, 128), torch.bfloat16, seed) for seed in range(3))
    mask = create_block_mask(mask_mod, None, None, 512, 512, "cuda")
    expected = flex_attention(q, k, v, block_mask=mask)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = flex_attention(q, k, v, block_mask=mask)
    result.fill_(float("nan"))
    graph.replay()
    assert same_bits(result, expected)


@pytest.mark.parametrize(
    "case",
    [
        Case(torch.bfloat16, (128, 128), "causal", lengths=LONG),
        Case(torch.bfloat16, (128, 128), "window", "alibi", LONG),
        Case(torch.bfloat16, (64, 64), "documents", "cap", LONG),
        Case(torch.bfloat16, (128, 128), "prefixes", lengths=LONG),
        Case(torch.bfloat16, (64, 64), "patches", lengths=LONG),
        Case(torch.float16, (64, 64), "dilated", "chain"),
        Case(torch.float32, (64, 64), "bitmaps of batches", "relative"),
    ],
    ids=str,
)
def test_a_graph_replays_both_passes_with_what_memory_holds_then(operators, case):
    given, grad, mod, mask = (
        [x.requires_grad_() for x in case.inputs()],
        case.grads()[0],
        case.own_mod(),
        case.block_mask(),
    )

    def both(*operands):
        out = flex_attention(*operands, mod, mask, enable_gqa=True)
        return out, *torch.autograd.grad(out, operands, grad)

    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    # one stream for both: autograd remembers that of the first use
    with torch.cuda.stream(side):
        both(*given)
        with torch.cuda.graph(graph, stream=side):
            results = both(*given)
    torch.cuda.current_stream().wait_stream(side)
    for _ in range(3):
        with torch.no_grad():
            for value in (*given, grad):
                value.normal_()
        graph.replay()
        anew = [value.detach().clone().requires_grad_() for value in given]
        for value, right in zip(results, both(*anew), strict=True):
            assert same_bits(value.detach(), right.detach())


def test_compiles_whole(operators):
    inputs = [view((1, 4, 256, 64), torch.bfloat16, seed).requires_grad_() for seed in range(3)]
    mask = create_block_mask(lambda b, h, q, k: (q - k) % 3 == 0, None, None, 256, 256, "cuda")

    def attend(*operands):
        return flex_attention(*operands, block_mask=mask)

    expected, result = attend(*inputs), torch.compile(attend, fullgraph=True)(*inputs)
    assert same_bits(result.detach(), expected.detach())
    grad = torch.randn_like(expected)
    for one, other in zip(*(torch.autograd.grad(each, inputs, grad) for each in (result, expected)), strict=True):
        assert same_bits(one, other)


def test_masks_made_on_the_device_are_torchs(operators):
    mask_mod = lambda b, h, q, k: (q - k) % (h + 2) == b  # noqa: E731 - a mask function
    ours = create_block_mask(mask_mod, 2, 3, 1000, 1500, "cuda")
    theirs = torchs_block_mask(mask_mod, 2, 3, 1000, 1500, "cuda")
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "q_num_blocks", "q_indices"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name))
    one, other = (tables_of(each, 1000, 1500, ours.kv_indices.device) for each in (ours, theirs))
    for first, second in zip(one.tensors[:4], other.tensors[:4], strict=True):
        assert first.shape == second.shape


def test_past_two_to_the_31_elements(operators):
    q, k, v = (view((3, 1, 6_000_000, 128), torch.bfloat16, seed) for seed in range(3))
    mask = create_block_mask(Window(200, 0), None, None, 6_000_000, 6_000_000, "cuda", 1 << 17)
    out = flex_attention(q, k, v, block_mask=mask)
    tail = slice(-300, None)
    exact, _ = reference.flex_attention(*(each[2:, :, tail].double() for each in (q, k, v)), None, Window(200, 0))
    torchs, _ = reference.flex_attention(*(each[2:, :, tail] for each in (q, k, v)), None, Window(200, 0))
    # the first rows of the tail see keys before it
    assert_accurate(out[2:, :, -100:], exact[:, :, -100:], torchs[:, :, -100:])
