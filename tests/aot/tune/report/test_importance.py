"""The decomposition on functions whose parts are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("sklearn")

from nojit.aot.tune.report.importance import PROBLEM, Importance, Observation, decompose, explain  # noqa: E402

LEVELS = range(4)


def observed(time: Callable[[int, int, int], float], problems: int = 3) -> list[Observation]:
    return [
        Observation({"A": 16 << a, "B": 16 << b, "num_warps": 4}, f"p{p}", time(a, b, p))
        for a, b, p in itertools.product(LEVELS, LEVELS, range(problems))
    ]


def explained(time: Callable[[int, int, int], float]) -> Importance:
    found = explain(observed(time))
    assert found is not None
    return found


def share(found: Importance, *factors: str) -> float:
    return next((one.share for one in found.shares if set(one.factors) == set(factors)), 0.0)


def test_an_additive_table_has_no_interactions() -> None:
    values = np.add.outer(np.arange(4.0), 3 * np.arange(4.0))
    shares, rest = decompose(values, ("A", "B"))
    found = {one.factors: one.share for one in shares}
    assert found["B",] == pytest.approx(0.9)
    assert found["A",] == pytest.approx(0.1)
    assert found["A", "B"] == pytest.approx(0, abs=1e-12)
    assert rest == pytest.approx(0, abs=1e-12)


def test_a_centred_product_is_interaction_alone() -> None:
    centred = np.arange(4.0) - 1.5
    shares, rest = decompose(np.multiply.outer(centred, centred), ("A", "B"))
    assert shares[0].factors == ("A", "B")
    assert shares[0].share == pytest.approx(1)
    assert rest == pytest.approx(0, abs=1e-12)


def test_three_factors_together_are_the_rest() -> None:
    centred = np.array([-1.0, 1.0])
    shares, rest = decompose(np.einsum("i,j,k->ijk", centred, centred, centred), ("A", "B", "C"))
    assert rest == pytest.approx(1)
    assert all(one.share == pytest.approx(0, abs=1e-12) for one in shares)


def test_a_flat_table_has_nothing_to_explain() -> None:
    assert decompose(np.ones((2, 2)), ("A", "B")) == ((), 0.0)


def test_the_forest_finds_who_matters() -> None:
    found = explained(lambda a, b, p: math.exp(0.5 * a + 0.1 * b + p))
    assert share(found, "A") > 0.85
    assert 0.01 < share(found, "B") < 0.15
    assert share(found, "A", "B") < 0.05
    # the problem's own size is taken out
    assert share(found, PROBLEM) < 0.02
    assert found.fit is not None
    assert found.fit > 0.9
    assert found.spread == pytest.approx(math.exp(1.8))
    assert math.fsum(one.share for one in found.shares) + found.rest == pytest.approx(1)


def test_the_forest_finds_an_interaction() -> None:
    found = explained(lambda a, b, p: math.exp((a - 1.5) * (b - 1.5)))
    assert share(found, "A", "B") > 0.8


def test_the_forest_finds_what_depends_on_the_problem() -> None:
    found = explained(lambda a, b, p: math.exp(0.3 * (a - 1.5) * (p - 1)))
    assert share(found, "A", PROBLEM) > 0.8


def test_what_never_varies_is_no_factor() -> None:
    found = explained(lambda a, b, p: math.exp(a))
    assert "num_warps" not in {name for one in found.shares for name in one.factors}
    assert list(found.totals()) == ["A", "B"]


def test_values_of_any_kind_are_levels() -> None:
    values = [None, True, 1, 2.5, "a", (1, 2)]
    found = explain([Observation({"A": one}, "p", 1.0 + place) for place, one in enumerate(values)])
    assert found is not None
    assert found.fit is None
    assert share(found, "A") == pytest.approx(1)


@pytest.mark.parametrize(
    "observations",
    [
        [],
        [Observation({"A": 1}, "p", 1.0)],
        [Observation({"A": one}, f"p{one}", 1.0) for one in range(4)],
        [Observation({"A": one}, "p", 2.0) for one in range(20)],
    ],
)
def test_nothing_to_explain_is_none(observations: list[Observation]) -> None:
    assert explain(observations) is None


def test_it_is_the_same_every_time() -> None:
    assert explained(lambda a, b, p: 1.0 + a * b + p) == explained(lambda a, b, p: 1.0 + a * b + p)
