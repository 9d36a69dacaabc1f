"""Take bundles apart into plain data, change any of it, and lay it out again with right lengths, counts and hashes.

A `Draft` says everything that a bundle's bytes do, and checks nothing: the index and each table are dicts, a column is a list,
an image is bytes. What is not told otherwise is worked out when the draft is sealed, so that a lie is the only thing that is wrong.
"""

from __future__ import annotations

import functools
import hashlib
import json
import marshal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import zstandard
from nojit.runtime.expr.operations import ExpressionError
from nojit.runtime.expr.postfix import postfix
from nojit.runtime.target import parse_image_arch
from nojit.runtime.types.names import is_compiled_in, is_descriptor, leaves

from tests.support.bundles import SCRATCH, compress, map_of, size_of, slots_of
from tests.support.cubins import CubinSpec, build_cubin
from tests.support.jsonlies import Document, canonical

__all__ = [
    "COLUMNS",
    "Change",
    "Draft",
    "KernelDraft",
    "clone",
    "expressions_of",
    "mend_programs",
    "remake",
    "take_apart",
]

Change = Callable[[bytes], bytes]
COLUMNS = ("case", "config", "hints", "derived", "launch", "image", "registers", "spill_bytes")
U32 = 0xFFFFFFFF
_HEADER = struct.Struct("<8sIIQQ32s")
_GROUP = struct.Struct("<III32s")


def clone(document: Any) -> Any:
    """Copy what JSON can say, many times as fast as `copy.deepcopy`."""
    return marshal.loads(marshal.dumps(document))


@dataclass
class KernelDraft:
    """One kernel: its table as JSON and columns, its images, and how many of them each group holds."""

    name: str
    header: Document
    columns: list[list[int]]
    images: list[bytes]
    groups: list[int]
    entry: Document = field(default_factory=dict)
    """What the index is to say of it otherwise."""
    spell: Callable[[Document], bytes] = canonical
    """Writes the JSON of its table."""

    def copied(self) -> KernelDraft:
        """Return a copy that shares no list or dict."""
        columns = [[*column] for column in self.columns]
        return KernelDraft(self.name, clone(self.header), columns, [*self.images], [*self.groups], clone(self.entry))


@dataclass
class Draft:
    """A bundle as plain data."""

    index: Document
    """All of it but the kernels."""
    kernels: list[KernelDraft]
    raw: dict[str, Change] = field(default_factory=dict)
    """By the name of a part, what changes its raw bytes: ``header``, ``index``; of kernel 0 ``table 0``, ``images 0``, ``groups 0`` and
    ``payload 0.0`` for its first group; ``attachment 0``."""
    frames: dict[str, Change] = field(default_factory=dict)
    """By the name of a frame, what makes it of raw bytes: ``index``, ``section 0``, ``attachment 0``, ``payload 0.0``."""
    frame: Change | None = None
    """Compresses every other frame; None does it as a build might."""
    attachments: list[tuple[str, bytes]] = field(default_factory=list)
    """Name and bytes of each attachment, in the order of the file."""
    statement: Change | None = None
    """What changes the statement that is signed, if one is to lie beside the bundle."""

    def copied(self) -> Draft:
        """Return a copy that shares no list or dict."""
        kernels = [kernel.copied() for kernel in self.kernels]
        return Draft(clone(self.index), kernels, attachments=[*self.attachments])

    def seal(self) -> bytes:
        """Lay the bundle out."""
        entries, sections, payload = [], [], []
        for number, kernel in enumerate(self.kernels):
            records, frames = self._groups(number, kernel)
            images = self._raw(f"images {number}", struct.pack(f"<{len(kernel.images)}I", *map(len, kernel.images)))
            groups = self._raw(f"groups {number}", b"".join(records))
            raw = self._raw(f"table {number}", _table(kernel)) + images + groups
            section = self._frame(f"section {number}", raw)
            sections.append(section)
            payload += frames
            entries.append(
                {
                    "name": kernel.name,
                    "variants": len(kernel.columns[0]),
                    "images": len(images) // 4,
                    "groups": len(groups) // _GROUP.size,
                    "payload_bytes": sum(map(len, frames)),
                    "table": _section(raw, section),
                }
                | kernel.entry
            )
        attached = []
        for number, (name, content) in enumerate(self.attachments):
            raw = self._raw(f"attachment {number}", content)
            sections.append(self._frame(f"attachment {number}", raw))
            attached.append({"name": name, "section": _section(raw, sections[-1])})
        raw_index = self._raw("index", canonical({"kernels": entries, "attachments": attached} | self.index))
        index = self._frame("index", raw_index)
        digest = hashlib.sha256(index).digest()
        header = _HEADER.pack(b"nojit\r\n\x1a", 2, 0, len(index), len(raw_index), digest)
        return b"".join([self._raw("header", header), index, *sections, *payload])

    def _groups(self, number: int, kernel: KernelDraft) -> tuple[list[bytes], list[bytes]]:
        records, frames, start = [], [], 0
        for place, count in enumerate(kernel.groups):
            part = f"payload {number}.{place}"
            raw = self._raw(part, b"".join(kernel.images[start : start + count]))
            frame = self._frame(part, raw)
            records.append(_GROUP.pack(count & U32, len(frame), len(raw), hashlib.sha256(frame).digest()))
            frames.append(frame)
            start += count
        return records, frames

    def _raw(self, part: str, raw: bytes) -> bytes:
        return self.raw[part](raw) if part in self.raw else raw

    def _frame(self, part: str, raw: bytes) -> bytes:
        return self.frames.get(part, self.frame or _compressed)(raw)

    def parts(self) -> list[str]:
        """Name every part that has raw bytes."""
        names = ["header", "index"]
        for number, kernel in enumerate(self.kernels):
            names += [f"table {number}", f"images {number}", f"groups {number}"]
            names += [f"payload {number}.{place}" for place in range(len(kernel.groups))]
        return [*names, *(f"attachment {number}" for number in range(len(self.attachments)))]


