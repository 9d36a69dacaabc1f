"""Gated products on a device: every variant, determinism, the tile that the operator chooses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.gated_mm import gated_mm, reference  # noqa: E402

from tests.gpu.gated_mm_calls import Case, cases  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.label)
def test_products_are_as_exact_as_torchs(steered, case):
    check(case.call(), steered)


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered, "gated_mm")


@pytest.mark.parametrize("m", [1, 16, 64, 200, 2048])
def test_the_operator_chooses_a_way_that_is_right_ten_times(operators, m):
    a, b = Case(m, 1792, 1032).inputs()
    first = gated_mm(a, b)
    assert_accurate(first, reference.gated_mm(a.double(), b.double()), reference.gated_mm(a, b))
    for _ in range(9):
        assert same_bits(first, gated_mm(a, b))
