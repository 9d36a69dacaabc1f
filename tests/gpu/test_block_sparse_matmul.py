"""Block-sparse products on a device: every variant, gradients, determinism, CUDA graphs, sizes past 2^31."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.block_sparse import BlockLayout, block_sparse_matmul  # noqa: E402

from tests.gpu.calls import view  # noqa: E402
from tests.gpu.matmul_calls import Case, cases, gradient_calls  # noqa: E402
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
    assert_all_launched(steered)


@pytest.mark.parametrize("mode", ["sdd", "dsd", "dds"])
def test_ten_runs_give_the_same_bits(operators, mode):
    call = Case(mode, torch.bfloat16, 64, (128, 128)).call(gradients=True)
    first = call.run()
    for _ in range(9):
        for value, again in zip(first, call.run(), strict=True):
            assert same_bits(value, again)


@pytest.mark.parametrize("mode", ["sdd", "dsd", "dds"])
def test_a_graph_replays_it(operators, mode):
    case = Case(mode, torch.float16, 64, (128, 128))
    layout = case.layout()
    a, b = case.inputs(layout)
    expected = block_sparse_matmul(a, b, layout, mode)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = block_sparse_matmul(a, b, layout, mode)
    result.fill_(float("nan"))
    graph.replay()
    assert same_bits(result, expected)


def test_compiles_whole(operators):
    case = Case("dsd", torch.bfloat16, 64, (128, 128))
    layout = case.layout()
    s, d = (x.requires_grad_() for x in case.inputs(layout))
    expected = block_sparse_matmul(s, d, layout, "dsd")
    traced = torch.compile(lambda s, d: block_sparse_matmul(s, d, layout, "dsd"), fullgraph=True)
    result = traced(s, d)
    assert same_bits(result.detach(), expected.detach())
    grad = torch.randn_like(expected)
    for got, right in zip(
        torch.autograd.grad(result, (s, d), grad), torch.autograd.grad(expected, (s, d), grad), strict=True
    ):
        assert same_bits(got, right)


def test_past_two_to_the_31_elements(operators):
    """A sparse tensor of that size, read and written: its last row of blocks, where 32 bits would wrap."""
    layout = BlockLayout(torch.ones(1, 520, 256, dtype=torch.bool), 128)
    s = view((1, layout.nnz, 128, 128), torch.bfloat16, 1, scale=0.1)
    d = view((1, 1, layout.shape[1], 64), torch.bfloat16, 2)
    out = block_sparse_matmul(s, d, layout, "dsd")
    last = s[0, -256:].transpose(0, 1).reshape(128, -1)
    assert_accurate(out[0, 0, -128:], last.double() @ d[0, 0].double(), last @ d[0, 0])
    a = view((1, 1, layout.shape[0], 64), torch.bfloat16, 3)
    assert block_sparse_matmul(a, d, layout, "sdd", trans_b=True, out=s) is s
    rows = s[0, -256:].transpose(0, 1).reshape(128, -1)
    assert_accurate(rows, a[0, 0, -128:].double() @ d[0, 0].mT.double(), a[0, 0, -128:] @ d[0, 0].mT)
    torch.cuda.empty_cache()