@functools.lru_cache(maxsize=64)
def _compressed(raw: bytes) -> bytes:
    return compress(raw, 1)


def _section(raw: bytes, stored: bytes) -> Document:
    return {"raw_bytes": len(raw), "sha256": hashlib.sha256(stored).hexdigest(), "stored_bytes": len(stored)}


def _table(kernel: KernelDraft) -> bytes:
    spelled = kernel.spell(kernel.header)
    numbers = [number & U32 for column in kernel.columns for number in column]
    padding = b" " * (-len(spelled) % 4)
    return struct.pack("<I", len(spelled)) + spelled + padding + struct.pack(f"<{len(numbers)}I", *numbers)


def take_apart(data: bytes, rows: int | None = None) -> Draft:
    """Read a right bundle into a draft, by zstd, JSON and `struct` alone.

    Args:
        data: the whole file.
        rows: how many rows of each kernel to keep, evenly spread, with the images that they use; all if None.
    """
    _, _, _, stored, _, _ = _HEADER.unpack_from(data)
    index = json.loads(_open(data[_HEADER.size : _HEADER.size + stored]))
    at = _HEADER.size + stored
    entries, attached = index.pop("kernels"), index.pop("attachments")
    start = at + sum(entry["table"]["stored_bytes"] for entry in entries)
    attachments, payload = _attachments(attached, data, start)
    kernels = []
    for entry in entries:
        end = at + entry["table"]["stored_bytes"]
        groups = data[payload : payload + entry["payload_bytes"]]
        kernel = _kernel(entry, _open(data[at:end]), groups)
        kernels.append(kernel if rows is None else _thinned(kernel, rows))
        at, payload = end, payload + entry["payload_bytes"]
    return Draft(index, kernels, attachments=attachments)


def _attachments(entries: list[Document], data: bytes, at: int) -> tuple[list[tuple[str, bytes]], int]:
    """Read the attachments, which start at `at`; return them and where they end."""
    found = []
    for entry in entries:
        end = at + entry["section"]["stored_bytes"]
        found.append((entry["name"], _open(data[at:end])))
        at = end
    return found, at


