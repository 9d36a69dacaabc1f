"""Whatever is accepted all at once reads the same rule by rule: what is refused there is refused here too."""

from __future__ import annotations

import copy
import dataclasses
import json
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core, table_codec
from nojit.runtime.errors import BundleFormatError
from nojit.runtime.strict import parse_json
from nojit.runtime.table import COLUMNS, KernelTable
from nojit.runtime.table_reader import read_table

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
                {"meanings": [0], "rows": [[[1, 2], [1, 0], [0, 30]], [[1, 4], [0], [0]], [[4, 8], [1], [0]]]},
                {
                    "costs": [[1, "key0 key1 *"], [0, "multiprocessors"]],
                    "meanings": [1],
                    "rows": [[[0, 0], [1], [0]]],
                },
            ],
            "device": {"arch": "sm_90", "memory_bytes": 150754820096, "multiprocessors": 132, "name": "NVIDIA H200"},
        },
        {"blocks": [], "device": {"arch": "sm_90", "memory_bytes": 1, "multiprocessors": 1, "name": "NVIDIA H200"}},
    ],
}
COLUMN: dict[str, array[int]] = {name: array("I", [0]) for name in COLUMNS}
ODD = (AttributeError, KeyError, TypeError, ValueError)
# near misses of what stands there, and things of every kind
JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 16, -1, 65, 1 << 20, 1 << 64, 1 << 65, "", "n", "ab", "x.0", "\n", "a\n", "é", "0" * 64,
    "A" * 64, "sm_90", "*fp32", "i32", "(i32,i32)", "n +", [], {}, [[]], [{}], [1], ["n"], ["ab"], [["n", 16]], [["n", True]],
    [["n", 1], ["n", 16]], ["a", "b"], ["a", "b", "c"], {"x": 1}, {"a": 1, "b": 2}, {"float": "0x1.0000000000000p+0"},
    {"float": "1"}, {"dtype": "fp16"}, {"dtype": 1}, {"tuple": [1]}, "a" * 201, "a" * 8193,
)  # fmt: skip


def outcome(read: Callable[[], Any]) -> Any:
    """Spell what is read, launches as their JSON, for they are decoded later; None if it is refused."""
    try:
        found = read()
    except ODD:
        return None
    if isinstance(found, KernelTable) and isinstance(found.launches, table_codec.Launches):
        later = found.launches
        launches = [json.loads(launch) if isinstance(launch, bytes) else launch for launch in later._launches]
        return repr(dataclasses.replace(found, launches=())), launches, [*later._layouts]  # type: ignore[type-var]
    return None if found is None else repr(found)


def sealed(header: bytes, columns: bytes = bytes(4 * len(COLUMNS))) -> bytes:
    """Lay out a table: by default one row of zeros."""
    return struct.pack("<I", len(header)) + header + b" " * (-len(header) % 4) + columns


def quick_table(document: Document) -> KernelTable | None:
    return table_codec._whole_table(sealed(canonical(document)), "k", 1, 1, "")


def table_readers(document: Document) -> tuple[Any, Any]:
    return (
        outcome(lambda: quick_table(document)),
        outcome(lambda: read_table(document, "k", COLUMN, 1, "")),
    )


def launch_readers(launches: table_codec.Launches, document: Document) -> tuple[Any, Any]:
    spelled = canonical(document)
    quick = _core.read_launch(spelled, str)
    return quick and outcome(lambda: launches._decode(spelled, launches._layout)), outcome(
        lambda: launches._read(document, launches._layout)
    )


def lied(document: Document, path: NodePath, value: Any) -> Document:
    changed = copy.deepcopy(document)
    put(changed, path, copy.deepcopy(value))
    return changed


def lies(document: Document, paths: Iterable[NodePath], values: Iterable[Any] = JUNK) -> Iterator[tuple[Document, Any]]:
    """Put every value in the place of every node in turn, in one copy, for copies are most of the work."""
    changed = copy.deepcopy(document)
    for path in paths:
        for value in values:
            put(changed, path, copy.deepcopy(value))
            yield changed, (path, value)
        put(changed, path, copy.deepcopy(get(document, path)))
    assert changed == document, "a reader changed what it read"


def test_what_is_right_is_read_at_once() -> None:
    for table in TABLES:
        assert table_readers(table)[0] is not None


