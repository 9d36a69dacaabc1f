"""A second reader of bundles, written from docs/bundle-format.md alone: it shares no code with the runtime.

It follows the page's reading order and checks what the page tells a reader to check first (hashes, frames, lengths,
canonical spelling, exact fields); the finer limits are the library's to test. It refuses with `ValueError`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zstandard

_EMPTY_FRAME = bytes.fromhex("28 b5 2f fd 24 00 01 00 00 99 e9 d8 51")
_MIB = 1 << 20
_INDEX_FIELDS = ["attachments", "inputs", "kernels", "min_driver", "name", "target", "toolchain", "version"]
_KERNEL_FIELDS = ["groups", "images", "name", "payload_bytes", "table", "variants"]
_TABLE_FIELDS = [
    "axes",
    "batch",
    "cases",
    "configs",
    "derived",
    "derived_values",
    "grid",
    "hint_sets",
    "launches",
    "layouts",
    "params",
    "programs",
    "signatures",
    "tuning",
]
_COLUMNS = ["case", "config", "hints", "derived", "launch", "image", "registers", "spill_bytes"]


@dataclass(frozen=True)
class Table:
    """One kernel's variants."""

    facts: dict[str, Any]
    """The JSON."""
    columns: dict[str, tuple[int, ...]]
    sizes: tuple[int, ...]
    """Lengths of its images."""
    groups: tuple[tuple[int, int, int, bytes], ...]
    """Their records: images, stored bytes, raw bytes, SHA-256."""


@dataclass(frozen=True)
class Bundle:
    """Everything that a file holds."""

    digest: str
    index: dict[str, Any]
    tables: dict[str, Table]
    attachments: dict[str, bytes]
    images: tuple[bytes, ...]
    """Of all kernels, in file order."""


def read_bundle(data: bytes) -> Bundle:
    """Read a whole bundle."""
    magic, version, reserved, stored, raw, digest = struct.unpack_from("<8sIIQQ32s", data)
    _expect(magic == bytes.fromhex("6e6f6a69740d0a1a"), "magic")
    _expect(version == 2 and reserved == 0, "version 2 and a reserved field of 0")
    _expect(max(stored, raw) <= 16 * _MIB, "an index of at most 16 MiB")
    place = _Place(data, 64)
    index = _json(place.take(stored, raw, digest), _INDEX_FIELDS)
    kernels = index["kernels"]
    _expect(all(sorted(kernel) == _KERNEL_FIELDS for kernel in kernels), "the fields of a kernel")
    tables = {kernel["name"]: _table(place.section(kernel["table"]), kernel) for kernel in kernels}
    _expect(list(tables) == sorted(tables) and len(tables) == len(kernels), "kernels sorted, each once")
    attachments = dict(_attachments(place, index["attachments"]))
    images = [image for kernel in kernels for image in _images(place, tables[kernel["name"]], kernel["payload_bytes"])]
    _expect(place.at == len(data), "nothing after the last group")
    return Bundle(
        hashlib.sha256(data[64 : 64 + struct.unpack_from("<Q", data, 16)[0]]).hexdigest(),
        index,
        tables,
        attachments,
        tuple(images),
    )


def _attachments(place: _Place, entries: list[dict[str, Any]]) -> Iterator[tuple[str, bytes]]:
    names = [entry["name"] for entry in entries]
    _expect(names == sorted(set(names)) and len(names) <= 64, "at most 64 attachments, sorted, each once")
    for entry in entries:
        _expect(sorted(entry) == ["name", "section"], "the fields of an attachment")
        section = entry["section"]
        _expect(section["raw_bytes"] <= 4096 + 64 * section["stored_bytes"], "at most 64 times what is stored")
        yield entry["name"], place.section(section, 64 * _MIB)