def _open(frame: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(frame)


def _kernel(entry: Document, raw: bytes, payload: bytes) -> KernelDraft:
    (length,) = struct.unpack_from("<I", raw)
    at = 4 + length + -length % 4
    rows = entry["variants"]
    numbers = struct.unpack_from(f"<{8 * rows}I", raw, at)
    columns = [[*numbers[place * rows : (place + 1) * rows]] for place in range(8)]
    at += 32 * rows
    lengths = struct.unpack_from(f"<{entry['images']}I", raw, at)
    at += 4 * len(lengths)
    images: list[bytes] = []
    groups = []
    for count, stored, _, _ in _GROUP.iter_unpack(raw[at:]):
        whole, payload = _open(payload[:stored]), payload[stored:]
        start = 0
        for size in lengths[len(images) : len(images) + count]:
            images.append(whole[start : start + size])
            start += size
        groups.append(count)
    return KernelDraft(entry["name"], json.loads(raw[4 : 4 + length]), columns, images, groups)


def _thinned(kernel: KernelDraft, rows: int) -> KernelDraft:
    kept = sorted({row * len(kernel.columns[0]) // rows for row in range(rows)})
    columns = [[column[row] for row in kept] for column in kernel.columns]
    used = sorted(set(columns[5]))
    columns[5] = [used.index(image) for image in columns[5]]
    images = [kernel.images[image] for image in used]
    return KernelDraft(kernel.name, kernel.header, columns, images, [len(images)])


def expressions_of(header: Document) -> list[str]:
    """List every expression of a table, in the order of its programs."""
    tuning = header["tuning"]
    return [
        *header["grid"],
        *[derived["expression"] for derived in header["derived"]],
        *(tuning["key"] if tuning else []),
        *[config["requires"] for config in header["configs"] if config["requires"]],
    ]


def mend_programs(header: Document) -> None:
    """Put each expression's own program beside it; of what is none, the program of no words."""
    header["programs"] = [_program(text) for text in expressions_of(header)]


def _program(text: str) -> str:
    try:
        return postfix(text)
    except ExpressionError:
        return ""


def remake(kernel: KernelDraft, image_arch: str, static_shared_bytes: Sequence[int] = (0,)) -> None:
    """Make layouts, tensor maps, images and programs anew, as a build would for what the signatures, hints and launches say.

    Args:
        kernel: what it says of types, hints and launches holds from now on for its images, too.
        image_arch: what the images are for.
        static_shared_bytes: of each image in turn.
    """
    header, arch = kernel.header, parse_image_arch(image_arch)
    params = [param["name"] for param in header["params"] if not param["constexpr"]]
    layouts: dict[str, int] = {}
    launches: dict[str, int] = {}
    images: dict[bytes, int] = {}
    written = []
    for row, (case, hint_set, number) in enumerate(
        zip(kernel.columns[0], kernel.columns[2], kernel.columns[4], strict=True)
    ):
        types = header["signatures"][header["cases"][case][0]]
        ones = {leaf for leaf, hint in header["hint_sets"][hint_set] if hint == 1}
        kept = [
            (path, kind)
            for param, whole in zip(params, types, strict=True)
            for path, kind in leaves(whole, param)
            if not is_compiled_in(kind) and path not in ones
        ]
        tma = arch.number >= 90
        slots = [*(slot for path, kind in kept for slot in slots_of(path, kind, tma=tma)), *SCRATCH]
        layout = layouts.setdefault(" ".join(f"{slot.source}:{slot.type}" for slot in slots), len(layouts))
        maps = [_map_json(path, kind) for path, kind in kept if tma and is_descriptor(kind)]
        launch = header["launches"][number] | {"layout": layout, "tensor_maps": maps}
        spec = CubinSpec(
            launch["symbol"],
            tuple(size_of(slot.type) for slot in slots),
            launch["num_warps"],
            launch["num_ctas"],
            static_shared_bytes[row % len(static_shared_bytes)],
            code=b"row %d" % (row % 4),
        )
        suffix = "a" if arch.suffix == "a" else ""
        image = build_cubin(spec, sm=arch.number, suffix=suffix, abi=7 if arch.number < 90 else 8)
        place = launches.setdefault(canonical(launch).decode(), len(launches))
        written.append((place, images.setdefault(image, len(images))))
    kernel.columns[4] = [place for place, _ in written]
    kernel.columns[5] = [image for _, image in written]
    header["layouts"] = [*layouts]
    header["launches"] = [json.loads(launch) for launch in launches]
    kernel.images = [*images]
    whole, rest = divmod(len(images), 4)
    kernel.groups = [4] * whole + [rest] * bool(rest)
    mend_programs(header)


def _map_json(path: str, kind: str) -> Document:
    made = map_of(path, kind)
    return {
        "source": made.source,
        "swizzle": made.swizzle,
        "element_bytes": made.element_bytes,
        "element_type": made.element_type,
        "block": [*made.block],
        "fp4_padded": made.fp4_padded,
    }
