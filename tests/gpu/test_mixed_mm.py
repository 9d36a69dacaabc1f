"""Products with weights of 4 bits on a device: every variant, the gradient, determinism, CUDA graphs, and sizes past 2^31."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.mixed_mm import reference, uint4x2_mixed_mm  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.mixed_mm_calls import DEEP, FEW, MANY, NARROW, SEVERAL, SOME, Case, cases, gradient_calls  # noqa: E402
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
    assert_all_launched(steered, "mixed_mm")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [2, 96])
def test_every_byte_stands_for_its_nibbles(operators, rows, dtype):
    every = torch.arange(256, device="cuda", dtype=torch.uint8).repeat(8).view(1, -1).repeat(64, 1)
    a = torch.zeros(rows, 128, device="cuda", dtype=dtype)
    a[0, 62], a[1, 63] = 1, 1
    result = uint4x2_mixed_mm(a, every)
    assert torch.equal(result, reference.uint4x2_mixed_mm(a, every))


@pytest.mark.parametrize("sizes", [FEW, NARROW, SEVERAL, SOME, DEEP, MANY], ids=str)
def test_ten_runs_give_the_same_bits(operators, sizes):
    call = Case(torch.bfloat16, sizes, "zeros", 128).call()
    (first,) = call.run()
    for _ in range(9):
        assert same_bits(first, call.run()[0])


@pytest.mark.parametrize("sizes", [FEW, NARROW, SEVERAL, SOME, DEEP, MANY], ids=str)
def test_a_graph_replays_it(operators, sizes):
    a, b, words = Case(torch.float16, sizes, "scales", 128).inputs()
    expected = uint4x2_mixed_mm(a, b, **words)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = uint4x2_mixed_mm(a, b, **words)
    result.fill_(float("nan"))
    graph.replay()
    assert same_bits(result, expected)


def test_compiles_whole(operators):
    a, b, words = Case(torch.bfloat16, SOME, "zeros", 64).inputs()
    a.requires_grad_()
    expected = uint4x2_mixed_mm(a, b, **words)
    result = torch.compile(uint4x2_mixed_mm, fullgraph=True)(a, b, **words)
    assert same_bits(result.detach(), expected.detach())


@pytest.mark.parametrize("rows", [3, 40])
def test_past_two_to_the_31_elements(operators, rows):
    cols, depth = 65_536, 66_048
    a = view((rows, depth), torch.bfloat16, 1)
    b = torch.randint(0, 256, (depth // 2, cols), device="cuda", dtype=torch.uint8)
    result = uint4x2_mixed_mm(a, b)
    last = b[:, -64:]
    exact = reference.uint4x2_mixed_mm(a.double(), last)
    assert_accurate(result[:, -64:], exact, reference.uint4x2_mixed_mm(a, last))
