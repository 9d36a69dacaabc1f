"""Entries that come to too many variants are refused by arithmetic, before anything is listed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.variants.expand import expand_kernel
from nojit.aot.variants.tuning_space import expand_space
from nojit.runtime.errors import ManifestError

from tests.aot.entries import ARCH_NUMBERS, Entry, entries, spec


def refusal(*, space: bool = False, most: int | None = 250_000, **fields: Any) -> tuple[str, str]:
    """Return the message and the key path of a refusal."""
    with pytest.raises(ManifestError) as caught:
        (expand_space if space else expand_kernel)(spec(**fields), "sm_90", "$.kernel[0]", most=most)
    return str(caught.value), caught.value.where


def calls(work: Callable[[], object]) -> int:
    """Count the functions that are called."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


HUGE: dict[str, Any] = {
    "params": {"x": "*{dtype}?", "pair": "(i32?, i64?)", "n": "i32"},
    "matrix": {
        "dtype": ["fp16", "bf16"],
        "WIDTH": [2**i for i in range(40)],
        "SEED": list(range(300)),
        "FLAG": [True, False],
    },
    "configs": [{"BLOCK": 64 << i} for i in range(8)],
    "derived": {"EVEN": "n % BLOCK == 0"},
    "hints": [{"n": 16}, {"x": 16}],
}


def test_the_axis_with_the_most_values_is_blamed() -> None:
    message, where = refusal(**HUGE)
    assert message.startswith(
        "expected at most 250,000 variants of k for sm_90, before `exclude`, got 18,432,000, from 300 values of axis 'SEED', 40 values of axis 'WIDTH', "
    )
    assert "cut the values of axis 'SEED', list [[kernel.point]]s instead, or allow more with --max-variants" in message
    assert where == "$.kernel[0].matrix.SEED"


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"params": {f"p{i}": "*fp16?" for i in range(30)}}, "params.p0"),
        ({"params": {"p": f"({', '.join(['*fp16?'] * 40)})"}}, "params.p"),
        ({"derived": {"D": {"expr": "n", "values": list(range(300_000))}}, "params": {"n": "i32"}}, "derived.D"),
        ({"configs": [{"A": i} for i in range(600)], "matrix": {"B": list(range(500))}}, "configs"),
        ({"params": {f"n{i}": "i32" for i in range(20)}, "derived": {f"D{i}": f"n{i} > 1" for i in range(20)}}, "derived.D0"),
    ],
    ids=["pointers", "members", "values", "configs", "bools"],
)  # fmt: skip
def test_whatever_multiplies_is_counted(fields: dict[str, Any], key: str) -> None:
    assert refusal(**fields)[1] == f"$.kernel[0].{key}"


def test_spaces_are_counted_before_they_are_multiplied_out() -> None:
    space = {name: list(range(1, 20)) for name in "ABCDEFGH"} | {"A": list(range(1, 40))}
    fields = {
        "configs": [dict.fromkeys("ABCDEFGH", 1)],
        "tuning": {"key": ["n"], "space": [space]},
        "params": {"n": "i32"},
    }
    message, where = refusal(space=True, **fields)
    assert where == "$.kernel[0].tuning.space[0].A"
    assert "39 values of 'A', 19 values of 'B'" in message
    assert expand_kernel(spec(**fields), "sm_90", "$.kernel[0]").variants


def test_flags_that_types_decide_do_not_multiply() -> None:
    names = [f"p{i}" for i in range(10)]
    fields = {
        "params": dict.fromkeys(names, "*fp16?"),
        "derived": {f"HAS_{name}": f"has({name})" for name in names},
    }
    assert len(expand_kernel(spec(**fields), "sm_90", "here", most=1024).variants) == 1024


def test_more_can_be_allowed() -> None:
    fields: dict[str, Any] = {"matrix": {"A": list(range(50)), "B": list(range(10))}}
    assert "got 500, from 50 values of axis 'A', 10 values of axis 'B'" in refusal(most=499, **fields)[0]
    assert len(expand_kernel(spec(**fields), "sm_90", "here", most=500).variants) == 500
    assert len(expand_kernel(spec(**fields), "sm_90", "here", most=None).variants) == 500


def test_a_refusal_costs_no_more_for_a_thousand_times_the_variants() -> None:
    larger = HUGE | {"matrix": HUGE["matrix"] | {f"AXIS{i}": [1, 2] for i in range(10)}}
    few, many = (calls(lambda fields=fields: refusal(**fields)) for fields in (HUGE, larger))
    assert many < 1.5 * few


@settings(deadline=None, max_examples=60)
@given(entries(sound=True), st.sampled_from(sorted(ARCH_NUMBERS)))
def test_never_fewer_are_counted_than_there_are(entry: Entry, arch: str) -> None:
    try:
        expansion = expand_kernel(entry.spec(), arch, "here", most=None)
    except ManifestError:
        return
    count = len(expansion.variants) + expansion.excluded
    if count:
        with pytest.raises(ManifestError, match="expected at most"):
            expand_kernel(entry.spec(), arch, "here", most=count - 1)


@pytest.mark.parametrize("space", [False, True])
def test_listing_ends_with_the_first_variant_that_no_bundle_holds(space: bool) -> None:
    """However many more are allowed: 50 million took 13 GB, and were refused then."""
    fields: dict[str, Any] = {
        "params": {"n": "i32"},
        "matrix": {"A": list(range(4000)), "B": list(range(4000))},
        "configs": [{"C": 1}],
        "tuning": {"key": ["n"], "space": [{"C": [1, 2]}]},
    }
    message, where = refusal(space=space, most=None, **fields)
    assert message.startswith(
        "expected at most 32,768 variants of a kernel in a bundle, got more, from 4,000 values of"
    )
    assert where == "$.kernel[0].matrix.A"
