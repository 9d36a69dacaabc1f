"""Every operator against an exact reference, from a bundle, with as much error as torch's own operator may have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from tests.gpu import calls  # noqa: E402
from tests.gpu.families import attention_reaches  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402


@pytest.mark.parametrize("call", list(calls.all_calls()), ids=lambda call: call.label)
def test_an_operator_is_as_exact_as_torch(steered, call):
    check(call, steered)


@pytest.mark.parametrize("call", list(calls.huge_pointwise_calls()), ids=lambda call: call.label)
def test_past_two_to_the_31_elements(steered, call):
    check(call, steered)
    torch.cuda.empty_cache()


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered, reaches=attention_reaches)


@pytest.mark.parametrize("call", list(calls.all_calls())[::17], ids=lambda call: call.label)
def test_ten_runs_give_the_same_bits(operators, call):
    first = call.run()
    for _ in range(9):
        for value, again in zip(first, call.run(), strict=True):
            assert same_bits(value, again)
