"""The format's page says what the code does, and is enough to write a reader from."""

from __future__ import annotations

import ast
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.inspect.verification import verify_bundle
from nojit.aot.manifest.expression_tree import MAX_HEIGHT
from nojit.aot.pack import index, sections
from nojit.aot.pack.sections import encode_table
from nojit.aot.variants.table_json import encode_launches
from nojit.runtime import _core
from nojit.runtime.base import strict_json
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.bundle import format as layout
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleFormatError
from nojit.runtime.expr.expression import MAX_LENGTH
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable
from nojit.runtime.target import ALONE, FAMILIES
from nojit.runtime.values import Value, encode_value

from tests.spec import tiny
from tests.spec.pages import ROOT, generated, rows
from tests.spec.reader import Table, read_bundle, value
from tests.support.bundles import Parts, kernel
from tests.support.hostile import golden_parts
from tests.support.jsonlies import edit_index, edit_table, put

PAGE = ROOT / "docs/bundle-format.md"
TEXT = PAGE.read_text(encoding="utf-8")
# the same without line breaks
FLAT = " ".join(TEXT.split())


def column(table: str, number: int = 0) -> list[str]:
    return [row[number] for row in rows(PAGE, table)]


def keys_of(document: Any, *path: str | int) -> list[str]:
    for step in path:
        document = document[step]
    return sorted(document)


GOLDEN = golden_parts()
INDEX: dict[str, Any] = {}
edit_index(GOLDEN, INDEX.update)
HEAD = GOLDEN.tables[1][2]
TABLE: dict[str, Any] = json.loads(HEAD[4 : 4 + struct.unpack_from("<I", HEAD)[0]])


# -- the page's tables against the code ------------------------------------------------------------------------------


def test_the_header_is_as_the_page_says() -> None:
    offset, spelled = 0, {"4": "I", "8": "Q"}
    form = "<"
    for place, length, field, _ in rows(PAGE, "header"):
        assert int(place) == offset
        offset += int(length)
        form += spelled[length] if field not in {"magic", "index_sha256"} else f"{length}s"
    assert form == index._HEADER.format
    assert offset == layout.HEADER_BYTES == struct.calcsize(form)
    magic, version, reserved, *_ = column("header", 3)
    assert bytes.fromhex(magic.split("`")[1]) == layout.MAGIC
    assert (int(version), int(reserved)) == (layout.FORMAT_VERSION, 0)


def test_a_group_record_is_as_the_page_says() -> None:
    sizes = [int(length) for length in column("group", 1)]
    assert [int(place) for place in column("group")] == [sum(sizes[:i]) for i in range(len(sizes))]
    assert sum(sizes) == sections._GROUP.size
    assert column("group", 2) == ["images", "stored_bytes", "raw_bytes", "sha256"]


@pytest.mark.parametrize(
    ("table", "written"),
    [
        ("index", keys_of(INDEX)),
        ("target", keys_of(INDEX, "target")),
        ("kernel", keys_of(INDEX, "kernels", 0)),
        ("attachment", keys_of(INDEX, "attachments", 0)),
        ("table", keys_of(TABLE)),
        ("param", keys_of(TABLE, "params", 0)),
        ("axis", keys_of(TABLE, "axes", 0)),
        ("derived", keys_of(TABLE, "derived", 0)),
        ("config", keys_of(TABLE, "configs", 0)),
        ("launch", keys_of(TABLE, "launches", 0)),
    ],
)
def test_the_page_names_exactly_the_fields_that_are_written(table: str, written: list[str]) -> None:
    assert sorted(column(table)) == written


def test_the_page_names_the_fields_of_tuning() -> None:
    block = TuningBlock.of((0,), (TuningRow((4,), (0,), (0,)),), ((0, "key0"),))
    table = TuningTable(TunedDevice("H", "sm_90", 132, 1 << 37), (block,))
    raw = encode_table(replace(tiny.TABLE, tuning=Tuning(("n",), "pow2", (table,))))
    written = json.loads(raw[4 : 4 + struct.unpack_from("<I", raw)[0]])
    assert sorted(column("tuning")) == keys_of(written, "tuning")
    assert sorted(column("tuning_table")) == keys_of(written, "tuning", "tables", 0)
    assert sorted(column("tuned_device")) == keys_of(written, "tuning", "tables", 0, "device")
    assert sorted(column("tuning_block")) == keys_of(written, "tuning", "tables", 0, "blocks", 0)


