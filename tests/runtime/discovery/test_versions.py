"""The order of versions is packaging's, and the newest bundle of a folder supersedes the others of its name and arch."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nojit.runtime.discovery.versions import BundleVersion, superseded, version_key
from packaging.version import Version

NUMBERS = st.integers(0, 12).map(str)
# more digits than Python makes an int of
LONG = st.sampled_from(["1", "1.0", "1!", "x", "+"]).map(lambda start: f"{start}{'7' * 5000}")


@st.composite
def versions(draw: st.DrawFn) -> str:
    """Draw what a bundle may call its version and PEP 440 knows."""
    text = draw(st.sampled_from(["", "", "1!"])) + ".".join(draw(st.lists(NUMBERS, min_size=1, max_size=3)))
    for words in (["a", "b", "rc", "alpha", "beta", "c", "pre", "preview"], ["post", "rev", "r"], ["dev"]):
        if draw(st.integers(0, 2)) == 0:
            text += (
                f"{draw(st.sampled_from(['', '.', '_']))}{draw(st.sampled_from(words))}{draw(NUMBERS | st.just(''))}"
            )
    return text + draw(st.sampled_from(["", "", "+cu128", "+1.2", "+1_a", "+A"]))


@given(versions(), versions())
def test_versions_are_ordered_as_packaging_orders_them(left: str, right: str) -> None:
    assert (version_key(left) < version_key(right)) == (Version(left) < Version(right))
    assert (version_key(left) == version_key(right)) == (Version(left) == Version(right))


@given(st.lists(st.text("019.abc+!_", min_size=1, max_size=8) | st.text(min_size=1) | LONG, max_size=8))
@example(["1.\u00b2", "1.\u0663", "1" * 5000, f"1.0a{'1' * 5000}"])
def test_any_versions_have_an_order(words: list[str]) -> None:
    keys = [version_key(word) for word in words]
    keys.sort()
    # whatever the order, no two of them cannot be compared
    assert all(not (later < earlier) for earlier, later in combinations(keys, 2))


@pytest.mark.parametrize(
    ("older", "newer"), [("0.9", "0.10"), ("1.0rc1", "1.0"), ("1.0x", "1.0"), ("1.0-2x", "1.0-10x")]
)
def test_newer(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)


def release(path: str, version: str, name: str = "acme", arch: str = "sm_90a") -> BundleVersion:
    return BundleVersion(path, name, version, arch)


def test_older_ones_of_a_name_and_arch_in_a_folder_are_superseded() -> None:
    found = superseded(
        [
            release("a/1", "0.9"),
            release("a/2", "0.10"),
            release("a/3", "0.10rc1"),
            release("a/other", "0.1", name="other"),
            release("a/arch", "0.1", arch="sm_80"),
            release("b/1", "0.1"),
        ]
    )
    assert found == {"a/1": "a/2", "a/3": "a/2"}


def test_two_of_one_version_supersede_neither() -> None:
    assert superseded([release("a/1", "1.0"), release("a/2", "1.0.0"), release("a/3", "0.1")]) == {"a/3": "a/1"}


def test_names_are_one_however_they_are_spelled() -> None:
    assert superseded([release("a/1", "1.0"), release("a/2", "2.0", name="ACME")]) == {"a/1": "a/2"}


def test_numbers_are_as_long_as_they_are() -> None:
    assert version_key("1." + "9" * 5000) < version_key("1.1" + "0" * 5000)
