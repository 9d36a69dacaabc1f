"""Grouped products on a device: every variant, determinism, CUDA graphs, torch.compile, gradients, ends read on the device."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.grouped_mm import grouped_mm, reference  # noqa: E402

from tests.gpu.grouped_mm_calls import FEW, LARGE, RAGGED, Case, cases  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.label)
def test_products_are_as_exact_as_torchs(steered, case):
    check(case.call(), steered)


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered)


@pytest.mark.parametrize("lengths", [RAGGED, FEW, LARGE], ids=["ragged", "few", "large"])
def test_ten_runs_give_the_same_bits(operators, lengths):
    case = Case(lengths, 1600, 1032, bias="each")
    (first,) = case.run()
    for _ in range(9):
        assert same_bits(first, case.run()[0])


def test_a_graph_reads_the_ends_at_each_replay(operators):
    a, b, offs, _ = Case(RAGGED, past=0).inputs()
    rows = a.shape[0]
    grouped_mm(a, b, offs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = grouped_mm(a, b, offs)
    others = torch.linspace(0, rows, len(RAGGED) + 1).round().int()[1:]
    for ends in (offs.clone(), others.cuda(), torch.full_like(offs, rows)):
        offs.copy_(ends)
        result.fill_(float("nan"))
        graph.replay()
        exact = reference.grouped_mm(a.double(), b.double(), ends)
        assert_accurate(result, exact, reference.grouped_mm(a, b, ends))


@pytest.mark.parametrize("given", [(5, 3, 9000, 12), (-4, 6, 6, 17), (2_000_000_000, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("maps", [True, False], ids=["maps", "pointers"])
def test_ends_that_make_no_sense_stay_within_the_result(operators, given, maps):
    memory = torch.full((600, 264), 7.0, device="cuda").bfloat16()
    a, b = torch.randn(400, 64, device="cuda").bfloat16(), torch.randn(4, 264, 64, device="cuda").bfloat16().mT
    a = a if maps else a.t().contiguous().t()
    grouped_mm(a, b, torch.tensor(given, dtype=torch.int32, device="cuda"), out=memory[100:500])
    assert (memory[:100] == 7).all()
    assert (memory[500:] == 7).all()


def test_compiles_whole(operators):
    a, b, offs, bias = Case(bias="each").inputs()
    rows = int(offs[-1])
    compiled = torch.compile(lambda *given: grouped_mm(*given, bias=bias), fullgraph=True)
    assert same_bits(compiled(a, b, offs)[:rows], grouped_mm(a, b, offs, bias=bias)[:rows])


def test_gradients(operators):
    a, b, offs, bias = Case(bias="each", past=0).inputs()
    sources = [value.detach().requires_grad_() for value in (a, b, bias)]
    dout = torch.randn(a.shape[0], b.shape[2], device="cuda").bfloat16()
    found = torch.autograd.grad(grouped_mm(*sources[:2], offs, bias=sources[2]), sources, dout)
    wide = [value.detach().double().requires_grad_() for value in (a, b, bias)]
    exact = torch.autograd.grad(reference.grouped_mm(*wide[:2], offs, bias=wide[2]), wide, dout.double())
    for value, right in zip(found, exact, strict=True):
        assert_accurate(value, right, right.to(value.dtype), 3.0)


def test_rows_past_two_to_the_31_elements(operators):
    rows, k, n = 262_160, 8, 8200
    a, b = torch.randn(rows, k, device="cuda").bfloat16(), torch.randn(3, n, k, device="cuda").bfloat16().mT
    offs = torch.tensor([5, rows - 100, rows], dtype=torch.int32, device="cuda")
    result = grouped_mm(a, b, offs)
    for group, part in ((1, slice(rows - 164, rows - 100)), (2, slice(rows - 100, rows))):
        assert_accurate(result[part], a[part].double() @ b[group].double(), a[part] @ b[group])