def _images(place: _Place, table: Table, payload_bytes: int) -> Iterator[bytes]:
    sizes = list(table.sizes)
    for count, stored, raw, digest in table.groups:
        members = sizes[:count]
        _expect(len(members) == count > 0 and sum(members) == raw <= 64 * _MIB, "a group of the images listed")
        content = place.take(stored, raw, digest)
        del sizes[:count]
        for size in members:
            yield content[:size]
            content = content[size:]
    _expect(not sizes, "groups that hold every image")
    _expect(sum(stored for _, stored, _, _ in table.groups) == payload_bytes, "groups of the stated length")


def value(encoded: Any) -> Any:
    """Decode a constexpr value; dtypes and functions stay tagged."""
    if not isinstance(encoded, dict):
        return encoded
    ((tag, body),) = encoded.items()
    if tag == "float":
        return float.fromhex(body)
    return tuple(map(value, body)) if tag == "tuple" else (tag, body)


class _Place:
    """Where reading stands: a part starts where the one before it ends."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def section(self, section: dict[str, Any], most: int = 5 * _MIB) -> bytes:
        _expect(section.keys() == {"raw_bytes", "sha256", "stored_bytes"}, "the fields of a section")
        _expect(max(section["raw_bytes"], section["stored_bytes"]) <= most, "a section within its limit")
        return self.take(section["stored_bytes"], section["raw_bytes"], bytes.fromhex(section["sha256"]))

    def take(self, stored: int, raw: int, digest: bytes) -> bytes:
        frame = self.data[self.at : self.at + stored]
        _expect(len(frame) == stored, "a part within the file")
        _expect(hashlib.sha256(frame).digest() == digest, "the pinned SHA-256")
        self.at += stored
        return _decompress(frame, raw)


def _decompress(frame: bytes, raw: int) -> bytes:
    if raw == 0:
        _expect(frame == _EMPTY_FRAME, "the one empty frame")
        return b""
    _expect(frame[:4] == b"\x28\xb5\x2f\xfd", "a zstd frame")
    facts = zstandard.get_frame_parameters(frame)
    _expect(facts.has_checksum and not facts.dict_id, "a checksum and no dictionary")
    _expect(facts.content_size == raw, "the pinned size")
    _expect(facts.window_size <= max(1 << 23, raw), "a window of at most 2^23 bytes")
    content = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    _expect(len(content) == raw, "the declared size")
    return content


def _json(raw: bytes, fields: list[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(raw.decode("ascii"))
    _expect(_canonical(document) == raw, "canonical JSON")
    _expect(sorted(document) == fields, "exactly the fields of the page")
    return document


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _table(raw: bytes, kernel: dict[str, Any]) -> Table:
    rows, images, groups = kernel["variants"], kernel["images"], kernel["groups"]
    (length,) = struct.unpack_from("<I", raw)
    start = 4 + -(-length // 4) * 4
    end = start + 4 * rows * len(_COLUMNS)
    _expect(len(raw) == end + 4 * images + 44 * groups, "columns of as many rows, lengths and records of groups")
    _expect(not raw[4 + length : start].strip(b" "), "padding of spaces")
    facts = _json(raw[4 : 4 + length], _TABLE_FIELDS)
    columns = {
        name: struct.unpack_from(f"<{rows}I", raw, start + 4 * rows * number) for number, name in enumerate(_COLUMNS)
    }
    keys = list(zip(*(columns[name] for name in _COLUMNS[:4]), strict=True))
    _expect(keys == sorted(set(keys)), "rows that ascend strictly")
    pools = ("cases", "configs", "hint_sets", "derived_values", "launches")
    limits = [*(len(facts[pool]) for pool in pools), images]
    for name, limit in zip(_COLUMNS, limits, strict=False):
        _expect(all(number < limit for number in columns[name]), f"column {name} within its pool")
    sizes = struct.unpack_from(f"<{images}I", raw, end)
    return Table(facts, columns, sizes, tuple(struct.iter_unpack("<III32s", raw[end + 4 * images :])))


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"expected {what}")
