"""What the engine takes for a type, in its one spelling."""

from __future__ import annotations

import pytest
from nojit.runtime.types.names import is_type, leaves

LEAVES_MAX = 256


@pytest.mark.parametrize(
    "name",
    [
        *("=true", "=false", "='%C3%A9'", "='%E2%82%AC'", "='%F0%9F%98%80'", "=18446744073709551615"),
        *("*fp8e5", "tensordesc<fp16[1]>", "tensordesc<fp16[1048576,1,1,1,1]>", "()", "((),(),())"),
    ],
)
def test_a_type_is_known_by_its_spelling(name: str) -> None:
    assert is_type(name)


@pytest.mark.parametrize(
    "name",
    [
        # a lead byte without its others, with fewer, with another; longer than need be; a surrogate; past the last code point
        *("='%C3'", "='%E2%82'", "='%C3%28'", "='%C0%80'", "='%E0%80%80'", "='%F0%80%80%80'", "='%ED%A0%80'"),
        *("='%F4%90%80%80'", "='%FF'", "='%80'", "='%C'", "='%c3%a9'", "='%41'", "='abc", "='", "=True"),
        *("=18446744073709551616e", "=01", "=-0", "=", "=none", "=(1)"),
        *("tensordesc<fp16>", "tensordesc<fp16[]>", "tensordesc<fp16[0]>", "tensordesc<fp16[01]>", "tensordesc<fp16"),
        *("tensordesc<fp16[1000000000]>", "tensordesc<fp16[1048577]>", "tensordesc<fp16[1,1,1,1,1,1]>"),
        *("tensordesc<half[8]>", "tensordesc<fp16[8]", "tensordesc<fp16[8]>x", "fp8e5", "tensormap", "*", "**fp16", ""),
        *("(", ")", "(i32", "i32)", "(i32,)", "(,i32)", "(i32)(i32)"),
    ],
)
def test_no_other_spelling_is_a_type(name: str) -> None:
    assert not is_type(name)


@pytest.mark.parametrize(
    ("member", "values"), [("i32", 1), ("(i32)", 2), ("(i32,i32)", 3), ("((i32))", 3), ("()", 1), ("((),i32)", 3)]
)
def test_a_tuple_has_as_many_members_as_a_call_has_room_for(member: str, values: int) -> None:
    most = LEAVES_MAX // values
    assert is_type(f"({','.join([member] * most)})")
    assert not is_type(f"({','.join([member] * (most + 1))})")


def test_a_path_that_is_too_long_is_refused() -> None:
    name = "x" * 255
    assert leaves("i32", name) == ((name, "i32"),)
    for kind, path in (("(i32,i32)", name), ("i32", "x" * 257)):
        with pytest.raises(ValueError, match="at most 256 bytes"):
            leaves(kind, path)
