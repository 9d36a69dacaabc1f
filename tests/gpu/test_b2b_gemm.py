"""Pairs of products on a device: every variant, gradients, determinism, CUDA graphs, and sizes past 2^31."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.b2b_gemm import b2b_gemm, reference  # noqa: E402

from tests.gpu.b2b_gemm_calls import SKINNY, WIDE, Case, cases, gradient_calls  # noqa: E402
from tests.gpu.call import view  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.label)
def test_products_are_as_exact_as_torchs(steered, case):
    check(case.call(), steered)


@pytest.mark.parametrize("call", list(gradient_calls()), ids=lambda call: call.label)
def test_gradients_are_as_exact_as_torchs(steered, call):
    check(call, steered)


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered, "b2b_gemm")


@pytest.mark.parametrize("sizes", [SKINNY, WIDE], ids=str)
def test_ten_runs_give_the_same_bits(operators, sizes):
    call = Case(torch.bfloat16, sizes).call()
    (first,) = call.run()
    for _ in range(9):
        assert same_bits(first, call.run()[0])


@pytest.mark.parametrize("sizes", [SKINNY, WIDE], ids=str)
def test_a_graph_replays_it(operators, sizes):
    given = Case(torch.float16, sizes).inputs()
    expected = b2b_gemm(*given, activation="silu")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = b2b_gemm(*given, activation="silu")
    result.fill_(float("nan"))
    graph.replay()
    assert same_bits(result, expected)


def test_compiles_whole(operators):
    given = [value.requires_grad_() for value in Case(torch.bfloat16, (304, 64, 80, 48)).inputs()]
    expected = b2b_gemm(*given, activation="gelu")
    result = torch.compile(b2b_gemm, fullgraph=True)(*given, activation="gelu")
    assert same_bits(result.detach(), expected.detach())
    torch.autograd.grad(result, given, torch.randn_like(expected))


@pytest.mark.parametrize("offset", [0, 1])
def test_past_two_to_the_31_elements(operators, offset):
    a = view((33_554_944, 64), torch.bfloat16, 1, offset=offset)
    b, c = (view((64, 64), torch.bfloat16, seed, scale=0.125) for seed in (2, 3))
    result = b2b_gemm(a, b, c, activation="relu")
    last = a[-64:]
    exact = reference.b2b_gemm(last.double(), b.double(), c.double(), activation="relu")
    assert_accurate(result[-64:], exact, reference.b2b_gemm(last, b, c, activation="relu"))
    del result
    torch.cuda.empty_cache()
