"""Convolutions on a device: every variant, gradients, determinism, CUDA graphs, sizes past 2^31, boxes and steps of maps."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.conv import conv2d  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.conv_calls import CUT, MANY, NARROW, WHOLE, Case, conv_calls  # noqa: E402
from tests.gpu.families import convolutions_reach  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
@pytest.mark.parametrize("call", list(conv_calls()), ids=lambda call: call.label)
def test_convolutions_are_as_exact_as_torchs(steered, call):
    check(call, steered)


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered, "conv", reaches=convolutions_reach)


@pytest.mark.parametrize("stride", [1, 2, 3, 8])
@pytest.mark.parametrize("taps", [1, 2, 3])
def test_maps_take_every_so_many_th_position(operators, stride, taps):
    x, w, _ = Case(torch.bfloat16, (3, 64, 64, 37, 41), taps).inputs()
    words = {"stride": stride, "padding": taps // 2}
    own, wide = ([value.to(kind).requires_grad_() for value in (x, w)] for kind in (None, torch.float64))
    result, exact = conv2d(*own, **words), functional.conv2d(*wide, **words)
    torchs = functional.conv2d(*own, **words)
    assert_accurate(result.detach(), exact.detach(), torchs.detach())
    grad = torch.randn_like(result)
    for got, right, theirs in zip(
        torch.autograd.grad(result, own, grad),
        torch.autograd.grad(exact, wide, grad.double()),
        torch.autograd.grad(torchs, own, grad),
        strict=True,
    ):
        assert_accurate(got, right, theirs, 3.0)


@pytest.mark.parametrize("sizes", [WHOLE, CUT, NARROW, MANY], ids=["whole", "cut", "narrow", "many"])
def test_ten_runs_give_the_same_bits(operators, sizes):
    call = Case(torch.bfloat16, sizes).call(gradients=True)
    first = call.run()
    for _ in range(9):
        assert all(map(same_bits, first, call.run()))


@pytest.mark.parametrize("sizes", [WHOLE, CUT, MANY], ids=["whole", "cut", "many"])
def test_a_graph_replays_it(operators, sizes):
    values = Case(torch.float16, sizes).inputs()
    expected = conv2d(*values, padding=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = conv2d(*values, padding=1)
    result.fill_(float("nan"))
    graph.replay()
    assert same_bits(result, expected)


def test_compiles_whole(operators):
    values = [value.requires_grad_() for value in Case(torch.bfloat16, NARROW).inputs()]
    expected = conv2d(*values, padding=1)
    result = torch.compile(conv2d, fullgraph=True)(*values, padding=1)
    assert same_bits(result.detach(), expected.detach())
    grad = torch.randn_like(expected)
    *got, bias = torch.autograd.grad(result, values, grad)
    *right, right_bias = torch.autograd.grad(expected, values, grad)
    assert all(map(same_bits, got, right))
    # torch computes the bias gradient, and compiles it to a sum in another order
    torch.testing.assert_close(bias, right_bias, rtol=2**-6, atol=2**-6 * float(right_bias.abs().max()))


@pytest.mark.parametrize("channels", [1, 64])
def test_past_two_to_the_31_elements(operators, channels):
    """More elements than 32 bits count, and, of one channel, more positions than one launch counts."""
    side = 47_104 if channels == 1 else 6_016
    x = view((1, side, side, channels), torch.bfloat16, 1).permute(0, 3, 1, 2)
    w = view((64 if channels > 1 else 1, channels, 3, 3), torch.bfloat16, 2, scale=0.1)
    result = conv2d(x, w, padding=1)
    corner = x[..., -9:, -9:].contiguous()
    exact = functional.conv2d(corner.double(), w.double(), padding=1)[..., 2:, 2:]
    torchs = functional.conv2d(corner, w, padding=1)[..., 2:, 2:]
    assert_accurate(result[..., -7:, -7:], exact, torchs)
    del result
    torch.cuda.empty_cache()
