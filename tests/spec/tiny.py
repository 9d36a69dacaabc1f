"""The example of docs/bundle-format.md: a bundle small enough for a page, and how the page shows it."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator

import zstandard
from nojit.aot.pack.sections import encode_table
from nojit.runtime import _core
from nojit.runtime.bundle.format import (
    GLOBAL_SCRATCH,
    HEADER_BYTES,
    PROFILE_SCRATCH,
    BundleIndex,
    TargetInfo,
    decode_index,
)
from nojit.runtime.table.parts import Axis, Case, Config, Launch, Param, Slot
from nojit.runtime.table.table import KernelTable

from tests.support.bundles import Parts

__all__ = ["ATTACHMENT", "IMAGES", "TABLE", "parse", "render", "tiny_bundle"]

IMAGES = (b"image without hints", b"image with hints")
ATTACHMENT = ("notes.txt", b"built for a page")
_TYPES = (("x_ptr", "*fp32"), ("n", "i32"))
_SCRATCH = ((GLOBAL_SCRATCH, "*i8"), (PROFILE_SCRATCH, "*i8"))
TABLE = KernelTable(
    kernel="scale",
    params=(Param("x_ptr", constexpr=False), Param("n", constexpr=False), Param("BLOCK", constexpr=True)),
    grid=("cdiv(n, BLOCK)",),
    tuning=None,
    axes=(Axis("dtype", is_type=True, values=("fp32",)),),
    derived=(),
    signatures=(tuple(kind for _, kind in _TYPES),),
    cases=(Case(0, (0,)),),
    configs=(Config((("BLOCK", 256),), (("num_warps", 4),), ""),),
    hint_sets=((), (("n", 16), ("x_ptr", 16))),
    derived_values=((),),
    launches=(
        Launch(
            "scale", tuple(Slot(*pair) for pair in _TYPES + _SCRATCH), 4, 1, 0, 0, 1, 0, 1, cooperative=False, pdl=False
        ),
    ),
    programs=("n BLOCK cdiv()",),
    columns={
        name: array("I", column)
        for name, column in zip(
            _core.COLUMNS, ([0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 1], [16, 14], [0, 0]), strict=True
        )
    },
)


def tiny_bundle() -> bytes:
    """Lay out the example."""
    index = BundleIndex(
        name="tiny",
        version="1.0",
        target=TargetInfo("cuda", "sm_90", "sm_90a", 32),
        toolchain=(("triton", "3.9.0"), ("zstandard", zstandard.__version__)),
        min_driver=13000,
        inputs="0" * 64,
        kernels=(),
    )
    return Parts(index, (("scale", 2, encode_table(TABLE)),), (IMAGES,), ((2,),), (ATTACHMENT,)).seal()


def render(data: bytes) -> str:
    """Show a bundle as the page does: each part as it is stored, and what comes out of it."""
    (index_bytes,) = struct.unpack_from("<16xQ", data)
    index = decode_index(_open(data, HEADER_BYTES, index_bytes), "tiny")
    (kernel,) = index.kernels
    (attachment,) = index.attachments
    names = [
        "header",
        "index",
        f"section of `{kernel.name}`",
        f"attachment `{attachment.name}`",
        f"group 0 of `{kernel.name}`",
    ]
    sections = [kernel.table.stored_bytes, attachment.section.stored_bytes]
    lengths = [HEADER_BYTES, index_bytes, *sections, kernel.payload_bytes]
    text, at = "\n", 0
    for name, length in zip(names, lengths, strict=True):
        text += f"{name.capitalize()}, {length} bytes at {at}:\n\n```hex\n{_dump(data[at : at + length], at)}```\n\n"
        if name != "header":
            text += _explain(name, _open(data, at, length))
        at += length
    return text


def _open(data: bytes, at: int, length: int) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data[at : at + length])


def _dump(data: bytes, at: int) -> str:
    lines = (f"{at + i:06x}  {data[i : i + 32].hex(' ')}\n" for i in range(0, len(data), 32))
    return "".join(lines)


def _explain(name: str, raw: bytes) -> str:
    if name == "index":
        return f"Decompressed, {len(raw)} bytes, here with white space that is not in the file:\n\n```json\n{_pretty(raw)}\n```\n\n"
    if name.startswith("section"):
        (length,) = struct.unpack_from("<I", raw)
        columns = raw[4 + length + -length % 4 :]
        behind = columns[8 * len(_core.COLUMNS) :]
        lines = "".join(
            f"{column:<12}{columns[8 * i : 8 * i + 8].hex(' ')}\n" for i, column in enumerate(_core.COLUMNS)
        )
        return (
            f"Decompressed, {len(raw)} bytes. First `{raw[:4].hex(' ')}`, the length of the JSON: {length}. Then the JSON, "
            f"again with white space:\n\n```json\n{_pretty(raw[4 : 4 + length])}\n```\n\n"
            f"Then {_counted(-length % 4)} of padding and the columns of two rows:\n\n```text\n{lines}```\n\n"
            f"Then come the lengths of the two images, and the record of the one group:\n\n```text\n{''.join(_placement(behind))}```\n\n"
        )
    return f"Decompressed, {len(raw)} bytes:\n\n```text\n{raw.decode('ascii')}\n```\n\n"


def _counted(number: int) -> str:
    return "1 byte" if number == 1 else f"{number} bytes"


def _placement(raw: bytes) -> Iterator[str]:
    for at in (0, 4):
        yield f"{raw[at : at + 4].hex(' ')}  a length of {struct.unpack_from('<I', raw, at)[0]}\n"
    for at, what in ((8, "images"), (12, "stored bytes"), (16, "raw bytes")):
        yield f"{raw[at : at + 4].hex(' ')}  {what}\n"
    yield f"{raw[20:].hex(' ')}\n"


def _pretty(raw: bytes) -> str:
    return _indented(json.loads(raw), "")


def _indented(value: object, margin: str) -> str:
    """Write what fits on one line there, and break the rest into a line per field or entry."""
    short = json.dumps(value)
    if len(short) + len(margin) <= 112 or not value:
        return short
    inner = margin + "  "
    if isinstance(value, dict):
        body = [f"{inner}{json.dumps(key)}: {_indented(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(body) + f"\n{margin}}}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _indented(item, inner) for item in value) + f"\n{margin}]"
    return short


def parse(page_part: str) -> bytes:
    """Put the bytes together again that a page shows."""
    data = b""
    for block in page_part.split("```hex\n")[1:]:
        for line in block.partition("```")[0].splitlines():
            place, _, digits = line.partition("  ")
            if int(place, 16) != len(data):
                raise ValueError(f"expected offset {len(data):06x}, got {place}")
            data += bytes.fromhex(digits)
    return data
