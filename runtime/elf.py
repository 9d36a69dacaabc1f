"""Reads the ELF side of a cubin: its header, its sections and the symbols of its kernels.

Nothing here trusts an offset, a length or a count: the driver that would load the image is given no length to stop at.
Bytes that break a rule raise `BundleFormatError` with a rule that starts with ``cubin-``.
"""

from __future__ import annotations

import struct
from typing import Final

from nojit.runtime.errors import BundleFormatError
from nojit.runtime.record import Record

__all__ = ["SHT_NOBITS", "Elf", "Entry", "Section", "read_elf", "refuse"]

_HEADER: Final = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")

_EM_CUDA: Final = 190
_ET_EXEC: Final = 2
_SHT_SYMTAB: Final = 2
_SHT_STRTAB: Final = 3
SHT_NOBITS: Final = 8
"""A section without bytes in the file: shared memory."""
_STT_FUNC: Final = 2
_STO_ENTRY: Final = 0x10  # a kernel, not a device function

# Triton's cubins have two dozen sections and symbols; these keep a hostile one from costing seconds
_MAX_SECTIONS: Final = 256
_MAX_SYMBOLS: Final = 65_536
_MAX_NAME_BYTES: Final = 16_384


class Section(Record):
    """One section, its range checked against the file; of one that is `SHT_NOBITS`, its start."""

    number: int
    type: int
    offset: int
    size: int
    link: int
    info: int
    """The section or symbol that it belongs to, for the types that have one."""


class Entry(Record):
    """The symbol of a kernel."""

    number: int
    name: str
    section: int
    """Index of the section that holds its code."""


class Elf(Record):
    """The parts of a cubin."""

    image: bytes
    abi: int
    """7 up to CUDA 12.8, for older archs also later; else 8."""
    flags: int
    section_names: dict[bytes, int]
    """The number of each section that has a name."""
    table: list[tuple[int, ...]]
    """The section headers, in order."""
    entries: tuple[Entry, ...]
    """In the order of the symbol table."""

    def section(self, name: bytes) -> Section | None:
        """Return the section of that name, if there is one."""
        number = self.section_names.get(name)
        return None if number is None else _section(self.table, number)


def refuse(rule: str, what: str, got: object) -> BundleFormatError:
    """Make the error for a broken rule."""
    return BundleFormatError(what, got=str(got), where="the image", rule=f"cubin-{rule}")


def read_elf(image: bytes) -> Elf:
    """Read the parts of a cubin.

    Raises:
        BundleFormatError: `image` is no ELF file for CUDA, or a part of it lies outside of it.
    """
    if len(image) < _HEADER.size:
        raise refuse("header", f"expected an ELF header of {_HEADER.size} bytes", len(image))
    header = _HEADER.unpack_from(image)
    magic, elf_class, data, version, _, abi, kind, machine, _, _, segments_at, sections_at, flags = header[:13]
    header_bytes, segment_bytes, segment_count, section_bytes, section_count, names_index = header[13:]
    if (magic, elf_class, data, version, header_bytes) != (b"\x7fELF", 2, 1, 1, _HEADER.size):
        raise refuse("header", "expected a 64-bit little-endian ELF file", image[:7].hex())
    if (machine, kind) != (_EM_CUDA, _ET_EXEC):
        raise refuse("header", "expected an executable for machine 190 (CUDA)", f"type {kind}, machine {machine}")
    if abi not in (7, 8):
        raise refuse("abi", "expected ABI 7 or 8", abi)
    if section_bytes != _SECTION.size or not 0 < section_count <= _MAX_SECTIONS:
        raise refuse("sections", f"expected 1 to {_MAX_SECTIONS} sections", section_count)
    if segment_count and segment_bytes != _SEGMENT.size:
        raise refuse("segments", f"expected segment headers of {_SEGMENT.size} bytes", segment_bytes)
    for segment in _SEGMENT.iter_unpack(_slice(image, "segments", segments_at, segment_count * _SEGMENT.size)):
        _slice(image, "segments", segment[2], 0, segment[5])
    table = list(_SECTION.iter_unpack(_slice(image, "sections", sections_at, section_count * _SECTION.size)))
    names = _read_sections(image, table, names_index)
    symbols = _section(table, names[b".symtab"]) if b".symtab" in names else None
    return Elf(image, abi, flags, names, table, _read_entries(image, table, symbols))


