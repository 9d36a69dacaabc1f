"""Build a cubin each of whose parts a test can change. `tests.support.cubins` builds whole ones by fewer words."""

from __future__ import annotations

import struct

__all__ = [
    "COMPAT",
    "INFO",
    "NOBITS",
    "POINTERS_AND_INT",
    "PROGBITS",
    "STRTAB",
    "SYMTAB",
    "Image",
    "attribute",
    "kernel_info",
    "param",
]

POINTERS_AND_INT = ((0, 8), (8, 8), (16, 4), (24, 8))

STRTAB, SYMTAB, NOBITS, PROGBITS, INFO, COMPAT = 3, 2, 8, 1, 0x70000000, 0x70000086


def attribute(number, value):
    return struct.pack("<BBH", 4, number, len(value)) + value


def param(ordinal, offset, size):
    return attribute(0x17, struct.pack("<IHHI", 0, ordinal, offset, size << 18 | 0x1F000))


def kernel_info(params=POINTERS_AND_INT, reqntid=(128, 1, 1), cluster=None, bank_bytes=None, api=134):
    """The attributes of one kernel, in ptxas's order: last param first."""
    end = max((offset + size for offset, size in params), default=0)
    content = attribute(0x37, struct.pack("<I", api))
    for ordinal, (offset, size) in reversed(list(enumerate(params))):
        content += param(ordinal, offset, size)
    content += struct.pack("<BBH", 3, 0x1B, 255) + struct.pack("<BBH", 1, 0x35, 0) + struct.pack("<BBBB", 2, 0x4C, 1, 0)
    if cluster:
        content += attribute(0x3D, struct.pack("<III", *cluster))
    if reqntid:
        content += attribute(0x10, struct.pack("<III", *reqntid))
    return content + attribute(0x0A, struct.pack("<IHH", 9, 0x210, end if bank_bytes is None else bank_bytes))


class Image:
    """A cubin of our own making: valid unless a test changes `header`, `sections` or a symbol."""

    def __init__(self, symbol="add", info=None, *, abi=8, flags=0x6005A04, compat=b"\x02\x09\x01\x00"):
        self.symbol = symbol
        self.offsets: dict[str, int] = {}
        """Where a section says that it starts, if not where it does."""
        self.header = {"abi": abi, "flags": flags, "machine": 190, "type": 2, "magic": b"\x7fELF"}
        usage = attribute(0x2F, struct.pack("<II", 1, 40)) + attribute(0x11, struct.pack("<II", 1, 16))
        self.sections = [
            ["", 0, b"", 0, 0],
            [".shstrtab", STRTAB, b"", 0, 0],
            [".strtab", STRTAB, b"\0" + symbol.encode() + b"\0device\0", 0, 0],
            [".symtab", SYMTAB, self.symbols(), 2, 0],
            [".nv.info", INFO, usage, 3, 0],
            [".nv.compat", COMPAT, compat, 0, 0],
            [f".nv.info.{symbol}", INFO, kernel_info() if info is None else info, 3, 7],
            [f".text.{symbol}", PROGBITS, bytes(384), 3, 1],
            [f".nv.shared.{symbol}", NOBITS, 1040, 0, 7],
        ]

    def symbols(self, *, entry_flag=0x10, section=7, name_at=1):
        device = struct.pack("<IBBHQQ", len(self.symbol) + 2, 0x12, 0, 7, 0, 16)
        return bytes(24) + struct.pack("<IBBHQQ", name_at, 0x12, entry_flag, section, 0, 384) + device

    def section(self, name):
        return next(section for section in self.sections if section[0] == name)

    def build(self):
        names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in self.sections[1:])
        self.section(".shstrtab")[2] = names
        body, table, at = b"", b"", 64
        for name, kind, content, link, info in self.sections:
            name_at = names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
            size = content if isinstance(content, int) else len(content)
            table += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, self.offsets.get(name, at), size, link, info, 4, 0)
            body += b"" if isinstance(content, int) else content
            at = 64 + len(body)
        segment = struct.pack("<IIQQQQQQ", 1, 5, 64, 0, 0, len(body), len(body), 8)
        h = self.header
        ident = struct.pack("<4sBBBBB7x", h["magic"], 2, 1, 1, 0x41, h["abi"])
        rest = struct.pack(
            "<HHIQQQIHHHHHH", h["type"], h["machine"], 1, 0, at + len(table), at, h["flags"], 64, 56, 1, 64,
            len(self.sections), 1,
        )  # fmt: skip
        return ident + rest + body + table + segment
