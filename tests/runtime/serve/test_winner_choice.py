"""The config that an autotuner takes instead of timing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from nojit.runtime.recording.origins import Winner
from nojit.runtime.serve.winner_choice import choose


def config(block: int, **options: int) -> Any:
    return SimpleNamespace(all_kwargs=lambda: {"BLOCK": block, "num_warps": 4, **options})


def winner(*key: Any, block: int) -> Winner:
    return Winner((), key, {"BLOCK": block, "num_warps": 4})


SMALL, LARGE = config(32), config(256)
WINNERS = (winner(64, "fp16", block=32), winner(4096, "fp16", block=256), winner(64, "fp32", block=256))


@pytest.mark.parametrize(
    ("key", "wanted", "exact"),
    [
        ((64, "fp16"), SMALL, True),
        ((4096, "fp16"), LARGE, True),
        ((64, "fp32"), LARGE, True),
        # in the middle of the logarithms, not of the numbers
        ((400, "fp16"), SMALL, False),
        ((600, "fp16"), LARGE, False),
        ((1 << 40, "fp16"), LARGE, False),
        ((0, "fp16"), SMALL, False),
        ((-5, "fp16"), SMALL, False),
    ],
)
def test_ints_are_near_by_their_logarithm(key: tuple[Any, ...], wanted: Any, exact: bool) -> None:
    choice = choose(WINNERS, key, [SMALL, LARGE])
    assert choice is not None
    assert choice.config is wanted
    assert choice.exact == exact


@pytest.mark.parametrize("key", [(64, "bf16"), (64,), (64, "fp16", 1), (True, "fp16"), (64.0, "fp16"), ("64", "fp16")])
def test_other_values_must_be_equal(key: tuple[Any, ...]) -> None:
    assert choose(WINNERS, key, [SMALL, LARGE]) is None


def test_a_config_that_the_autotuner_lost_is_not_chosen() -> None:
    choice = choose(WINNERS, (64, "fp16"), [LARGE])
    assert choice is not None
    assert (choice.config, choice.exact) == (LARGE, False)
    assert choose(WINNERS, (64, "fp16"), [config(256, maxnreg=64)]) is None


def test_large_ints_that_a_logarithm_confuses_are_not_exact() -> None:
    known = (winner((1 << 62) + 1, block=32),)
    near, exact = choose(known, (1 << 62,), [SMALL]), choose(known, ((1 << 62) + 1,), [SMALL])
    assert near is not None
    assert exact is not None
    assert (near.exact, exact.exact) == (False, True)


def test_the_first_of_equally_near_winners_is_chosen() -> None:
    known = (winner(7, block=256), winner(31, block=32))
    choice = choose(known, (15,), [SMALL, LARGE])
    assert choice is not None
    assert choice.config is LARGE


def test_a_value_that_no_bundle_holds_is_compared_by_its_text() -> None:
    kind = object()
    known = (Winner((), (repr(kind),), {"BLOCK": 32, "num_warps": 4}),)
    assert choose(known, (kind,), [SMALL]) is not None
    assert choose(known, (object(),), [SMALL]) is None