def test_types_of_params_are_those_of_the_signatures() -> None:
    for document in TABLES:
        table = quick_table(document)
        assert table is not None
        known = table.param_types()
        assert known == dataclasses.replace(table).param_types()  # type: ignore[type-var]
        assert [*known] == [*table.runtime_params()]


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_readers_of_a_table_agree(number: int) -> None:
    table = TABLES[number]
    for changed, lie in lies(table, nodes(table)):
        quick, exact = table_readers(changed)
        assert quick in (None, exact), lie


@pytest.mark.parametrize("number", range(len(TABLES)))
@settings(max_examples=150, deadline=None, database=None)
@given(data=st.data())
def test_readers_agree_on_nodes_in_each_others_place(number: int, data: st.DataObject) -> None:
    table = copy.deepcopy(TABLES[number])
    for _ in range(data.draw(st.integers(1, 3))):
        here, there = (data.draw(st.sampled_from(list(nodes(table)))) for _ in range(2))
        table = lied(table, here, get(table, there))
    quick, exact = table_readers(table)
    assert quick in (None, exact)


@pytest.mark.parametrize("lie", JUNK, ids=repr)
def test_readers_of_a_launch_agree(lie: Any) -> None:
    for table in TABLES:
        quick_read = quick_table(table)
        assert quick_read is not None
        launches = quick_read.launches
        assert isinstance(launches, table_codec.Launches)
        for launch in table["launches"]:
            assert launch_readers(launches, launch)[0] is not None
            for changed, place in lies(launch, nodes(launch), [lie]):
                quick, exact = launch_readers(launches, changed)
                assert quick in (None, exact), place


def test_an_odd_document_is_refused_with_the_name_of_a_rule() -> None:
    for junk in JUNK:
        with pytest.raises(BundleFormatError):
            read_table(junk, "k", COLUMN, 1, "")


def raw_readers(raw: bytes) -> tuple[Any, Any]:
    """Read the bytes of a table both ways."""

    def exact() -> KernelTable:
        header, columns = table_codec._split(raw, 1, "")
        return read_table(parse_json(header, ""), "k", columns, 1, "")

    return outcome(lambda: table_codec._whole_table(raw, "k", 1, 1, "")), outcome(exact)


@pytest.mark.parametrize("number", range(len(TABLES)))
@settings(max_examples=400, deadline=None, database=None)
@given(data=st.data())
def test_readers_agree_on_any_bytes(number: int, data: st.DataObject) -> None:
    header = bytearray(canonical(TABLES[number]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(header) - 1))
        piece = data.draw(
            st.sampled_from([b"", b"0", b"9", b"-", b'"', b"\\", b"]", b"}", b"[", b"{", b",", b" ", b"\xff", b"1e1"])
        )
        header[place : place + data.draw(st.integers(0, 2))] = piece
    quick, exact = raw_readers(sealed(bytes(header)))
    assert quick in (None, exact)


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_a_table_that_is_cut_short_is_read_by_neither(number: int) -> None:
    header = canonical(TABLES[number])
    for length in range(len(header)):
        assert raw_readers(sealed(header[:length])) == (None, None)


def test_lengths_that_lie_are_left_to_python() -> None:
    raw = sealed(canonical(TABLES[0]))
    for length in (0, 1, len(raw), 1 << 24, (1 << 24) + 1, (1 << 32) - 1):
        assert raw_readers(struct.pack("<I", length) + raw[4:]) == (None, None)
    for size in range(0, len(raw), 7):
        assert raw_readers(raw[:size]) == (None, None)


def test_columns_keep_their_rules() -> None:
    header = canonical(TABLES[SCALE])
    right = struct.pack("<16I", 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    for place in range(12):
        for number in (0, 1, 2, 8, (1 << 32) - 1):
            columns = right[: 4 * place] + struct.pack("<I", number) + right[4 * place + 4 :]
            raw = sealed(header, columns)
            quick = table_codec._whole_table(raw, "k", 2, 1, "")
            split_header, split_columns = table_codec._split(raw, 2, "")
            document = parse_json(split_header, "")
            exact = outcome(lambda: read_table(document, "k", split_columns, 1, ""))  # noqa: B023 - called at once
            assert outcome(lambda: quick) == exact  # noqa: B023 - likewise
