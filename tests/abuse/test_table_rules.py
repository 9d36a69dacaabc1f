"""Every rule of a variant table has a bundle that breaks it and is right otherwise, hashes included."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime import _core
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError, BundleFormatError
from nojit.runtime.table.table import KernelTable

from tests.support.bundles import Parts, SyntheticKernel, kernel, make_bundle, target
from tests.support.hostile import golden_parts, read_everything
from tests.support.jsonlies import (
    Document,
    Lie,
    NodePath,
    edit_index,
    edit_raw,
    edit_table,
    get,
    nodes,
    put,
    split_table,
)

PARTS = golden_parts()
SCALE = 1  # tables are sorted by kernel: fill, scale
_, ROWS, RAW_TABLE = PARTS.tables[SCALE]
HEADER: Document = json.loads(split_table(RAW_TABLE)[0])
JUNK: tuple[Any, ...] = (None, True, 2, -1, 1 << 70, "\n", [], {}, [[]], {"x": 1}, {"float": "1.5"}, {"tuple": [1]})

MAP: Document = {
    "source": "x_ptr",
    "swizzle": 3,
    "element_bytes": 2,
    "element_type": 6,
    "block": [64, 64],
    "fp4_padded": False,
}


def outcome(tmp_path: Path, data: bytes) -> BundleError | None:
    path = tmp_path / "lie.nojit"
    path.write_bytes(data)
    error = None
    try:
        read_everything(path)
    except BundleError as caught:
        error = caught
    assert error is None or str(path) in str(error), "an error names the file"
    return error


def rule_of(error: BundleError | None) -> str:
    assert isinstance(error, BundleFormatError), f"expected a broken rule, got {error!r}"
    return error.rule


def at(*path: str | int) -> Callable[[object], Lie]:
    return lambda value: lambda header: put(header, path, value)


def add(*path: str | int) -> Callable[[object], Lie]:
    return lambda value: lambda header: get(header, path).append(value)


def deep_tuple(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"tuple": [value]}
    return value


default = at("params", 0, "default")
first_param = at("params", 0, "name")
requires = at("configs", 0, "requires")
hints = at("hint_sets", 1)


BLOCK: Document = {"cases": [0], "costs": [], "rows": [[[4], [0], [0]], [[8], [0], [7]]]}
DEVICE: Document = {"name": "H", "arch": "sm_90", "multiprocessors": 132, "memory_bytes": 1 << 37}
TUNED: Document = {"device": DEVICE, "blocks": [BLOCK]}


def tuning(*path: str | int) -> Callable[[object], Lie]:
    """Change one node of a tuning that keeps the rules."""

    def lie(header: Document, value: object) -> None:
        header["tuning"] = json.loads(json.dumps({"key": ["n"], "bucket": "pow2", "tables": [TUNED]}))
        header["programs"].insert(len(header["grid"]) + len(header["derived"]), "n")
        put(header, ("tuning", *path), value)

    return lambda value: lambda header: lie(header, value)


def key_of(text: str, program: str) -> Lie:
    """Give a tuning one key."""

    def lie(header: Document) -> None:
        tuning("key")([text])(header)
        header["programs"][len(header["grid"]) + len(header["derived"])] = program

    return lie


def block(*path: str | int) -> Callable[[object], Lie]:
    return tuning("tables", 0, "blocks", 0, *path)


def launch(field: str) -> Callable[[object], Lie]:
    return at("launches", 0, field)


def slots(change: Callable[[list[str]], object], number: int = 0) -> Lie:
    """Change the entries of a layout."""

    def lie(header: Document) -> None:
        words = header["layouts"][number].split(" ")
        change(words)
        header["layouts"][number] = " ".join(words)

    return lie


def slot(place: int, word: str) -> Lie:
    return slots(lambda words: words.__setitem__(place, word))


BROKEN: dict[str, tuple[str, Lie]] = {
    "an unknown field": ("fields", lambda header: header.update(extra=1)),
    "an unknown field of a param": ("fields", lambda header: header["params"][0].update(offset=0)),
    "an unknown field of a launch": ("fields", lambda header: header["launches"][0].update(clusters=1)),
    "no params": ("fields", lambda header: header.pop("params")),
    "a param twice": ("duplicate", first_param("n")),
    "a param named as a path": ("name", first_param("../x")),
    "a param named as a member": ("name", first_param("x.0")),
    "a param named as scratch": ("name", first_param("$global_scratch")),
    "another grid's program": ("program", at("programs", 0)("n 2 cdiv()")),
    "a program that is none": ("program", at("programs", 0)("n +")),
    "no program": ("program", at("programs", 0)("")),
    "a program more": ("size", add("programs")("n")),
    "a number for a program": ("type", at("programs", 0)(1)),
    "a program of 8193 characters": ("size", at("programs", 0)("n" * 8193)),
    "an axis twice": ("duplicate", lambda header: header["axes"].append(header["axes"][0])),
    "an option twice": ("duplicate", lambda header: header["configs"][0]["options"].append(["num_warps", 8])),
    "an option named as a param": ("duplicate", add("configs", 0, "options")(["BLOCK", 8])),
    "a constexpr twice in a config": ("duplicate", add("configs", 0, "constexprs")(["BLOCK", 1])),
    "a constexpr both derived and in a config": ("duplicate", add("configs", 0, "constexprs")(["EVEN", True])),
    "derived values twice": ("duplicate", lambda header: header["derived_values"].append(header["derived_values"][0])),
    "a param hinted twice": ("duplicate", hints([["x_ptr", 16], ["x_ptr", 1]])),
    "a batch of a stranger": ("param", at("batch")(["rows"])),
    "a batch of a constexpr": ("param", at("batch")(["BLOCK"])),
    "a batch of a param twice": ("duplicate", at("batch")(["n", "n"])),
    "a batch that is no list": ("type", at("batch")("n")),
    "a batch of a number": ("type", at("batch")([1])),
    "an axis of a stranger": ("param", add("axes")({"name": "MODE", "is_type": False, "values": [1]})),
    "a config of a stranger": ("param", add("configs", 0, "constexprs")(["MODE", 1])),
    "a config of a runtime param": ("param", add("configs", 0, "constexprs")(["n", 1])),
    "a derived value of a runtime param": ("param", at("derived", 0, "name")("n")),
    "a constexpr without value": ("param", at("configs", 0, "constexprs")([])),
    "another scratch": ("layout", at("layouts", 0)("$host_scratch:*i8")),
    "two defaults": ("size", default([1, 2])),
    "a default with no kind": ("type", default([{"complex": "1"}])),
    "a default of two kinds": ("type", default([{"float": "0x1p0", "dtype": "fp16"}])),
    "a decimal float": ("json-canonical", default([{"float": "1.5"}])),
    "a float spelled otherwise": ("json-canonical", default([{"float": "0x1p0"}])),
    "a float that is none": ("type", default([{"float": "one"}])),
    "a float past all": ("type", default([{"float": "0x1p999999"}])),
    "an integer of 65 bits": ("size", default([1 << 64])),
    "a tuple of 65": ("size", default([{"tuple": [1] * 65}])),
    "tuples 9 deep": ("json-depth", default([deep_tuple(9)])),
    "tuples 400 deep": ("json-depth", default([deep_tuple(400)])),
    "four grid dimensions": ("size", at("grid")(["1"] * 4)),
    "a grid that calls": ("expression", at("grid")(["__import__('os')"])),
    "a grid with a dot": ("expression", at("grid")(["n.real"])),
    "an empty grid expression": ("expression", at("grid")([""])),
    "a grid that never ends": ("expression", at("grid")(["(" * 4000])),
    "a grid past all length": ("expression", at("grid")(["1 + " * 2000 + "1"])),
    "requires that is no expression": ("expression", requires("x_ptr 16")),
    "requires of another type": ("type", requires(None)),
    "a derived value more": ("size", add("derived_values", 0)(1)),
    "a derived value less": ("size", at("derived_values", 0)([])),
    "a derived expression of nothing": ("expression", at("derived", 0, "expression")("")),
    "a type more in a signature": ("size", add("signatures", 0)("i32")),
    "a type less in a signature": ("size", lambda header: header["signatures"][0].pop()),
    "a type with escapes": ("text", at("signatures", 0, 0)("*fp16\x1b[0m")),
    "a type of no Triton": ("signature", at("signatures", 0, 1)("int")),
    "a type with spaces": ("signature", at("signatures", 0, 1)("(i32, fp32)")),
    "a pointer to nothing": ("signature", at("signatures", 0, 0)("*")),
    "a tuple without end": ("signature", at("signatures", 0, 1)("(i32")),
    "tuples of types 9 deep": ("signature", at("signatures", 0, 1)("(" * 9 + "i32" + ")" * 9)),
    "a descriptor of six dimensions": ("signature", at("signatures", 0, 1)("tensordesc<fp16[1,1,1,1,1,1]>")),
    "a descriptor of an empty block": ("signature", at("signatures", 0, 1)("tensordesc<fp16[0]>")),
    "a type of another type": ("type", at("signatures", 0, 0)(16)),
    "a case of nothing": ("size", at("cases", 0)([])),
    "a case with an axis more": ("pool", add("cases", 0)(0)),
    "a case with an axis less": ("pool", at("cases", 0)([0])),
    "a case of no signature": ("pool", at("cases", 0, 0)(2)),
    "a case of no value": ("pool", at("cases", 0, 1)(2)),
    "a case past all pools": ("pool", at("cases", 0, 1)(1 << 40)),
    "a case of a negative value": ("size", at("cases", 0, 1)(-1)),
    "a case of a bool": ("type", at("cases", 0, 1)(False)),
    "a hint of 8": ("hint", hints([["x_ptr", 8]])),
    "a hint of 17": ("hint", hints([["x_ptr", 17]])),
    "a hint of 2 to the 70": ("hint", hints([["x_ptr", 1 << 70]])),
    "a negative hint": ("hint", hints([["x_ptr", -16]])),
    "a hint of 0": ("hint", hints([["x_ptr", 0]])),
    "a hint of true": ("type", hints([["x_ptr", True]])),
    "a hint of a deep array": ("type", hints([["x_ptr", [[[[1]]]]]])),
    "a hint of a stranger": ("param", hints([["y_ptr", 16]])),
    "a hint of a leaf that is none": ("param", hints([["x_ptr.0", 16]])),
    "a hint of a constexpr": ("param", hints([["BLOCK", 16]])),
    "a hint without value": ("size", hints([["x_ptr"]])),
    "an option without value": ("size", at("configs", 0, "options", 0)(["num_warps"])),
    "an option named as a path": ("name", at("configs", 0, "options", 0, 0)("a/b")),
    "65 options": ("size", at("configs", 0, "options")([[f"o{i}", 1] for i in range(65)])),
    "a layout of a stranger": ("layout", slot(0, "y_ptr:*fp16")),
    "a layout of a constexpr": ("layout", slot(0, "BLOCK:i32")),
    "a layout of a leaf that is none": ("layout", slot(0, "x_ptr.0:*fp16")),
    "a layout of another type of the same size": ("layout", slot(0, "x_ptr:i64")),
    "a layout of a part of what is no descriptor": ("layout", slot(0, "x_ptr.base:*fp16")),
    "a layout in another order": ("layout", slots(lambda words: words.reverse())),
    "a layout without a param": ("layout", slots(lambda words: words.pop(0))),
    "a layout with a param twice": ("layout", slots(lambda words: words.insert(0, words[0]))),
    "a layout of triples": ("layout", slot(0, "x_ptr:*fp16:0")),
    "a layout of words": ("layout", slot(0, "x_ptr")),
    "a layout with two spaces": ("layout", slots(lambda words: words.insert(1, ""))),
    "a layout with escapes": ("layout", slot(0, "x_ptr\x1b:*fp16")),
    "a layout of 1025": ("layout", slots(lambda words: words.extend(["n:i32"] * 1025))),
    "a layout that is an array": ("type", at("layouts", 0)([["x_ptr", "*fp16"]])),
    "a layout past all length": ("size", at("layouts", 0)("x" * (1 << 18) + ":i32")),
    "a launch of no layout": ("pool", launch("layout")(99)),
    "a launch of a bool layout": ("type", launch("layout")(False)),
    "no warps": ("size", launch("num_warps")(0)),
    "a block of more threads than 1,024": ("size", launch("num_warps")(33)),
    "no CTAs": ("size", launch("num_ctas")(0)),
    "17 CTAs": ("size", launch("num_ctas")(17)),
    "a mebibyte and one of shared memory": ("size", launch("shared_bytes")((1 << 20) + 1)),
    "negative shared memory": ("size", launch("shared_bytes")(-1)),
    "a gibibyte and one of scratch": ("size", launch("global_scratch_bytes")((1 << 30) + 1)),
    "scratch aligned to 0": ("size", launch("global_scratch_align")(0)),
    "scratch aligned to 24": ("size", launch("global_scratch_align")(24)),
    "profile scratch aligned to 0": ("size", launch("profile_scratch_align")(0)),
    "cooperative by number": ("type", launch("cooperative")(1)),
    "a symbol with a zero byte": ("text", launch("symbol")("scale\0")),
    "tensor maps of no array": ("type", launch("tensor_maps")(None)),
    "a tensor map of nothing": ("layout", add("launches", 0, "tensor_maps")(MAP)),
    "a tensor map without block": ("fields", add("launches", 0, "tensor_maps")({"source": "x_ptr"})),
    "a tensor map of six dimensions": ("size", add("launches", 0, "tensor_maps")({**MAP, "block": [1] * 6})),
    "a tensor map of no dimension": ("size", add("launches", 0, "tensor_maps")({**MAP, "block": []})),
    "a tensor map of 257": ("size", add("launches", 0, "tensor_maps")({**MAP, "block": [257]})),
    "a tensor map of an empty block": ("size", add("launches", 0, "tensor_maps")({**MAP, "block": [0]})),
    "a tensor map of 16 bytes": ("size", add("launches", 0, "tensor_maps")({**MAP, "element_bytes": 16})),
    "a tensor map of swizzle 32": ("size", add("launches", 0, "tensor_maps")({**MAP, "swizzle": 32})),
    "a tensor map padded by number": ("type", add("launches", 0, "tensor_maps")({**MAP, "fp4_padded": 0})),
    "a tuning key of nine": ("size", tuning("key")(["n"] * 9)),
    "a tuning key of none": ("size", tuning("key")([])),
    "a tuning key that is no expression": ("expression", tuning("key")(["../n"])),
    "a tuning key by number": ("type", tuning("key")([1])),
    "a tuning key of a constexpr": ("param", key_of("n * BLOCK", "n BLOCK *")),
    "a tuning key of another type": ("expression", tuning("key")(["*fp128"])),
    "a tuning key of another name": ("param", key_of("fp128", "fp128")),
    "a tuning key of another program": ("program", key_of("n", "n 1 +")),
    "tuning without tables": ("fields", at("tuning")({"key": ["n"], "bucket": "pow2"})),
    "another bucket": ("bucket", tuning("bucket")("pow3")),
    "a bucket of no text": ("bucket", tuning("bucket")([])),
    "65 tuning tables": ("size", tuning("tables")([TUNED] * 65)),
    "a tuned device twice": ("duplicate", tuning("tables")([TUNED, TUNED])),
    "a tuned device without name": ("fields", tuning("tables", 0, "device")({"arch": "sm_90"})),
    "a tuned device on two lines": ("text", tuning("tables", 0, "device", "name")("a\nb")),
    "a tuned device of no arch": ("name", tuning("tables", 0, "device", "arch")("")),
    "a tuned device of no multiprocessors": ("size", tuning("tables", 0, "device", "multiprocessors")(0)),
    "a tuned device of too much memory": ("size", tuning("tables", 0, "device", "memory_bytes")(1 << 63)),
    "tuning blocks of no array": ("type", tuning("tables", 0, "blocks")(None)),
    "a tuning block of no case": ("size", block("cases")([])),
    "a tuning block of another case": ("pool", block("cases")([1 << 14])),
    "a tuning block of a case twice": ("order", block("cases")([0, 0])),
    "a case in two tuning blocks": ("duplicate", tuning("tables", 0, "blocks")([BLOCK, BLOCK])),
    "a tuning block without rows": ("size", block("rows")([])),
    "a tuning row of two": ("size", block("rows", 0)([[1], [0]])),
    "a tuning row of four": ("size", block("rows", 0)([[1], [0], [0], [0]])),
    "a tuning row by number": ("type", block("rows", 0)(1)),
    "a tuning row of another key": ("size", block("rows", 0, 0)([1, 2])),
    "a negative key value": ("size", block("rows", 0, 0)([-1])),
    "a key value of 64 bits": ("size", block("rows", 0, 0)([1 << 63])),
    "a key value that is true": ("type", block("rows", 0, 0)([True])),
    "tuning rows out of order": ("order", block("rows", 0, 0)([9])),
    "a tuning row twice": ("order", block("rows", 0, 0)([8])),
    "a tuning row of no config": ("size", block("rows", 0, 1)([])),
    "a tuning row of another config": ("pool", block("rows", 0, 1)([1 << 14])),
    "a tuning row of a config twice": ("duplicate", block("rows", 0, 1)([0, 0])),
    "a tuning row of a distance for no config": ("size", block("rows", 0, 2)([0, 1])),
    "a tuning row of no distance": ("size", block("rows", 0, 2)([])),
    "a tuning row of a negative distance": ("size", block("rows", 0, 2)([-1])),
    "a tuning row of a hundred octaves": ("size", block("rows", 0, 2)([100_001])),
    "a tuning row of a distance in words": ("type", block("rows", 0, 2)(["0"])),
    "tuning costs of no array": ("type", block("costs")({})),
    "a tuning cost of a config alone": ("size", block("costs")([[0]])),
    "a tuning cost of another config": ("pool", block("costs")([[1 << 14, "key0"]])),
    "a tuning cost of a config twice": ("duplicate", block("costs")([[0, "key0"], [0, "key0 2 *"]])),
    "a tuning cost by number": ("type", block("costs")([[0, 1]])),
    "a tuning cost of no program": ("program", block("costs")([[0, "key0 +"]])),
    "a tuning cost of an empty program": ("program", block("costs")([[0, ""]])),
    "a tuning cost of another key": ("program", block("costs")([[0, "key1"]])),
    "a tuning cost that is a truth": ("program", block("costs")([[0, "key0 3 >"]])),
    "64 tuning costs": ("size", block("costs")([[0, "key0"]] * 64)),
    "a tuning cost of an argument": ("program", block("costs")([[0, "n"]])),
    "an axis of 65": ("size", at("axes")([{"name": f"a{i}", "is_type": False, "values": [1]} for i in range(65)])),
    "an axis that is a type by number": ("type", at("axes", 0, "is_type")(1)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_named(tmp_path: Path, case: str) -> None:
    rule, lie = BROKEN[case]
    assert rule_of(outcome(tmp_path, edit_table(PARTS, SCALE, lie))) == rule


def test_a_tuning_that_keeps_the_rules_is_read(tmp_path: Path) -> None:
    assert outcome(tmp_path, edit_table(PARTS, SCALE, tuning("bucket")("exact"))) is None
    assert outcome(tmp_path, edit_table(PARTS, SCALE, block("costs")([[0, "key0 multiprocessors cdiv()"]]))) is None


@pytest.mark.parametrize("field", HEADER)
def test_every_field_is_needed(tmp_path: Path, field: str) -> None:
    assert rule_of(outcome(tmp_path, edit_table(PARTS, SCALE, lambda header: header.pop(field)))) == "fields"


@pytest.mark.parametrize("path", list(nodes(HEADER)), ids=lambda path: "/".join(map(str, path)))
def test_junk_is_refused_by_an_error_of_ours(tmp_path: Path, path: NodePath) -> None:
    # constexpr values and the like take some of it; whatever they take must then be readable
    refused = [
        outcome(tmp_path, edit_table(PARTS, SCALE, lambda header, junk=junk: put(header, path, junk))) is not None
        for junk in JUNK
    ]
    assert sum(refused) >= 4


@pytest.mark.parametrize("path", list(nodes(HEADER)), ids=lambda path: "/".join(map(str, path)))
def test_a_node_that_is_missing_is_refused_or_empty(tmp_path: Path, path: NodePath) -> None:
    def lie(header: Document) -> None:
        del get(header, path[:-1])[path[-1]]

    error = outcome(tmp_path, edit_table(PARTS, SCALE, lie))
    assert isinstance(path[-1], int) or error is not None


WHOLE_TUNING: Document = {"key": ["n"], "bucket": "pow2", "tables": [TUNED]}


@pytest.mark.parametrize("path", list(nodes(WHOLE_TUNING)), ids=lambda path: "/".join(map(str, path)))
def test_junk_in_a_tuning_is_refused_by_an_error_of_ours(tmp_path: Path, path: NodePath) -> None:
    refused = [outcome(tmp_path, edit_table(PARTS, SCALE, tuning(*path)(junk))) is not None for junk in JUNK]
    assert sum(refused) >= 8


@pytest.mark.parametrize("path", list(nodes(WHOLE_TUNING)), ids=lambda path: "/".join(map(str, path)))
def test_a_node_of_a_tuning_that_is_missing_is_refused_or_empty(tmp_path: Path, path: NodePath) -> None:
    def lie(header: Document) -> None:
        tuning(*path)(None)(header)
        del get(header, ("tuning", *path[:-1]))[path[-1]]

    error = outcome(tmp_path, edit_table(PARTS, SCALE, lie))
    assert isinstance(path[-1], int) or error is not None


def edit_column(column: str, row: int, value: int) -> bytes:
    def change(raw: bytes) -> bytes:
        place = len(raw) - 4 * ROWS * (len(_core.COLUMNS) - _core.COLUMNS.index(column)) + 4 * row
        return raw[:place] + struct.pack("<I", value) + raw[place + 4 :]

    return edit_raw(PARTS, f"table {SCALE}", change)


POOLED = ("case", "config", "hints", "derived", "launch", "image")


@pytest.mark.parametrize("column", POOLED)
@pytest.mark.parametrize("value", [1000, 2**31, 2**32 - 1])
def test_a_column_points_into_its_pool(tmp_path: Path, column: str, value: int) -> None:
    assert rule_of(outcome(tmp_path, edit_column(column, ROWS - 1, value))) == "pool"


@pytest.mark.parametrize("column", ["registers", "spill_bytes"])
def test_a_count_may_be_anything(tmp_path: Path, column: str) -> None:
    assert outcome(tmp_path, edit_column(column, 0, 2**32 - 1)) is None


@pytest.mark.parametrize("column", POOLED[:4])
def test_rows_are_sorted_and_unique(tmp_path: Path, column: str) -> None:
    rows = array("I", split_table(RAW_TABLE)[1])
    start = _core.COLUMNS.index(column) * ROWS
    row = next(i for i in range(1, ROWS) if rows[start + i] != rows[start + i - 1])
    assert rule_of(outcome(tmp_path, edit_column(column, row, rows[start + row] ^ 1))) == "order"


def test_every_image_is_used(tmp_path: Path) -> None:
    assert rule_of(outcome(tmp_path, edit_column("image", 0, 1))) == "images"


LAID_OUT: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "nothing": ("truncated", lambda raw: b""),
    "three bytes": ("truncated", lambda raw: raw[:3]),
    "a length past the end": ("size", lambda raw: b"\xff\xff\xff\xff" + raw[4:]),
    "a length of 0": ("size", lambda raw: bytes(4) + raw[4:]),
    "a byte more": ("size", lambda raw: raw + b"\0"),
    "a byte less": ("size", lambda raw: raw[:-1]),
    "a row more": ("size", lambda raw: raw + bytes(32)),
    "zeros as padding": ("padding", lambda raw: _padded_with(raw, b"\0")),
    "a space in the JSON": ("json-canonical", lambda raw: _padded_with(raw, b" ", inside=True)),
}


def _padded_with(raw: bytes, filler: bytes, *, inside: bool = False) -> bytes:
    header, columns = split_table(raw)
    # some length that needs padding
    header = header.replace(b'"symbol":"scale"', b'"symbol":"scal"', 1) if len(header) % 4 == 0 else header
    padding = filler * (-len(header) % 4)
    length = len(header) + (len(padding) if inside else 0)
    return struct.pack("<I", length) + header + padding + columns


@pytest.mark.parametrize("case", LAID_OUT)
def test_a_table_is_laid_out_one_way(tmp_path: Path, case: str) -> None:
    rule, change = LAID_OUT[case]
    assert rule_of(outcome(tmp_path, edit_raw(PARTS, f"table {SCALE}", change))) == rule


def test_rows_and_index_agree(tmp_path: Path) -> None:
    for step in (-1, 1):
        data = edit_index(PARTS, lambda index, step=step: put(index, ("kernels", 1, "variants"), ROWS + step))
        assert rule_of(outcome(tmp_path, data)) == "size"


PACKED = kernel(
    "packed",
    {"pair": "(*fp16,(i32,none),i32)", "desc": "tensordesc<fp16[64,32]>", "flag": "i1"},
    hints=[{"pair.0": 16, "pair.2": 1, "pair.1.0": 16}],
)
PACKED_80 = kernel("packed", {"pair": "(i64)", "desc": "tensordesc<bf16[8]>"}, on=target("sm_80"))


@pytest.mark.parametrize(("packed", "on"), [(PACKED, "sm_90a"), (PACKED_80, "sm_80")])
def test_tuples_and_descriptors_are_read_back(tmp_path: Path, packed: SyntheticKernel, on: str) -> None:
    path = make_bundle(tmp_path / "packed.nojit", packed, on=target(on))
    assert read_everything(path) == len(packed.table)
    with BundleFile(path) as bundle:
        assert bundle.table("packed") == packed.table


def put_slot(old: str, new: str) -> Lie:
    return slots(lambda words: words.__setitem__(words.index(old), new), PACKED_LAYOUT)


def without(prefix: str) -> Lie:
    def keep(words: list[str]) -> None:
        words[:] = [word for word in words if not word.startswith(prefix)]

    return slots(keep, PACKED_LAYOUT)


# that of the row without hints, which is the longer one
PACKED_LAYOUT = 1
PACKED_LIES: dict[str, tuple[str, Lie]] = {
    "a descriptor without parts": ("layout", without("desc.")),
    "a descriptor's dimension too many": ("layout", put_slot("desc.shape.1:i32", "desc.shape.2:i32")),
    "a descriptor's part of no name": ("layout", put_slot("desc.shape.1:i32", "desc.size.1:i32")),
    "a descriptor's part of another type": ("layout", put_slot("desc.stride.1:i64", "desc.stride.1:i32")),
    "a map of another descriptor": ("layout", at("launches", 0, "tensor_maps", 0, "source")("pair.0")),
    "a map of another rank": ("layout", at("launches", 0, "tensor_maps", 0, "block")([64])),
    "a map of longer elements": ("layout", at("launches", 0, "tensor_maps", 0, "element_bytes")(4)),
    "a map of another element": ("layout", at("launches", 0, "tensor_maps", 0, "element_type")(9)),
    "a map of a longer block": ("layout", at("launches", 0, "tensor_maps", 0, "block")([128, 32])),
    "a map of a wider block": ("layout", at("launches", 0, "tensor_maps", 0, "block")([64, 64])),
    "a map of a block that does not go into the other": (
        "layout",
        at("launches", 0, "tensor_maps", 0, "block")([48, 32]),
    ),
    "a map of a block of 8 bytes": ("layout", at("launches", 0, "tensor_maps", 0, "block")([64, 4])),
    "a map of a block wider than its swizzle": ("layout", at("launches", 0, "tensor_maps", 0, "swizzle")(1)),
    "a map padded for 4 bits": ("layout", at("launches", 0, "tensor_maps", 0, "fp4_padded")(value=True)),
    "a map that nothing describes": ("layout", at("launches", 0, "tensor_maps")([])),
    "a member of a tuple left out": ("layout", without("pair.1.0")),
    "a member that is none": ("layout", put_slot("pair.1.0:i32", "pair.1.1:i32")),
    "a member of another type": ("layout", put_slot("pair.2:i32", "pair.2:fp32")),
    "a hint of a member that is none": ("param", at("hint_sets", 1, 0, 0)("pair.7")),
    "a hint of a whole tuple": ("param", at("hint_sets", 1, 0, 0)("pair")),
}


@pytest.mark.parametrize("case", PACKED_LIES)
def test_a_row_packs_what_its_signature_says(tmp_path: Path, case: str) -> None:
    rule, lie = PACKED_LIES[case]
    assert rule_of(outcome(tmp_path, edit_table(Parts.of(PACKED), 0, lie))) == rule


@pytest.mark.parametrize("places", [".", ".x", ".-1", ".01", ".1.", "..1", ".1000"])
def test_a_hint_of_no_place_is_refused_before_a_call_looks_for_it(tmp_path: Path, places: str) -> None:
    path = tmp_path / "no-place.nojit"
    path.write_bytes(edit_table(PARTS, SCALE, hints([[f"x_ptr{places}", 16]])))
    with BundleFile(path) as bundle, pytest.raises(BundleFormatError) as refused:
        bundle.table("scale")
    assert refused.value.rule == "param"


LATE: dict[str, Lie] = {
    "a launch of no layout": launch("layout")(99),
    "no warps": launch("num_warps")(0),
    "a symbol with a zero byte": launch("symbol")("scale\0"),
    "a layout of words": slot(0, "x_ptr"),
    "a layout of another type of the same size": slot(0, "x_ptr:i64"),
}


@pytest.mark.parametrize("case", LATE)
def test_a_launch_is_checked_when_it_is_used(tmp_path: Path, case: str) -> None:
    path = tmp_path / "late.nojit"
    path.write_bytes(edit_table(PARTS, SCALE, LATE[case]))
    with BundleFile(path) as bundle:
        table = bundle.table("scale")
        refused = [row for row in range(len(table)) if not usable(table, row, path)]
    # those that share the launch or its layout, and no others
    assert 0 < len(refused) < ROWS


def usable(table: KernelTable, row: int, path: Path) -> bool:
    try:
        table.check_row(row, str(path))
    except BundleFormatError as error:
        # an error that does not name the file counts as none
        return str(path) not in str(error)
    return True


def test_a_launch_is_decoded_once(tmp_path: Path) -> None:
    path = tmp_path / "golden.nojit"
    path.write_bytes(PARTS.seal())
    with BundleFile(path) as bundle:
        launches = bundle.table("scale").launches
        assert launches[0] is launches[0]
        assert launches[0].layout is launches[:1][0].layout
        assert launches == tuple(launches)
        assert len(set(map(id, launches))) == len(launches)
