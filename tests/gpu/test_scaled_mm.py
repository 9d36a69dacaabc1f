"""Scaled products on a device: every variant, determinism, CUDA graphs, torch.compile, special values, sizes past 2^31."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.scaled_mm import reference, scaled_mm  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.scaled_mm_calls import CUT, DEEP, E4, E5, SHARED, Case, cases  # noqa: E402
from tests.gpu.steering import assert_all_launched  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.label)
def test_products_are_as_exact_as_torchs(steered, case):
    call = case.call()
    (exact,), (torchs,) = call.exact(), call.torchs()
    for _ in steered.rounds():
        assert_accurate(call.run()[0], exact, torchs, call.factors[0])


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered, "scaled_mm")


def test_slow_sums_are_more_exact_than_fast_ones(operators):
    case = Case((256, 512, 16384), dtype=torch.float32)
    (exact,) = case.call().exact()
    slow, fast = (
        float((Case((256, 512, 16384), dtype=torch.float32, fast=fast).run()[0] - exact).abs().max())
        for fast in (False, True)
    )
    assert slow * 4 < fast


@pytest.mark.parametrize(
    "case",
    [Case(sizes, kind=kind, biased=True) for sizes in (DEEP, CUT) for kind in ("ends", "1x128 128x128")]
    # the last tiles overlap those before them
    + [Case(SHARED, shared=True), Case((2200, 272, 2064))],
    ids=lambda case: case.label,
)
def test_ten_runs_give_the_same_bits(operators, case):
    (first,) = case.run()
    for _ in range(9):
        assert same_bits(first, case.run()[0])


@pytest.mark.parametrize("sizes", [DEEP, CUT], ids=["whole", "cut"])
def test_a_graph_replays_it(operators, sizes):
    given = Case(sizes, kind="ends", biased=True).inputs()
    expected = scaled_mm(*given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = scaled_mm(*given)
    result.fill_(float("nan"))
    graph.replay()
    assert same_bits(result, expected)


def test_compiles_whole(operators):
    given = Case(DEEP, kind="ends", biased=True).inputs()
    assert same_bits(torch.compile(scaled_mm, fullgraph=True)(*given), scaled_mm(*given))


@pytest.mark.parametrize("maps", [True, False])
@pytest.mark.parametrize("format_", [E4, E5], ids=str)
def test_every_value_of_a_format(operators, format_, maps):
    values = torch.arange(256, dtype=torch.uint8, device="cuda").view(format_)
    a = torch.zeros(256, 16, device="cuda").to(format_)
    a[:, 0] = values
    b = torch.zeros(16, 16, device="cuda").to(E4)
    b[:, 0] = torch.ones(16, device="cuda").to(E4)
    one = torch.ones((), device="cuda")
    wide = torch.empty(256, 32, device="cuda")
    result = scaled_mm(a, b.t(), one, one, out=wide[:, :16] if maps else wide[:, ::2])
    torch.testing.assert_close(result, values.float()[:, None].expand(-1, 16), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("sizes", [(65_552, 33_024, 64), (65_552, 16, 33_024)], ids=["result", "operand"])
def test_past_two_to_the_31_elements(operators, sizes, offset):
    m, n, k = sizes
    flat = torch.empty(m * k + offset, dtype=torch.uint8, device="cuda")
    rows = view((-(-m // 8), k), torch.bfloat16, 1).to(E4).view(torch.uint8)
    flat[offset:].view(m, k).copy_(rows.repeat(8, 1)[:m])
    a = flat.view(E4)[offset:].view(m, k)
    b = view((n, k), torch.bfloat16, 2).to(E4).t()
    one = torch.ones((), device="cuda")
    result = scaled_mm(a, b, one, one)
    exact = reference.scaled_mm(a[-8:], b, one, one)
    torchs = torch._scaled_mm(a[-8:].clone(), b, one, one, out_dtype=torch.bfloat16)
    assert_accurate(result[-8:], exact, torchs)
    del result
    torch.cuda.empty_cache()
