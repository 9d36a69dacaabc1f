"""Dense products on a device: every variant, gradients, determinism, CUDA graphs, large batches, sizes past 2^31."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.bmm import baddbmm, bmm, launch, mm, op  # noqa: E402
from nojit.kernels.mm_plus_mm import mm_plus_mm, reference  # noqa: E402
from nojit.kernels.products.shared_wave import sums_shape  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.gemm_calls import CUT, PAIRS, SHARED, WHOLE, Case, PairCase, cases, gradient_calls, prepared_anew  # noqa: E402
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


@pytest.mark.parametrize("sizes", [WHOLE, CUT], ids=["whole", "cut"])
def test_ten_runs_give_the_same_bits(operators, sizes):
    call = Case(torch.bfloat16, sizes).call()
    (first,) = call.run()
    for _ in range(9):
        assert same_bits(first, call.run()[0])


def rests() -> dict[str, int]:
    """Return numbers of tiles that leave some for the last wave, which programs share."""
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    return {
        "one": programs + 1,
        "few": 2 * programs + 8,
        "third": programs // 3,
        "half": programs + programs // 2,
        "two thirds": 2 * programs // 3,
        "all but one": 2 * programs - 1,
    }


@pytest.mark.parametrize("k", [72, 1000, 4104])
@pytest.mark.parametrize("rest", rests())
def test_a_shared_last_wave_gives_the_same_bits_ten_times(operators, rest, k):
    tiles = rests()[rest]
    call = Case(torch.bfloat16, (tiles, 128, 256, k), shared=True).call()
    (first,), (exact,), (plain,) = call.run(), call.exact(), call.torchs()
    assert_accurate(first, exact, plain)
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    for _ in range(9):
        # the workspace reuses this memory
        torch.full(sums_shape(tiles, 128, 256, programs), float("nan"), device="cuda")
        assert same_bits(first, call.run()[0])


def test_a_shared_last_wave_in_graphs_on_two_streams(operators):
    case = Case(torch.bfloat16, SHARED, shared=True)
    _, a, b = case.inputs()
    with prepared_anew(op, launch, maps=True, shared=True):
        expected = bmm(a, b)
        graphs, results = [torch.cuda.CUDAGraph() for _ in range(2)], []
        for graph in graphs:
            with torch.cuda.graph(graph):
                results.append([bmm(a, b) for _ in range(3)])
    for result in [*results[0], *results[1]]:
        result.fill_(float("nan"))
    torch.cuda.synchronize()
    for graph in graphs:
        with torch.cuda.stream(torch.cuda.Stream()):
            graph.replay()
    torch.cuda.synchronize()
    assert all(same_bits(result, expected) for result in [*results[0], *results[1]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("sizes", [PAIRS, (47, 203, 61, 125)], ids=["whole", "ragged"])
def test_ten_runs_of_a_sum_of_products_give_the_same_bits(operators, sizes, dtype):
    call = PairCase(dtype, sizes=sizes).call(gradients=True)
    first = call.run()
    for _ in range(9):
        assert all(map(same_bits, first, call.run()))


@pytest.mark.parametrize("sizes", [WHOLE, CUT], ids=["whole", "cut"])
def test_a_graph_replays_it(operators, sizes):
    source, a, b = Case(torch.float16, sizes).inputs()
    expected = baddbmm(source, a, b, activation="silu")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = baddbmm(source, a, b, activation="silu")
    result.fill_(float("nan"))
    graph.replay()
    assert same_bits(result, expected)


def test_compiles_whole(operators):
    source, a, b = (x.requires_grad_() for x in Case(torch.bfloat16, (2, 104, 208, 136)).inputs())
    expected = baddbmm(source, a, b)
    result = torch.compile(baddbmm, fullgraph=True)(source, a, b)
    assert same_bits(result.detach(), expected.detach())
    grad = torch.randn_like(expected)
    for got, right in zip(
        torch.autograd.grad(result, (a, b), grad), torch.autograd.grad(expected, (a, b), grad), strict=True
    ):
        assert same_bits(got, right)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_more_products_than_a_grid_is_wide(operators, dtype):
    a, b = view((70_000, 16, 32), dtype, 1), view((70_000, 32, 16), dtype, 2)
    assert_accurate(bmm(a, b), a.double() @ b.double(), torch.bmm(a, b))
    shared = b[:1].expand(70_000, -1, -1)
    assert_accurate(bmm(a, shared), a.double() @ shared.double(), torch.bmm(a, shared))


@pytest.mark.parametrize("offset", [0, 1])
def test_past_two_to_the_31_elements(operators, offset):
    a, b = view((65_536, 64), torch.bfloat16, 1, offset=offset), view((64, 33_024), torch.bfloat16, 2)
    result = mm(a, b)
    assert_accurate(result[-8:], a[-8:].double() @ b.double(), a[-8:] @ b)
    del result
    torch.cuda.empty_cache()


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("sizes", [(65_536, 33_024, 64, 48), (65_552, 16, 33_024, 48)], ids=["result", "operand"])
def test_a_sum_of_products_past_two_to_the_31_elements(operators, sizes, offset):
    a, b, c, d = PairCase(torch.bfloat16, sizes=sizes, offset=offset).inputs()
    result = mm_plus_mm(a, b, c, d)
    last = (a[-8:], b, c[-8:], d)
    assert_accurate(result[-8:], reference.mm_plus_mm(*(each.double() for each in last)), reference.mm_plus_mm(*last))
    del result
    torch.cuda.empty_cache()
