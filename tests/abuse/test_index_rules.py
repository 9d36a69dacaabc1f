"""Every rule of the index has a bundle that breaks it and is right otherwise, hashes included."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError, BundleFormatError

from tests.support.hostile import golden_parts, read_everything
from tests.support.jsonlies import Lie, NodePath, edit_index, edit_raw, get, nodes, put

PARTS = golden_parts()
INDEX: dict[str, Any] = {}
edit_index(PARTS, INDEX.update)

JUNK: tuple[Any, ...] = (None, True, -1, 1 << 70, "\n", [], {}, [[]], {"x": 1})


def refuse(tmp_path: Path, data: bytes) -> BundleError:
    path = tmp_path / "lie.nojit"
    path.write_bytes(data)
    with pytest.raises(BundleError) as caught:
        read_everything(path)
    assert str(path) in str(caught.value), "an error names the file"
    return caught.value


def rule_of(error: BundleError) -> str:
    assert isinstance(error, BundleFormatError), f"expected a broken rule, got {error!r}"
    return error.rule


def swap(document: dict[str, Any]) -> None:
    document["kernels"].reverse()


def add(index: dict[str, Any], field: str, number: int) -> None:
    index["kernels"][1][field] += number


def move_payload(index: dict[str, Any], length: int) -> None:
    index["kernels"][0]["payload_bytes"] -= length
    index["kernels"][1]["payload_bytes"] += length


def attached(index: dict[str, Any], number: int) -> dict[str, Any]:
    attachment: dict[str, Any] = index["attachments"][number]
    return attachment


def stored_bytes(index: dict[str, Any], number: int) -> int:
    stored: int = attached(index, number)["section"]["stored_bytes"]
    return stored


def spoken(name: str) -> Lie:
    return lambda index: put(index, ("kernels", 0, "name"), name)


BROKEN: dict[str, tuple[str, Lie]] = {
    "an unknown field": ("fields", lambda index: index.update(extra=1)),
    "an unknown field of a kernel": ("fields", lambda index: index["kernels"][0].update(extra=1)),
    "an unknown field of a section": ("fields", lambda index: index["kernels"][0]["table"].update(offset=64)),
    "no name": ("fields", lambda index: index.pop("name")),
    "no digest": ("fields", lambda index: index["kernels"][0]["table"].pop("sha256")),
    "kernels in another order": ("order", swap),
    "a kernel twice": ("order", lambda index: put(index, ("kernels", 1, "name"), index["kernels"][0]["name"])),
    "a path up": ("name", spoken("../x")),
    "an absolute path": ("name", spoken("/etc/passwd")),
    "a path down": ("name", spoken("a/b")),
    "a path of Windows": ("name", spoken("a\\b")),
    "a hidden file": ("name", spoken(".x")),
    "no characters": ("name", spoken("")),
    "a zero byte": ("name", spoken("a\0b")),
    "a line break": ("name", spoken("a\n")),
    "a digit first": ("name", spoken("1a")),
    "a name of 201 characters": ("name", spoken("a" * 201)),
    "letters that look alike": ("name", spoken("sc\u0430le")),
    "a bundle named as a path": ("name", lambda index: index.update(name="../../x")),
    "a version with escapes": ("text", lambda index: index.update(version="1.0\x1b[2J")),
    "a version of 8193 characters": ("size", lambda index: index.update(version="1" * 8193)),
    "a lone surrogate": ("json", lambda index: index.update(version="\ud800")),
    "tools in another order": ("order", lambda index: index.update(toolchain=[["b", "1"], ["a", "1"]])),
    "a tool twice": ("order", lambda index: index.update(toolchain=[["a", "1"], ["a", "2"]])),
    "a tool without version": ("size", lambda index: index.update(toolchain=[["a"]])),
    "a tool with three facts": ("size", lambda index: index.update(toolchain=[["a", "1", "2"]])),
    "65 tools": ("size", lambda index: index.update(toolchain=[[f"t{i:02}", "1"] for i in range(65)])),
    "an arch without number": ("target", lambda index: index["target"].update(arch="sm_x")),
    "an arch in capitals": ("target", lambda index: index["target"].update(arch="SM_90")),
    "an image arch of no kind": ("target", lambda index: index["target"].update(image_arch="sm_90b")),
    "an arch that says more": ("target", lambda index: index["target"].update(arch="sm_90a")),
    "images of another chip": ("target", lambda index: index["target"].update(arch="sm_80")),
    "images of a chip of more digits": ("target", lambda index: index["target"].update(image_arch="sm_900")),
    "images of a chip of fewer digits": ("target", lambda index: index["target"].update(arch="sm_900")),
    "another backend": ("target", lambda index: index["target"].update(backend="hip")),
    "a backend in capitals": ("target", lambda index: index["target"].update(backend="CUDA")),
    "a warp of 16": ("target", lambda index: index["target"].update(warp_size=16)),
    "a warp of 65": ("size", lambda index: index["target"].update(warp_size=65)),
    "a driver version past all": ("size", lambda index: index.update(min_driver=1_000_001)),
    "inputs in capitals": ("digest", lambda index: index.update(inputs="A" * 64)),
    "inputs too short": ("digest", lambda index: index.update(inputs="0" * 63)),
    "a digest with a line break": ("digest", lambda index: index.update(inputs="0" * 64 + "\n")),
    "32,769 variants": ("size", lambda index: index["kernels"][0].update(variants=32_769)),
    "32,769 images": ("size", lambda index: index["kernels"][0].update(images=32_769)),
    "32,769 groups": ("size", lambda index: index["kernels"][0].update(groups=32_769)),
    "32,768 images": ("truncated", lambda index: index["kernels"][0].update(images=32_768)),
    "32,768 groups": ("truncated", lambda index: index["kernels"][0].update(groups=32_768)),
    "an image more": ("size", lambda index: add(index, "images", 1)),
    "a group less": ("size", lambda index: add(index, "groups", -1)),
    "a group as eleven images": ("size", lambda index: (add(index, "images", 11), add(index, "groups", -1))),
    "eleven images as a group": ("pool", lambda index: (add(index, "images", -11), add(index, "groups", 1))),
    "bytes of a kernel's payload as the next's": ("groups", lambda index: move_payload(index, 1)),
    "bytes of the next kernel's payload": ("groups", lambda index: move_payload(index, -1)),
    "all payload as one kernel's": ("groups", lambda index: move_payload(index, index["kernels"][0]["payload_bytes"])),
    "a section past its limit": ("size", lambda index: index["kernels"][0]["table"].update(raw_bytes=(5 << 20) + 1)),
    "a stored section past its limit": (
        "size",
        lambda index: index["kernels"][0]["table"].update(stored_bytes=(64 << 20) + 1),
    ),
    "payload past its limit": ("size", lambda index: index["kernels"][0].update(payload_bytes=(1 << 40) + 1)),
    "attachments in another order": ("order", lambda index: index["attachments"].reverse()),
    "an attachment twice": ("order", lambda index: attached(index, 1).update(name=attached(index, 0)["name"])),
    "an attachment with a path as its name": ("name", lambda index: attached(index, 0).update(name="../notes.txt")),
    "an attachment that is a hidden file": ("name", lambda index: attached(index, 0).update(name=".notes")),
    "an attachment without section": ("fields", lambda index: attached(index, 0).pop("section")),
    "an attachment with a kind": ("fields", lambda index: attached(index, 0).update(kind="text")),
    "an attachment past its limit": (
        "size",
        lambda index: attached(index, 0)["section"].update(raw_bytes=(64 << 20) + 1, stored_bytes=2 << 20),
    ),
    "a stored attachment past its limit": (
        "size",
        lambda index: attached(index, 0)["section"].update(stored_bytes=(64 << 20) + 1),
    ),
    "an attachment that expands too far": (
        "size",
        lambda index: attached(index, 0)["section"].update(raw_bytes=4097 + 64 * stored_bytes(index, 0)),
    ),
    "an attachment that is said to expand as far as it may": (
        "zstd-size",
        lambda index: attached(index, 0)["section"].update(raw_bytes=4096 + 64 * stored_bytes(index, 0)),
    ),
    "65 attachments": (
        "size",
        lambda index: index.update(attachments=[{**attached(index, 0), "name": f"a{i:02}"} for i in range(65)]),
    ),
    "a table without variants": ("size", lambda index: index["kernels"][0].update(variants=0)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_named(tmp_path: Path, case: str) -> None:
    rule, lie = BROKEN[case]
    assert rule_of(refuse(tmp_path, edit_index(PARTS, lie))) == rule


PLACES: dict[str, tuple[str, Lie]] = {
    "$.attachments[1].section.sha256": (
        "expected 64 lower-case hex digits, got '0'",
        lambda index: put(index, ("attachments", 1, "section", "sha256"), "0"),
    ),
    "$.kernels[1].name": ("expected a name of letters", lambda index: put(index, ("kernels", 1, "name"), "a/b")),
    "$.kernels[1].table.sha256": (
        "expected 64 lower-case hex digits, got '0'",
        lambda index: put(index, ("kernels", 1, "table", "sha256"), "0"),
    ),
    "$.target.warp_size": (
        "expected an integer from 0 to 64, got -1",
        lambda index: index["target"].update(warp_size=-1),
    ),
    "$.toolchain[0][1]": ("expected a string, got null", lambda index: index.update(toolchain=[["a", None]])),
    "$.kernels": ("expected an array, got an object", lambda index: index.update(kernels={})),
    "$.version": ("expected at most 8192 characters, got 8193", lambda index: index.update(version="\u00e9" * 8193)),
    "$": (
        "got unknown field '\\\\u00e9'; no field 'name'",
        lambda index: (index.pop("name"), put(index, ("\u00e9",), 1)),
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_error_names_its_place(tmp_path: Path, place: str) -> None:
    message, lie = PLACES[place]
    error = refuse(tmp_path, edit_index(PARTS, lie))
    assert message in str(error)
    assert error.where.endswith(f" index {place}")


@pytest.mark.parametrize("version", ["\u00e9 \U0001f600 \u4e2d", 'a "quoted" \\ word', "~" * 8192, "\u00e9" * 8192])
def test_a_version_of_any_characters_is_read(tmp_path: Path, version: str) -> None:
    path = tmp_path / "some.nojit"
    path.write_bytes(edit_index(PARTS, lambda index: index.update(version=version, toolchain=[[version, version]])))
    with BundleFile(path) as bundle:
        assert bundle.index.version == version
        assert bundle.index.toolchain == ((version, version),)


@pytest.mark.parametrize("field", INDEX)
def test_every_field_is_needed(tmp_path: Path, field: str) -> None:
    assert rule_of(refuse(tmp_path, edit_index(PARTS, lambda index: index.pop(field)))) == "fields"


# what an index may say freely
FREE: dict[NodePath, tuple[object, ...]] = {
    ("kernels",): ([],),  # another length of the file
    ("toolchain",): ([],),
}


@pytest.mark.parametrize("path", list(nodes(INDEX)), ids=lambda path: "/".join(map(str, path)))
def test_no_node_takes_junk(tmp_path: Path, path: NodePath) -> None:
    for junk in JUNK:
        if any(repr(junk) == repr(free) for free in FREE.get(path, ())):
            continue
        data = edit_index(PARTS, lambda index, junk=junk: put(index, path, junk))
        refuse(tmp_path, data)


NUMBERS = [path for path in nodes(INDEX) if type(get(INDEX, path)) is int]


@pytest.mark.parametrize("path", NUMBERS, ids=lambda path: "/".join(map(str, path)))
def test_no_number_may_differ(tmp_path: Path, path: NodePath) -> None:
    if path == ("min_driver",):
        pytest.skip("nothing in the file contradicts it")
    for step in (-1, 1, 4, 44, 1 << 20):
        refuse(tmp_path, edit_index(PARTS, lambda index, step=step: put(index, path, get(index, path) + step)))


@pytest.mark.parametrize("path", [p for p in nodes(INDEX) if p[-1] == "sha256"], ids=lambda p: "/".join(map(str, p)))
def test_no_digest_may_differ(tmp_path: Path, path: NodePath) -> None:
    refuse(tmp_path, edit_index(PARTS, lambda index: put(index, path, "0" * 64)))


RAW: dict[str, tuple[str, Any]] = {
    "a float": ("json", lambda raw: raw.replace(b'"min_driver":12000', b'"min_driver":12000.0')),
    "an exponent": ("json", lambda raw: raw.replace(b'"min_driver":12000', b'"min_driver":12e3')),
    "NaN": ("json", lambda raw: raw.replace(b'"min_driver":12000', b'"min_driver":NaN')),
    "Infinity": ("json", lambda raw: raw.replace(b'"min_driver":12000', b'"min_driver":-Infinity')),
    "minus zero": ("json-canonical", lambda raw: raw.replace(b'"min_driver":12000', b'"min_driver":-0')),
    "5000 digits": ("size", lambda raw: raw.replace(b":12000", b":" + b"1" * 5000)),
    "a key twice": ("json-canonical", lambda raw: raw.replace(b'{"groups"', b'{"groups":9,"groups"', 1)),
    "a space": ("json-canonical", lambda raw: raw.replace(b'"min_driver":', b'"min_driver": ')),
    "a line break after it": ("json-canonical", lambda raw: raw + b"\n"),
    "something after it": ("json", lambda raw: raw + b"{}"),
    "bad UTF-8": ("json", lambda raw: raw.replace(b'"version":"1.0"', b'"version":"1\xff0"')),
    "good UTF-8": ("json", lambda raw: raw.replace(b'"version":"1.0"', '"version":"1é0"'.encode())),
    "a byte order mark": ("json", lambda raw: b"\xef\xbb\xbf" + raw),
    "an escape that needs none": ("json-canonical", lambda raw: raw.replace(b'"1.0"', b'"\\u0031.0"')),
    "an escape in capitals": ("json-canonical", lambda raw: raw.replace(b'"1.0"', b'"\\u00E9"')),
    "UTF-16": ("json", lambda raw: raw.decode().encode("utf-16")),
    "a comment": ("json", lambda raw: b"/**/" + raw),
    "keys in another order": (
        "json-canonical",
        lambda raw: json.dumps(dict(reversed(json.loads(raw).items())), separators=(",", ":")).encode(),
    ),
    "nothing": ("json", lambda raw: b""),
    "null": ("type", lambda raw: b"null"),
    "an array": ("type", lambda raw: b"[]"),
    "a string": ("type", lambda raw: b'"index"'),
    "deep arrays": ("json-depth", lambda raw: b"[" * 100_000 + b"]" * 100_000),
    "deep objects": ("json-depth", lambda raw: b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "not so deep arrays": ("json-depth", lambda raw: b"[" * 33 + b"]" * 33),
    "a million arrays": ("size", lambda raw: b"[" + b"[]," * ((1 << 20) + 1) + b"[]]"),
    "cut off": ("json", lambda raw: raw[:-1]),
}


@pytest.mark.parametrize("case", RAW)
def test_only_canonical_json_is_read(tmp_path: Path, case: str) -> None:
    rule, change = RAW[case]
    data = edit_raw(PARTS, "index", change)
    assert rule_of(refuse(tmp_path, data)) == rule


HEADER: dict[str, tuple[str, Any]] = {
    "another magic": ("magic", lambda raw: b"NOJIT" + raw[5:]),
    "a magic whose line ends were changed": ("magic", lambda raw: raw.replace(b"\r\n", b"\n") + b"\0"),
    "format 0": ("version", lambda raw: raw[:8] + bytes(4) + raw[12:]),
    "the format before": ("version", lambda raw: raw[:8] + b"\1\0\0\0" + raw[12:]),
    "the next format": ("version", lambda raw: raw[:8] + b"\3\0\0\0" + raw[12:]),
    "a reserved bit": ("reserved", lambda raw: raw[:12] + b"\1\0\0\0" + raw[16:]),
    "an index past the limit": ("size", lambda raw: raw[:16] + (1 << 40).to_bytes(8, "little") + raw[24:]),
    "a raw index past the limit": ("size", lambda raw: raw[:24] + (1 << 40).to_bytes(8, "little") + raw[32:]),
    "an index past the end": ("truncated", lambda raw: raw[:16] + (2 << 20).to_bytes(8, "little") + raw[24:]),
    "half a header": ("truncated", lambda raw: raw[:32]),
}


@pytest.mark.parametrize("case", HEADER)
def test_a_wrong_header_is_named(tmp_path: Path, case: str) -> None:
    rule, change = HEADER[case]
    data = PARTS.seal(edit=lambda name, raw: change(raw) if name == "header" else raw)
    if case == "half a header":
        data = data[:32]
    assert rule_of(refuse(tmp_path, data)) == rule


def _group(number: int, field: int, change: Any) -> Any:
    def apply(raw: bytes) -> bytes:
        at = 44 * number + 4 * field
        value = change(int.from_bytes(raw[at : at + 4], "little")) % (1 << 32)
        return raw[:at] + value.to_bytes(4, "little") + raw[at + 4 :]

    return apply


def _plus_one(raw: bytes) -> bytes:
    return (int.from_bytes(raw[:4], "little") + 1).to_bytes(4, "little") + raw[4:]


SECTIONS: dict[str, tuple[str, str, Any]] = {
    "an empty image": ("images 1", "size", lambda raw: bytes(4) + raw[4:]),
    "an image past the limit": ("images 1", "size", lambda raw: raw[:-4] + ((64 << 20) + 1).to_bytes(4, "little")),
    "an image of another length": ("images 1", "groups", _plus_one),
    "lengths that end in the middle": ("images 1", "size", lambda raw: raw[:-1]),
    "no images": ("images 1", "pool", lambda raw: b""),
    "an image more than groups hold": ("images 1", "groups", lambda raw: raw + raw[:4]),
    "a group of no images": ("groups 1", "groups", _group(0, 0, lambda _: 0)),
    "a group of more images": ("groups 1", "groups", _group(0, 0, lambda n: n + 1)),
    "a group of 2^32-1 images": ("groups 1", "groups", _group(0, 0, lambda _: -1)),
    "a group stored longer": ("groups 1", "groups", _group(1, 1, lambda n: n + 1)),
    "a group stored past the limit": ("groups 1", "groups", _group(1, 1, lambda _: -1)),
    "a group with more in it": ("groups 1", "groups", _group(1, 2, lambda n: n + 1)),
    "one group less": ("groups 1", "groups", lambda raw: raw[:-44]),
    "no groups": ("groups 1", "groups", lambda raw: b""),
    "a group that ends in the middle": ("groups 1", "size", lambda raw: raw[:-1]),
    "raw lengths swapped": ("groups 1", "groups", lambda raw: raw[:8] + raw[52:56] + raw[12:52] + raw[8:12] + raw[56:]),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_a_wrong_section_is_named(tmp_path: Path, case: str) -> None:
    part, rule, change = SECTIONS[case]
    assert rule_of(refuse(tmp_path, edit_raw(PARTS, part, change))) == rule


def test_a_digest_of_an_attachment_is_checked(tmp_path: Path) -> None:
    error = refuse(tmp_path, edit_index(PARTS, lambda index: attached(index, 1)["section"].update(sha256="0" * 64)))
    assert "SHA-256" in str(error)
    assert error.where.endswith(" attachment origins.json")


def test_bytes_of_one_attachment_are_not_those_of_the_next(tmp_path: Path) -> None:
    def move(index: dict[str, Any]) -> None:
        attached(index, 0)["section"]["stored_bytes"] += 1
        attached(index, 1)["section"]["stored_bytes"] -= 1

    error = refuse(tmp_path, edit_index(PARTS, move))
    assert "SHA-256" in str(error)
    assert error.where.endswith(" attachment notes.txt")


def test_a_digest_of_a_group_is_checked(tmp_path: Path) -> None:
    error = refuse(tmp_path, edit_raw(PARTS, "groups 1", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])))
    assert "SHA-256" in str(error)
    assert "kernel scale group 1" in str(error)


def test_groups_in_another_order_are_told_by_their_digests(tmp_path: Path) -> None:
    error = refuse(tmp_path, edit_raw(PARTS, "groups 1", lambda raw: raw[44:] + raw[:44]))
    assert "SHA-256" in str(error)


def place_together(index: dict[str, Any]) -> None:
    """Have the index list images and groups once for all kernels, as it did before it was released."""
    section = dict(index["kernels"][0]["table"])
    totals = {
        field: sum(entry.pop(field) for entry in index["kernels"]) for field in ("images", "groups", "payload_bytes")
    }
    index.update(image_count=totals["images"], images=section, group_count=totals["groups"], groups=section)
    index["payload_bytes"] = totals["payload_bytes"]


def test_a_bundle_that_places_all_images_together_is_refused(tmp_path: Path) -> None:
    error = refuse(tmp_path, edit_index(PARTS, place_together))
    assert rule_of(error) == "fields"
    for field in ("group_count", "groups", "image_count", "images", "payload_bytes"):
        assert f"unknown field '{field}'" in str(error)


def test_opening_reads_no_table_and_no_image(tmp_path: Path) -> None:
    path = tmp_path / "lazy.nojit"
    data = PARTS.seal()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with BundleFile(path) as bundle:
        assert bundle.kernels == ("fill", "scale")
        assert len(bundle.table("scale")) == 16
        assert bundle.image("scale", 0)
        with pytest.raises(BundleError):
            bundle.verify()


def test_an_index_of_empty_arrays_costs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "wide.nojit"
    path.write_bytes(edit_raw(PARTS, "index", lambda raw: b"[" + b"[]," * 5_000_000 + b"[]]"))
    assert path.stat().st_size < 20_000
    tracemalloc.start()
    with pytest.raises(BundleFormatError):
        read_everything(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
