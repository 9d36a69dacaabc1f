"""The engine accepts exactly the JSON that Python's own module writes back as it was."""

from __future__ import annotations

import json
import unicodedata
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.base.strict_json import parse_json
from nojit.runtime.errors import BundleFormatError

from tests.support.jsonlies import canonical

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\b\f\n\r\t\0\x7f/\ue000\U0001f600'), max_size=6
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**99), 10**99) | TEXTS
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))
PIECES = [
    b"",
    b"0",
    b"9",
    b"-",
    b'"',
    b"\\",
    b"\\u00e9",
    b"\\ud83d",
    b"\\ude00",
    b"\\/",
    b"]",
    b"}",
    b"[",
    b"{",
    b",",
    b":",
    b" ",
]
PIECES += [b"\n", b"\x7f", b"\xff", b"\0", b"1e1", b".5", b"null", b"NaN", b"true"]


def is_canonical(raw: bytes) -> bool:
    def no_number(text: str) -> NoReturn:
        raise ValueError(text)

    def integer(text: str) -> int:
        return int(text) if len(text.lstrip("-")) <= _core.JSON_DIGITS_MAX else no_number(text)

    try:
        document = json.loads(raw.decode("ascii"), parse_int=integer, parse_float=no_number, parse_constant=no_number)
        json.dumps(document, ensure_ascii=False).encode()
    except ValueError:
        return False
    return canonical(document) == raw


def rule_of(raw: bytes) -> str:
    """Return the rule that a text breaks; empty if it breaks none."""
    try:
        _core.check_json(raw, "here")
    except BundleFormatError as error:
        return error.rule
    return ""


@given(DOCUMENTS)
def test_what_is_written_is_read(document: object) -> None:
    assert parse_json(canonical(document), "here") == document


@settings(max_examples=1500, deadline=None)
@given(DOCUMENTS, st.data())
def test_what_is_changed_is_read_only_if_it_is_canonical(document: object, data: st.DataObject) -> None:
    raw = bytearray(canonical(document))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw)))
        raw[place : place + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(PIECES))
    changed = bytes(raw)
    assert (rule_of(changed) == "") == is_canonical(changed)


@given(st.binary(max_size=12))
def test_other_bytes_are_refused(raw: bytes) -> None:
    assert (rule_of(raw) == "") == is_canonical(raw)


def test_a_text_that_is_cut_short_is_refused() -> None:
    whole = canonical({"a": [1, -2, "\u00e9\n\U0001f600", None, True, False], "b": {}})
    assert rule_of(whole) == ""
    for length in range(len(whole)):
        assert rule_of(whole[:length]) == "json"


@pytest.mark.parametrize(
    ("raw", "rule", "message"),
    [
        (b"", "json", "got its end at byte 0 - at here $"),
        (b'{"a":[0,1.5]}', "json", "got '.' at byte 9 - at here $.a[1]"),
        (b'{"a":{"b":"\\ud800"}}', "json", "surrogates in pairs"),
        (b'["\\udc00\\ud800"]', "json", "surrogates in pairs"),
        (b'{"b":1,"a":2}', "json-canonical", "got key 'a' behind 'b'"),
        (b'{"a":1,"a":2}', "json-canonical", "got key 'a' behind 'a'"),
        (b'{"\\ud83d\\ude00":1,"\\uffff":2}', "json-canonical", "got key"),  # by code point, not as UTF-16
        (b"[1, 2]", "json-canonical", "got a space at byte 3 - at here $[1]"),
        (b"[-0]", "json-canonical", "got -0"),
        (b"[" * 33 + b"]" * 33, "json-depth", "at most 32 deep"),
        (b"[" + b"1" * 101 + b"]", "size", "at most 100 digits"),
        (b'"' + b"," * (1 << 16) + b',"', "size", "65539 bytes, 65537 commas"),
        (b'"' + b" " * (2 << 20) + b'"', "size", "2097154 bytes, 0 commas"),
    ],
)
def test_an_error_names_the_rule_and_the_place(raw: bytes, rule: str, message: str) -> None:
    with pytest.raises(BundleFormatError) as caught:
        _core.check_json(raw, "here")
    assert caught.value.rule == rule
    assert message in str(caught.value)


def test_the_most_of_everything_is_read() -> None:
    assert rule_of(b"[" * 32 + b"]" * 32) == ""
    assert rule_of(b"[-" + b"1" * 100 + b"]") == ""
    assert rule_of(b'"' + b"," * (1 << 16) + b'"') == ""
    assert rule_of(b'"' + b" " * ((2 << 20) - 2) + b'"') == ""


def test_printable_characters_are_those_of_the_specification() -> None:
    hidden = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs")
    for point in range(0x110000):
        character = chr(point)
        category = unicodedata.category(character)
        # an older Unicode does not know every format character
        if character != " " and category != "Cn":
            assert _core.is_printable(f"a{character}") == (category not in hidden), hex(point)