def test_the_page_names_the_fields_of_a_tensor_map() -> None:
    packed = kernel("packed", {"desc": "tensordesc<fp16[64,32]>"})
    raw = encode_table(packed.table)
    written = json.loads(raw[4 : 4 + struct.unpack_from("<I", raw)[0]])
    assert sorted(column("tensor_map")) == keys_of(written, "launches", 0, "tensor_maps", 0)


def test_the_page_names_the_fields_of_a_section() -> None:
    assert ", ".join(f'"{field}"' for field in keys_of(INDEX, "kernels", 0, "table")) in TEXT


def test_the_page_names_the_columns_in_order() -> None:
    assert tuple(column("columns")) == _core.COLUMNS
    assert "Rows ascend strictly by the first four columns." in FLAT


def test_the_limits_of_a_launch() -> None:
    said = [(field, kind.split(" to ")) for field, kind, _ in rows(PAGE, "launch") if " to " in kind]
    assert len(said) == 7
    facts: Any = encode_launches(tiny.TABLE.launches)[0][0]
    for field, bounds in said:
        least, most = (2 ** int(power[2:]) if (power := bound).startswith("2^") else int(bound) for bound in bounds)
        for number in (least, most):
            read = _core.read_launch(canonical_json(facts | {"layout": 0, field: number}), "", "")
            assert getattr(read, field) == number
        for number in (least - 1, 2 * most):
            with pytest.raises(BundleFormatError):
                _core.read_launch(canonical_json(facts | {"layout": 0, field: number}), "", "")


def test_the_limits_are_the_codes() -> None:
    limits = {
        "index, stored or raw": {_core.INDEX_BYTES_MAX},
        "a kernel's section, stored or raw": {_core.SECTION_BYTES_MAX},
        "a kernel's section, raw": {(_core.FREE_BYTES, _core.SECTION_RATIO_MAX)},
        "an attachment, stored or raw": {_core.ATTACHMENT_BYTES_MAX},
        "an attachment, raw": {(_core.FREE_BYTES, _core.ATTACHMENT_RATIO_MAX)},
        "attachments": {_core.ATTACHMENTS_MAX},
        "a group, stored or raw": {_core.GROUP_BYTES_MAX},
        "a kernel's groups, raw": {(_core.FREE_BYTES, _core.PAYLOAD_RATIO_MAX)},
        "an image": {_core.IMAGE_BYTES_MAX},
        "zstd window": {1 << _core.WINDOW_LOG_MAX},
        "JSON of one document": {_core.JSON_BYTES_MAX},
        "commas in one document": {_core.JSON_COMMAS_MAX},
        "digits of an integer": {_core.JSON_DIGITS_MAX},
        "kernels": {_core.KERNELS_MAX},
        "variants, images, groups of a kernel; entries of a pool": {_core.VARIANTS_MAX, _core.POOL_MAX},
        "a text": {_core.TEXT_CHARS_MAX},
        "leaves of a type, and tuples within": {_core.LEAVES_MAX},
        "characters of a kernel's expressions": {_core.EXPRESSION_CHARS_MAX},
        "rows times the characters of the longest signature": {_core.TYPED_WORK_MAX},
        "rows times the characters of derived expressions and `requires` that use a type axis": {_core.NAMING_WORK_MAX},
    }
    pairs = dict(rows(PAGE, "limits"))
    for start, number in (
        ("characters of derived expressions and `requires`, counted", _core.CHOOSING_WORK_MAX),
        ("distinct derived expressions and `requires` over arguments", _core.INTERESTS_MAX),
    ):
        (what,) = [what for what in pairs if what.startswith(start)]
        assert _number(pairs.pop(what)) == number
    assert _core.EXPRESSION_SHARE == 4
    most = f"{_core.EXPRESSION_CHARS_MAX:,} and a quarter of the file's bytes"
    assert pairs.pop("characters of all expressions, found by full verification") == most
    assert {what: {_number(most)} for what, most in pairs.items()} == limits


def _number(words: str) -> int | tuple[int, int]:
    if "stored length" in words:
        free, _, rest = words.partition(" and ")
        return int(free.removesuffix(" KiB")) << 10, int(rest.split(" ")[0])
    if power := re.match(r"2\^(\d+)", words):
        return 1 << int(power[1])
    number, _, unit = words.replace(",", "").partition(" ")
    return int(number) * (1 << 20 if unit.startswith("MiB") else 1)


