"""Every operator against an exact reference, from a bundle, with as much error as torch's own operator may have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from tests.gpu import calls  # noqa: E402
from tests.gpu.replay import Steered, same_bits  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.fixture(scope="module")
def steered(bundle):
    """Operators run every config that can serve a call, one after the other."""
    from nojit.kernels import library

    provider = Steered(bundle)
    with library.override(provider, devices=frozenset({"cuda"})):
        yield provider


def check(call: calls.Call, steered: Steered) -> None:
    exact, torchs = call.exact(), call.torchs()
    for _ in steered.rounds():
        for value, right, own, factor in zip(call.run(), exact, torchs, call.factors, strict=True):
            assert_accurate(value, right, own, factor, call.slack(exact))


@pytest.mark.parametrize("call", list(calls.all_calls()), ids=lambda call: call.label)
def test_an_operator_is_as_exact_as_torch(steered, call):
    check(call, steered)


@pytest.mark.parametrize("call", list(calls.huge_pointwise_calls()), ids=lambda call: call.label)
def test_past_two_to_the_31_elements(steered, call):
    check(call, steered)
    torch.cuda.empty_cache()


def test_every_variant_was_launched(steered, bundle):
    """Run after the others: what they leave out is what nobody has tried."""
    if not steered.tallies:
        pytest.skip("runs after the tests that launch")
    for name, tally in steered.tallies.items():
        missed = [row for row in range(tally.variants) if row not in tally.rows]
        labels = [tally.table.label(row) for row in missed if not is_out_of_reach(tally.table, row)]
        assert labels == [], f"{name}: no call of the tests runs these"


def is_out_of_reach(table, row: int) -> bool:
    """Know the variants that no call can ask for: a head of less than 16 elements is no multiple of 16."""
    values = table.constexprs(row)
    hints = table.hint_sets[table.columns["hints"][row]]
    return values.get("BLOCK_D") == 16 and values.get("EVEN_D") is False and ("head_dim", 16) in hints


@pytest.mark.parametrize("call", list(calls.all_calls())[::17], ids=lambda call: call.label)
def test_ten_runs_give_the_same_bits(operators, call):
    first = call.run()
    for _ in range(9):
        for value, again in zip(first, call.run(), strict=True):
            assert same_bits(value, again)
