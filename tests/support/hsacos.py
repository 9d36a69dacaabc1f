"""Build a hsaco each of whose parts a test can change: ELF file, metadata in MessagePack, kernel descriptors."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MACHINES", "HsacoKernel", "build_hsaco", "pack"]

MACHINES = {"gfx942": 0x54C, "gfx950": 0x54F, "gfx1201": 0x4E}
"""Flags of the ELF header, as Triton 3.9 writes them."""


def pack(value: Any) -> bytes:
    """Write a value in MessagePack."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return struct.pack("B", value) if value < 128 else b"\xce" + struct.pack(">I", value)
    if isinstance(value, str):
        text = value.encode()
        return (struct.pack("B", 0xA0 | len(text)) if len(text) < 32 else b"\xd9" + struct.pack("B", len(text))) + text
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        parts = [pack(part) for pair in value.items() for part in pair]
        return b"\xde" + struct.pack(">H", len(value)) + b"".join(parts)
    return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))


@dataclass
class HsacoKernel:
    """One kernel; by default what Triton makes of a vector addition with four warps for gfx942."""

    symbol: str = "add"
    sizes: tuple[int, ...] = (8, 8, 4, 8)
    threads: int = 256
    wave: int = 64
    registers: int = 14
    shared_bytes: int = 0
    code: bytes = b""
    """What its instructions start with."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Metadata to replace."""
    descriptor: dict[str, int] = field(default_factory=dict)
    """Fields of the descriptor to replace: shared, stack, arguments, entry, wave."""

    def arguments(self) -> list[dict[str, Any]]:
        """Return the arguments one after the other, each aligned to its size."""
        found, end = [], 0
        for size in self.sizes:
            end = -(-end // size) * size
            found.append({".offset": end, ".size": size, ".value_kind": "global_buffer" if size == 8 else "by_value"})
            end += size
        return found

    def metadata(self) -> dict[str, Any]:
        """Return what the note says of it."""
        arguments = self.arguments()
        last = arguments[-1] if arguments else {".offset": 0, ".size": 0}
        return {
            ".args": arguments,
            ".group_segment_fixed_size": self.shared_bytes,
            ".kernarg_segment_size": -(-(last[".offset"] + last[".size"]) // 8) * 8,
            ".max_flat_workgroup_size": self.threads,
            ".name": self.symbol,
            ".private_segment_fixed_size": 0,
            ".symbol": f"{self.symbol}.kd",
            ".uses_dynamic_stack": False,
            ".vgpr_count": self.registers,
            ".wavefront_size": self.wave,
        } | self.facts

    def descriptor_bytes(self, entry: int) -> bytes:
        """Return the 64 bytes that the hardware launches; `entry`: distance to its code."""
        facts = self.metadata()
        told = {
            "shared": facts[".group_segment_fixed_size"],
            "stack": facts[".private_segment_fixed_size"],
            "arguments": facts[".kernarg_segment_size"],
            "entry": entry,
            "wave": self.wave,
        } | self.descriptor
        start = struct.pack("<IIIIq", told["shared"], told["stack"], told["arguments"], 0, told["entry"])
        return start + bytes(32) + struct.pack("<H", 0x400 if told["wave"] == 32 else 0) + bytes(6)


def build_hsaco(
    *kernels: HsacoKernel,
    arch: str = "gfx942",
    flags: int | None = None,
    os_abi: int = 64,
    abi: int = 3,
    kind: int = 3,
    machine: int = 224,
    metadata: bytes | None = None,
    symbols_before: tuple[str, int] = ("", 0),
) -> bytes:
    """Return the bytes of a hsaco.

    Args:
        kernels: its kernels; one by default.
        arch: what the header says that it is for.
        flags: the header's flags; None for those of `arch`.
        os_abi: byte 7 of the header.
        abi: byte 8 of the header.
        kind: the ELF type.
        machine: the ELF machine.
        metadata: the content of the note; None for that of `kernels`.
        symbols_before: a name, and the number of symbols that have it and precede those of `kernels`.
    """
    kernels = kernels or (HsacoKernel(),)
    notes = (
        metadata
        if metadata is not None
        else pack({"amdhsa.kernels": [one.metadata() for one in kernels], "amdhsa.version": [1, 2]})
    )
    note = struct.pack("<III", 7, len(notes), 32) + b"AMDGPU\0\0" + notes + bytes(-len(notes) % 4)
    text_at, read_at, names = 0x2000, 0x1000, b"\0"
    other, count = symbols_before
    symbols = bytes(24) + count * struct.pack("<IBBHQQ", len(names), 0x11, 0, 4, read_at, 64)
    names += other.encode() + b"\0"
    descriptors = b""
    for number, one in enumerate(kernels):
        at = read_at + 64 * number
        symbols += struct.pack("<IBBHQQ", len(names), 0x11, 0, 4, at, 64)
        names += f"{one.symbol}.kd".encode() + b"\0"
        descriptors += one.descriptor_bytes(text_at + 256 * number - at)
    sections = [
        ("", 0, b"", 0, 0),
        (".note", 7, note, 0, 0),
        (".dynsym", 11, symbols, 3, 0),
        (".dynstr", 3, names, 0, 0),
        (".rodata", 1, descriptors, 0, read_at),
        (".text", 1, b"".join(one.code.ljust(256, b"\0") for one in kernels), 0, text_at),
    ]
    sections.append(
        (".shstrtab", 3, b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections[1:]) + b".shstrtab\0", 0, 0)
    )
    table, body, at, name_at = b"", b"", 64, 0
    for name, section_kind, content, link, address in sections:
        body += bytes(-len(body) % 8)
        table += struct.pack(
            "<IIQQQQIIQQ", name_at, section_kind, 2, address, at + len(body), len(content), link, 0, 8, 0
        )
        body += content
        name_at += len(name) + 1 if name else 1
    ident = b"\x7fELF" + bytes((2, 1, 1, os_abi, abi)) + bytes(7)
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH",
        kind, machine, 1, 0, 0, at + len(body), MACHINES[arch] if flags is None else flags, 64, 56, 0, 64, len(sections), len(sections) - 1,
    )  # fmt: skip
    return header + body + table