def test_the_attributes_of_images_are_the_codes() -> None:
    told = [int(number, 16) for cell in column("cubin", 1) for number in re.findall("0x[0-9a-f]+", cell)]
    text = (ROOT / "runtime/engine/image/cubin.c").read_text(encoding="utf-8")
    read = {int(number, 16) for number in re.findall(r"^    [A-Z_]+ = (0x[0-9a-f]{2}),", text, re.MULTILINE)}
    assert sorted(told) == sorted(read)


def map_of(kind: str, block: tuple[int, ...], element: tuple[int, int], swizzle: int = 0, *, fp4: bool = False) -> str:
    """Say what is wrong with a tensor map, as a launch finds it; empty if nothing."""
    return _core.map_fault(kind, swizzle, *element, block, fp4) or ""


def test_a_tensor_map_says_what_its_type_says() -> None:
    u8 = (1, 0)
    assert "for `fp8` types `element_type` is that of `u8`" in TEXT
    for element in ("u8", *(name for name, _, _, is_scalar in _core.dtypes() if not is_scalar)):
        assert map_of(f"tensordesc<{element}[64]>", (64,), u8) == ""
    assert map_of("tensordesc<fp16[64]>", (64,), (2, 6)) == ""
    for other in (u8, (2, 9), (4, 6)):
        assert "elements" in map_of("tensordesc<fp16[64]>", (64,), other)
    assert "`block` has as many dimensions as the type's block, and divides it in each dimension" in FLAT
    for block, fits in (((64, 32), True), ((32, 16), True), ((48, 32), False), ((64,), False), ((128, 32), False)):
        assert (map_of("tensordesc<fp16[64,32]>", block, (2, 6)) == "") == fits
    (least,) = re.findall(r"The last dimension has a multiple of (\d+) bytes, unless `fp4_padded`", FLAT)
    assert map_of("tensordesc<u8[64]>", (int(least),), u8) == ""
    assert map_of("tensordesc<u8[64]>", (int(least) // 2,), u8) != ""
    (widths,) = re.findall(
        r"at most (\d+) bytes with a `swizzle` of 1, at most (\d+) with 2, and at most (\d+) with 3 or more", FLAT
    )
    for swizzle, width in enumerate(map(int, (*widths, *widths[-1:] * 3)), start=1):
        assert map_of(f"tensordesc<u8[{2 * width}]>", (width,), u8, swizzle) == ""
        assert map_of(f"tensordesc<u8[{2 * width}]>", (2 * width,), u8, swizzle) != ""
    told = r"elements have one byte, `element_type` is (\d+), `swizzle` is (\d+), and the type's last dimension counts twice"
    ((element_type, swizzle_of_fp4),) = re.findall(told, FLAT)
    padded = (1, int(element_type))
    assert map_of("tensordesc<u8[64]>", (128,), padded, int(swizzle_of_fp4), fp4=True) == ""
    assert map_of("tensordesc<u8[64]>", (128,), padded, 0, fp4=True) != ""


def test_both_scratch_pointers_stand_last_in_one_order(tmp_path: Path) -> None:
    (order,) = re.findall(
        r"The last two entries are (`\$\w+`) and (`\$\w+`), in this order, with any pointer type", FLAT
    )
    scratch = [source.strip("`") for source in order]
    for layout_of in TABLE["layouts"]:
        assert [word.partition(":")[0] for word in layout_of.split(" ")[-2:]] == scratch
    for words in (scratch[::-1], scratch[:1], scratch[1:], [], scratch * 2):

        def lie(table: Any, words: list[str] = words) -> None:
            table["layouts"] = [
                " ".join([*spelled.split(" ")[:-2], *(f"{source}:*i8" for source in words)])
                for spelled in table["layouts"]
            ]

        assert rule_of_first(tmp_path, edit_table(GOLDEN, 1, lie)) == "layout"


# each breaks one rule, in the order in which a reader comes upon them (chapter 10)
LIES_IN_ORDER: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    ("reserved", "header", lambda raw: raw[:12] + b"\1" + raw[13:]),
    ("name", "index", lambda raw: raw.replace(b'"name":"test"', b'"name":"te/t"')),
    ("hint", "table 0", lambda raw: raw.replace(b'["x_ptr",16]', b'["x_ptr",17]')),
    ("cubin-header", "group 0", lambda raw: b"\0" + raw[1:]),
]


@pytest.mark.parametrize("first", range(len(LIES_IN_ORDER)))
def test_the_first_broken_rule_is_named(tmp_path: Path, first: int) -> None:
    assert "The library names the first one in the order of [chapter 10](#10-reading-order)." in FLAT
    parts = Parts.of(kernel("scale", {"x_ptr": "*fp16"}, hints=[{"x_ptr": 16}]))
    for last in range(first, len(LIES_IN_ORDER)):
        lies = {part: change for _, part, change in (LIES_IN_ORDER[first], LIES_IN_ORDER[last])}

        def edit(part: str, raw: bytes, lies: dict[str, Callable[[bytes], bytes]] = lies) -> bytes:
            return lies[part](raw) if part in lies else raw

        assert rule_of_first(tmp_path, parts.seal(edit)) == LIES_IN_ORDER[first][0]


@pytest.mark.parametrize("hint", [0, 2, 8, 15, 17, 32, -1, 1 << 70])
def test_any_integer_that_is_no_hint_is_told_as_one(tmp_path: Path, hint: int) -> None:
    assert ["hint", "an integer other than 1 and 16 for a hint"] in rows(PAGE, "rules")

    def lie(table: Any) -> None:
        table["hint_sets"][-1] = [["x_ptr", hint]]

    assert rule_of_first(tmp_path, edit_table(GOLDEN, 1, lie)) == "hint"


def rule_of_first(tmp_path: Path, data: bytes) -> str:
    """Return the rule that full verification names."""
    path = tmp_path / "lie.nojit"
    path.write_bytes(data)
    with pytest.raises(BundleFormatError) as caught, BundleFile(path) as bundle:
        verify_bundle(bundle)
    return caught.value.rule


def test_the_limits_in_sentences() -> None:
    assert f"at most {_core.TEXT_CHARS_MAX:,} characters" in TEXT
    assert f"at most {MAX_LENGTH:,} characters and {MAX_HEIGHT} levels deep" in TEXT
    assert "at most 1,024 items" in TEXT
    assert "an integer of at most 64 bits" in TEXT
    assert "values, at most 8 deep" in TEXT
    (empty,) = re.findall(r"^    (28 b5 2f fd [0-9a-f ]{26})$", TEXT, re.MULTILINE)
    _core.check_frame(bytes.fromhex(empty), 0, "")
    for members in FAMILIES.values():
        *others, last = map(str, sorted(members))
        assert f"{', '.join(others)} and {last}" in TEXT
    for chip in ALONE:
        assert f"{chip // 10}.{chip % 10}" in TEXT.partition("The Tegra chips")[2].partition("\n\n")[0]


def raised_rules() -> Iterator[str]:
    """Find the rule of every refusal in the source."""
    for path in sorted((ROOT / "runtime/engine").rglob("*.c")):
        yield from re.findall(
            r'(?:nj_(?:note_)?break\([^,]+|slice\(\w+), "([a-z-]+)"', path.read_text(encoding="utf-8")
        )
    # rules that images of both vendors have
    yield from re.findall(
        r'"((?:cubin|hsaco)-[a-z]+)"', (ROOT / "runtime/engine/image/elf.c").read_text(encoding="utf-8")
    )
    # recordings have rules of their own
    folders = ("runtime", "runtime/bundle", "runtime/table")
    for path in sorted(path for folder in folders for path in (ROOT / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "refuse":
                yield from _words(node.args[0])
            if isinstance(node, ast.keyword) and node.arg == "rule":
                yield from _words(node.value)


def _words(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)


def test_the_page_names_every_rule_and_no_other() -> None:
    assert sorted(column("rules")) == sorted(set(raised_rules()))


# -- the example -----------------------------------------------------------------------------------------------------


EXAMPLE = tiny.parse(generated(PAGE, "tiny"))


def test_the_library_reads_the_example(tmp_path: Path) -> None:
    path = tmp_path / "tiny.nojit"
    path.write_bytes(EXAMPLE)
    with BundleFile(path) as bundle:
        bundle.verify()
        assert bundle.index.name == "tiny"
        assert bundle.table("scale") == tiny.TABLE
        assert tuple(bundle.images()) == tiny.IMAGES
        assert bundle.attachment(tiny.ATTACHMENT[0]) == tiny.ATTACHMENT[1]


def test_the_example_is_shown_as_it_is() -> None:
    assert generated(PAGE, "tiny") == tiny.render(EXAMPLE)


def test_a_reader_written_from_the_page_reads_the_example() -> None:
    bundle = read_bundle(EXAMPLE)
    assert bundle.images == tiny.IMAGES
    assert bundle.attachments == dict([tiny.ATTACHMENT])
    assert list(bundle.tables) == ["scale"]
    assert bundle.tables["scale"].columns["hints"] == (0, 1)


@pytest.mark.parametrize("parts", [GOLDEN, Parts.of()], ids=["golden", "empty"])
def test_a_reader_written_from_the_page_agrees_with_the_library(tmp_path: Path, parts: Parts) -> None:
    path = tmp_path / "some.nojit"
    path.write_bytes(parts.seal())
    second = read_bundle(path.read_bytes())
    with BundleFile(path) as bundle:
        bundle.verify()
        assert second.digest == bundle.digest
        assert second.index["target"] == asdict(bundle.index.target)
        assert tuple(second.tables) == bundle.kernels
        assert second.images == tuple(bundle.images())
        assert second.attachments == {name: bundle.attachment(name) for name in bundle.attachments}
        for name in bundle.kernels:
            _agree(second.tables[name], bundle.table(name))


def _agree(second: Table, table: KernelTable) -> None:
    assert second.columns == {name: tuple(entries) for name, entries in table.columns.items()}
    facts = second.facts
    assert [param["name"] for param in facts["params"]] == [param.name for param in table.params]
    assert [list(map(_plain, axis["values"])) for axis in facts["axes"]] == [
        list(map(repr, axis.values)) for axis in table.axes
    ]
    assert [tuple(case) for case in facts["cases"]] == [(m.signature, *m.values) for m in table.cases]
    assert [config["requires"] for config in facts["configs"]] == [config.requires for config in table.configs]
    layouts = [[(slot.source, slot.type) for slot in launch.layout] for launch in table.launches]
    written = [facts["layouts"][one["layout"]].split(" ") for one in facts["launches"]]
    assert [[tuple(slot.split(":")) for slot in words] for words in written] == layouts


def _plain(encoded: Any) -> str:
    decoded: Value = value(encoded)
    return repr(decoded)


@pytest.mark.parametrize("at", range(0, len(EXAMPLE), 7))
def test_both_readers_refuse_a_flipped_bit(tmp_path: Path, at: int) -> None:
    damaged = EXAMPLE[:at] + bytes([EXAMPLE[at] ^ 1 << at % 8]) + EXAMPLE[at + 1 :]
    with pytest.raises((ValueError, struct.error)):
        read_bundle(damaged)
    path = tmp_path / "damaged.nojit"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"damaged\.nojit"), BundleFile(path) as bundle:
        bundle.verify()


def test_both_readers_refuse_a_field_more() -> None:
    def add_field(index: dict[str, Any]) -> None:
        put(index, ("offset",), 64)

    with pytest.raises(ValueError, match="fields"):
        read_bundle(edit_index(GOLDEN, add_field))


# -- what the page says of JSON --------------------------------------------------------------------------------------


def test_the_deepest_valid_document_nests_as_the_page_says() -> None:
    deepest: Any = {"float": "0x1.0000000000000p+0"}
    for _ in range(8):
        deepest = {"tuple": [deepest]}
    # an object, its configs, one of them, its constexprs, one of those
    document = {"configs": [{"constexprs": [["BLOCK", deepest]]}]}
    assert f"nest at most {_depth(document)} levels deep" in FLAT


def _depth(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(_depth, children), default=0)


def test_characters_are_escaped_as_the_page_says() -> None:
    text = '\b\f\n\r\t\x00\x1f\x7f\x80é\U0001f600"\\/ ~'
    written = r'"\b\f\n\r\t\u0000\u001f\u007f\u0080\u00e9\ud83d\ude00\"\\/ ~"'
    assert strict_json.canonical_json(text) == written.encode()
    assert strict_json.parse_json(written.encode(), "") == text


def test_floats_are_spelled_as_the_page_says() -> None:
    for number, spelled in (
        (1.5, "0x1.8000000000000p+0"),
        (-0.0, "-0x0.0p+0"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ):
        assert encode_value(number) == {"float": spelled}
        assert f"`{spelled}`" in TEXT
