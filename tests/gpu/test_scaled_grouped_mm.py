"""Grouped fp8 products on a device: every variant, determinism, CUDA graphs, torch.compile, sizes past 2^31."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.scaled_grouped_mm import reference, scaled_grouped_mm  # noqa: E402

from tests.gpu.grouped_mm_calls import FEW, LARGE, RAGGED  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.scaled_grouped_mm_calls import KINDS, Case, cases  # noqa: E402
from tests.gpu.scaled_mm_calls import fp8  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.label)
def test_products_are_as_exact_as_torchs(steered, case):
    check(case.call(), steered)


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [RAGGED, FEW, LARGE], ids=["ragged", "few", "large"])
def test_ten_runs_give_the_same_bits(operators, lengths, kind):
    case = Case(lengths, 1600, 1040, kind)
    (first,) = case.run()
    for _ in range(9):
        assert same_bits(first, case.run()[0])


def test_a_graph_reads_the_ends_at_each_replay(operators):
    *given, offs = Case(RAGGED, past=0).inputs()
    rows = given[0].shape[0]
    scaled_grouped_mm(*given, offs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = scaled_grouped_mm(*given, offs)
    others = torch.linspace(0, rows, len(RAGGED) + 1).round().int()[1:]
    for ends in (offs.clone(), others.cuda(), torch.full_like(offs, rows)):
        offs.copy_(ends)
        result.fill_(float("nan"))
        graph.replay()
        exact = reference.scaled_grouped_mm(*given, ends)
        assert_accurate(result, exact, exact.bfloat16())


@pytest.mark.parametrize("wrong", [(5, 3, 9000, 12), (-4, 6, 6, 17), (2_000_000_000, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("offset", [0, 1], ids=["maps", "pointers"])
def test_ends_that_make_no_sense_stay_within_the_result(operators, wrong, offset):
    *given, _ = Case((100,) * 4, 272, 64, past=0, offset=offset).inputs()
    memory = torch.full((600, 272), 7.0, device="cuda").bfloat16()
    scaled_grouped_mm(*given, torch.tensor(wrong, dtype=torch.int32, device="cuda"), out=memory[100:500])
    assert (memory[:100] == 7).all()
    assert (memory[500:] == 7).all()


def test_torch_agrees(operators):
    given = Case(RAGGED, past=0).inputs()
    torchs = torch._scaled_grouped_mm(*given, out_dtype=torch.bfloat16)
    torch.testing.assert_close(scaled_grouped_mm(*given), torchs, atol=0.1, rtol=0.02)


def test_compiles_whole(operators):
    given = Case(past=0).inputs()
    assert same_bits(torch.compile(scaled_grouped_mm, fullgraph=True)(*given), scaled_grouped_mm(*given))


def test_rows_past_two_to_the_31_elements(operators):
    rows, k, n = 262_160, 16, 8208
    a, b = fp8((rows, k), 1), fp8((3, n, k), 2).mT
    scale_a, scale_b = torch.rand(rows, device="cuda") + 0.5, torch.rand(3, n, device="cuda") + 0.5
    offs = torch.tensor([5, rows - 100, rows], dtype=torch.int32, device="cuda")
    result = scaled_grouped_mm(a, b, scale_a, scale_b, offs)
    for group, part in ((1, slice(rows - 164, rows - 100)), (2, slice(rows - 100, rows))):
        one = torch.tensor([part.stop - part.start], device="cuda")
        given = a[part], b[group : group + 1], scale_a[part], scale_b[group : group + 1], one
        exact = reference.scaled_grouped_mm(*given)
        assert_accurate(result[part], exact, exact.bfloat16())