def _section(table: list[tuple[int, ...]], number: int) -> Section:
    _, kind, _, _, offset, size, link, info, _, _ = table[number]
    return Section(number, kind, offset, size, link, info)


def _slice(image: bytes, rule: str, offset: int, size: int, more: int = 0) -> bytes:
    """Take `size` bytes, and check that `more` follow."""
    if offset + size + more > len(image):
        raise refuse(rule, f"expected bytes {offset} to {offset + size + more}", f"an image of {len(image)}")
    return image[offset : offset + size]


def _read_sections(image: bytes, table: list[tuple[int, ...]], names_index: int) -> dict[bytes, int]:
    if names_index >= len(table) or table[names_index][1] != _SHT_STRTAB:
        raise refuse("sections", "expected the section names in a string table", f"section {names_index}")
    names = _slice(image, "sections", table[names_index][4], table[names_index][5])
    numbers: dict[bytes, int] = {}
    find, whole, left = names.find, len(image), len(image)
    for number, (name_at, kind, _, _, offset, size, _, _, _, _) in enumerate(table):
        end = offset if kind == SHT_NOBITS else offset + size
        if end > whole:
            raise refuse("sections", f"expected bytes {offset} to {end}", f"an image of {whole}")
        end = find(b"\0", name_at, name_at + _MAX_NAME_BYTES)
        name = names[name_at:end] if end >= 0 else _name(names, name_at)
        if name in numbers:
            raise refuse("names", "expected each section name once", repr(name[:64]))
        left -= len(name)
        if left < 0:
            raise refuse("names", f"expected section names of at most {whole} bytes together", "more")
        if name:
            numbers[name] = number
    return numbers


def _read_entries(image: bytes, table: list[tuple[int, ...]], symbols: Section | None) -> tuple[Entry, ...]:
    if symbols is None or symbols.type != _SHT_SYMTAB or symbols.size % _SYMBOL.size:
        raise refuse("symbols", "expected a symbol table", "none" if symbols is None else f"{symbols.size} bytes")
    if symbols.size > _MAX_SYMBOLS * _SYMBOL.size:
        raise refuse("symbols", f"expected at most {_MAX_SYMBOLS} symbols", symbols.size // _SYMBOL.size)
    if symbols.link >= len(table) or table[symbols.link][1] != _SHT_STRTAB:
        raise refuse("symbols", "expected the symbol names in a string table", f"section {symbols.link}")
    names = _slice(image, "symbols", table[symbols.link][4], table[symbols.link][5])
    entries: dict[str, Entry] = {}
    content = _slice(image, "symbols", symbols.offset, symbols.size)
    for index, (name_at, info, other, section, _, _) in enumerate(_SYMBOL.iter_unpack(content)):
        if info & 0xF != _STT_FUNC or not other & _STO_ENTRY:
            continue
        name = _text(_name(names, name_at))
        if name in entries:
            raise refuse("names", "expected each kernel once", repr(name[:64]))
        if len(entries) == len(table):
            raise refuse("text", "expected the code of each kernel in a section of its own", f"{len(table)} sections")
        entries[name] = Entry(index, name, section)
    return tuple(entries.values())


def _name(table: bytes, at: int) -> bytes:
    end = table.find(b"\0", at, at + _MAX_NAME_BYTES)
    if end < 0:
        raise refuse("names", f"expected a name of at most {_MAX_NAME_BYTES} bytes", f"no end after byte {at}")
    return table[at:end]


def _text(name: bytes) -> str:
    if not name.isascii():
        raise refuse("names", "expected a name in ASCII", repr(name[:64]))
    return name.decode()
