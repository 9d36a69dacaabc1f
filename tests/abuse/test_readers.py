"""Whatever a table says, the engine reads it as it is spelled, or names the rule that it breaks."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nojit.aot.pack.sections import encode_table
from nojit.runtime import _core
from nojit.runtime.errors import BundleFormatError
from nojit.runtime.table.reading import check_table, decode_table
from nojit.runtime.table.table import KernelTable
from nojit.runtime.types.constants import constant_of, constant_type
from nojit.runtime.types.names import is_type

from tests.support.hostile import golden_parts
from tests.support.jsonlies import Document, NodePath, canonical, get, nodes, put, split_table

PARTS = golden_parts()
TABLES: list[Document] = [json.loads(split_table(raw)[0]) for _, _, raw in PARTS.tables]
SCALE = 1  # tables are sorted by kernel: fill, scale
TABLES.append(copy.deepcopy(TABLES[SCALE]))
# the tuning key's
TABLES[-1]["programs"][2:2] = ["n", "n 2 *"]
TABLES[-1]["tuning"] = {
    "bucket": "quarter_pow2",
    "key": ["n", "n * 2"],
    "tables": [
        {
            "blocks": [
                {
                    "cases": [0],
                    "costs": [],
                    "rows": [[[1, 2], [1, 0], [0, 30]], [[1, 4], [0], [0]], [[4, 8], [1], [0]]],
                },
                {
                    "costs": [[1, "key0 key1 *"], [0, "multiprocessors"]],
                    "cases": [1],
                    "rows": [[[0, (1 << 63) - 1], [1], [0]]],
                },
            ],
            "device": {"arch": "sm_90", "memory_bytes": 150754820096, "multiprocessors": 132, "name": "NVIDIA H200"},
        },
        {"blocks": [], "device": {"arch": "sm_90", "memory_bytes": 1, "multiprocessors": 1, "name": "NVIDIA H200"}},
    ],
}
# near misses of what stands there, and things of every kind
JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 16, -1, 65, 1 << 20, 1 << 64, 1 << 65, "", "n", "ab", "x.0", "\n", "a\n", "é", "0" * 64,
    "A" * 64, "sm_90", "*fp32", "i32", "(i32,i32)", "n +", [], {}, [[]], [{}], [1], ["n"], ["ab"], [["n", 16]], [["n", True]],
    [["n", 1], ["n", 16]], ["a", "b"], ["a", "b", "c"], {"x": 1}, {"a": 1, "b": 2}, {"float": "0x1.0000000000000p+0"},
    {"float": "1"}, {"dtype": "fp16"}, {"dtype": 1}, {"tuple": [1]}, "a" * 201, "a" * 8193,
)  # fmt: skip


def sealed(header: bytes, columns: bytes = bytes(4 * len(_core.COLUMNS))) -> bytes:
    """Lay out a table: by default one row of zeros."""
    return struct.pack("<I", len(header)) + header + b" " * (-len(header) % 4) + columns


def read(raw: bytes, rows: int = 1) -> KernelTable | None:
    """Read a table and all that it says; None if a rule is broken, which has a name. What is read is spelled as it was."""
    try:
        table = decode_table(raw, "k", rows, 1, "here")
        check_table(table, "here")
    except BundleFormatError as error:
        if not error.rule or not str(error.where).startswith("here"):
            raise
        return None
    assert meant(encode_table(table)) == meant(raw)
    return table


def meant(raw: bytes) -> Any:
    """Take a table apart, the layouts put into the launches: these may stand in any order, and unused."""
    header, columns = split_table(raw)
    document = json.loads(header)
    layouts = document.pop("layouts")
    for launch in document["launches"]:
        launch["layout"] = layouts[launch["layout"]]
    # true is not 1
    return repr(document), columns


def lies(document: Document, paths: Iterable[NodePath], values: Iterable[Any] = JUNK) -> Iterator[Document]:
    """Put every value in the place of every node in turn, in one copy, for copies are most of the work."""
    changed = copy.deepcopy(document)
    for path in paths:
        for value in values:
            put(changed, path, copy.deepcopy(value))
            yield changed
        put(changed, path, copy.deepcopy(get(document, path)))


def test_what_is_right_is_read() -> None:
    for table in TABLES:
        assert read(sealed(canonical(table))) is not None


def test_types_of_params_are_those_of_the_signatures() -> None:
    for document in TABLES:
        table = read(sealed(canonical(document)))
        assert table is not None
        assert [*table.param_types()] == [*table.runtime_params()]


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_a_lie_is_read_as_it_is_spelled_or_refused(number: int) -> None:
    refused = [read(sealed(canonical(changed))) is None for changed in lies(TABLES[number], nodes(TABLES[number]))]
    assert sum(refused) > 0.8 * len(refused)


@pytest.mark.parametrize("number", range(len(TABLES)))
@settings(max_examples=150, deadline=None, database=None)
@given(data=st.data())
def test_nodes_in_each_others_place(number: int, data: st.DataObject) -> None:
    table = copy.deepcopy(TABLES[number])
    for _ in range(data.draw(st.integers(1, 3))):
        here, there = (data.draw(st.sampled_from(list(nodes(table)))) for _ in range(2))
        put(table, here, copy.deepcopy(get(table, there)))
    read(sealed(canonical(table)))


def test_an_odd_document_is_refused_with_the_name_of_a_rule() -> None:
    for junk in JUNK:
        assert read(sealed(canonical(junk))) is None


@pytest.mark.parametrize("number", range(len(TABLES)))
@settings(max_examples=200, deadline=None, database=None)
@given(data=st.data())
def test_any_bytes_are_read_as_they_are_spelled_or_refused(number: int, data: st.DataObject) -> None:
    header = bytearray(canonical(TABLES[number]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(header) - 1))
        piece = data.draw(
            st.sampled_from([b"", b"0", b"9", b"-", b'"', b"\\", b"]", b"}", b"[", b"{", b",", b" ", b"\xff", b"1e1"])
        )
        header[place : place + data.draw(st.integers(0, 2))] = piece
    read(sealed(bytes(header)))


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_a_table_that_is_cut_short_is_refused(number: int) -> None:
    header = canonical(TABLES[number])
    for length in range(len(header)):
        assert read(sealed(header[:length])) is None


def test_lengths_that_lie_are_refused() -> None:
    raw = sealed(canonical(TABLES[0]))
    for length in (0, 1, len(raw), 1 << 24, (1 << 24) + 1, (1 << 32) - 1):
        assert read(struct.pack("<I", length) + raw[4:]) is None
    for size in range(0, len(raw), 7):
        assert read(raw[:size]) is None


PLACES: dict[str, tuple[str, NodePath, Any]] = {
    "$.configs[1].requires": ("expected a string, got null", ("configs", 1, "requires"), None),
    "$.axes[0].values[1]": ("expected float, dtype, function or tuple", ("axes", 0, "values", 1), {"complex": 1}),
    "$.hint_sets[1][0][1]": ("expected a hint of 16 or 1, got 8", ("hint_sets", 1, 0, 1), 8),
    "$.launches[0].num_warps": ("expected an integer from 1 to 32, got 33", ("launches", 0, "num_warps"), 33),
    "$.layouts[0]": ("expected a layout of at most 1024 params", ("layouts", 0), "x"),
    "$.cases": ("expected an array, got an object", ("cases",), {}),
    "$.tuning": ("expected an object, got an integer", ("tuning",), 1),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_error_names_its_place(place: str) -> None:
    message, path, value = PLACES[place]
    document = copy.deepcopy(TABLES[SCALE])
    put(document, path, value)
    with pytest.raises(BundleFormatError) as refused:
        check_table(decode_table(sealed(canonical(document)), "k", 1, 1, "here"), "here")
    assert message in str(refused.value)
    assert refused.value.where == f"here {place}"


numbers = st.floats() | st.floats(-1e20, 1e20) | st.integers(-1100, 1023).map(lambda power: 2.0**power)


@settings(max_examples=500)
@given(numbers)
@example(2.0**-44)
@example(5e-324)
@example(9007199254740993.0)
@example(1e16)
@example(0.0001)
@example(-0.0)
def test_a_float_constant_is_spelled_as_repr_does(number: float) -> None:
    assert repr(constant_of(constant_type(number))) == repr(number)


@settings(max_examples=500)
@given(
    numbers.map(repr) | st.from_regex(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e[+-]?[0-9]{1,3})?", fullmatch=True), st.data()
)
def test_no_other_spelling_of_a_float_is_a_constant(text: str, data: st.DataObject) -> None:
    place, piece = (
        data.draw(st.integers(0, len(text))),
        data.draw(st.sampled_from(["", "0", "1", "9", ".", "e", "-", "+"])),
    )
    text = text[:place] + piece + text[place + data.draw(st.integers(0, 1)) :]
    try:
        whole = text.lstrip("-").isdecimal() and int(text).bit_length() <= 64
        right = text == (str(int(text)) if whole else repr(float(text)))
    except ValueError:
        right = False
    assert is_type(f"={text}") == right, text


@settings(max_examples=500)
@given(st.text() | st.text("%0Aa'_é \x7f", max_size=6))
def test_a_text_constant_has_one_spelling(text: str) -> None:
    try:
        kind = constant_type(text)
    except UnicodeEncodeError:
        return
    assert is_type(kind)
    assert constant_of(kind) == text
    bare = f"='{text}'"
    assert not is_type(bare) or constant_type(constant_of(bare)) == bare


@settings(max_examples=300)
@given(numbers, st.data())
def test_a_float_value_has_one_spelling(number: float, data: st.DataObject) -> None:
    document = copy.deepcopy(TABLES[0])
    text = number.hex()
    place, piece = (
        data.draw(st.integers(0, len(text))),
        data.draw(st.sampled_from(["", "0", "1", "f", ".", "p", "-", "+"])),
    )
    changed = text[:place] + piece + text[place + data.draw(st.integers(0, 1)) :]
    try:
        right = float.fromhex(changed).hex() == changed
    except (ValueError, OverflowError):
        right = False
    document["params"][0]["default"] = [{"float": changed}]
    table = read(sealed(canonical(document)))
    assert (table is not None) == right
    if table is not None:
        assert repr(table.params[0].default) == repr(float.fromhex(changed))
