"""Build small cubins that hold what the runtime and the fake driver read, and no machine code that anyone runs.

Section names, attribute numbers and layouts are those that ptxas writes, as tests marked ``triton`` check on real ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["CubinSpec", "build_cubin", "param_offsets"]

_SYMTAB, _STRTAB, _PROGBITS, _NOBITS, _INFO, _COMPAT = 2, 3, 1, 8, 0x70000000, 0x70000086
_PARAM_BASE = {80: 0x160, 90: 0x210}


@dataclass(frozen=True, slots=True)
class CubinSpec:
    """One kernel of a cubin."""

    symbol: str
    sizes: tuple[int, ...] = ()
    """Bytes of each param; a param is aligned to its size, at most to 64."""
    num_warps: int = 4
    num_ctas: int = 1
    static_shared_bytes: int = 0
    code: bytes = b"\0" * 16
    """Stands for the machine code: other bytes, another image."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    data: bytes
    link: int = 0
    info: int = 0
    entry_bytes: int = 0
    bytes_in_memory: int | None = None


def param_offsets(sizes: Iterable[int], sm: int = 90) -> list[int]:
    """Place params one after the other, each aligned to its size in the constant bank, where they start at a base."""
    base = _PARAM_BASE.get(sm, 0x380)
    offsets, end = [], base
    for size in sizes:
        start = end + -end % min(size, 64)
        offsets.append(start - base)
        end = start + size
    return offsets


def build_cubin(*kernels: CubinSpec, sm: int = 90, suffix: str = "a", abi: int = 8) -> bytes:
    """Build a cubin.

    Args:
        kernels: what it holds.
        sm: the arch, 90 for ``sm_90``.
        suffix: ``a`` for exactly that chip, else empty.
        abi: ELF ABI version: 7, or 8 as CUDA 13 writes it.
    """
    names = [kernel.symbol for kernel in kernels]
    strings = _strings(names)
    # sections: null, names, strings, symbols, compat, then three for each kernel
    first = 5
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", strings.index(f"\0{name}\0".encode()) + 1, 0x12, 0x10, first + 3 * i, 0, 16)
        for i, name in enumerate(names)
    )
    sections = [
        _Section(".strtab", _STRTAB, strings),
        _Section(".symtab", _SYMTAB, symbols, link=2, info=1, entry_bytes=24),
        _Section(".nv.compat", _COMPAT, struct.pack("<BBBB", 2, 9, suffix == "a", 0) if abi == 8 else b""),
    ]
    for number, kernel in enumerate(kernels):
        sections += _kernel_sections(kernel, first + 3 * number, sm)
    return _elf(sections, _flags(sm, suffix, abi), abi)


def _flags(sm: int, suffix: str, abi: int) -> int:
    if abi == 7:
        return sm | sm << 16 | (0x500 if not suffix else 0xD00)
    return 0x6000002 | sm << 8


def _kernel_sections(kernel: CubinSpec, text: int, sm: int) -> list[_Section]:
    name, shared = kernel.symbol, kernel.static_shared_bytes
    return [
        _Section(f".text.{name}", _PROGBITS, kernel.code, link=3, info=1),
        _Section(f".nv.info.{name}", _INFO, _info(kernel, sm), link=3, info=text),
        _Section(f".nv.shared.{name}", _NOBITS, b"", info=text, bytes_in_memory=shared),
    ]


def _info(kernel: CubinSpec, sm: int) -> bytes:
    offsets = param_offsets(kernel.sizes, sm)
    params = list(enumerate(zip(offsets, kernel.sizes, strict=True)))
    end = offsets[-1] + kernel.sizes[-1] if offsets else 0
    records = [
        _sized(0x17, struct.pack("<IHHI", 0, ordinal, offset, size << 18 | 0x1F000))
        for ordinal, (offset, size) in reversed(params)
    ]
    if kernel.num_ctas > 1:
        records.append(_sized(0x3D, struct.pack("<III", kernel.num_ctas, 1, 1)))
    records.append(_sized(0x10, struct.pack("<III", 32 * kernel.num_warps, 1, 1)))
    records.append(struct.pack("<BBH", 3, 0x19, end))
    records.append(_sized(0x0A, struct.pack("<IHH", 0, _PARAM_BASE.get(sm, 0x380), end)))
    return b"".join(records)


def _sized(attribute: int, payload: bytes) -> bytes:
    return struct.pack("<BBH", 4, attribute, len(payload)) + payload


def _strings(names: Sequence[str]) -> bytes:
    return b"\0" + b"".join(name.encode() + b"\0" for name in names)


def _elf(sections: Sequence[_Section], flags: int, abi: int) -> bytes:
    names = _strings([".shstrtab", *(section.name for section in sections)])
    placed = [_Section(".shstrtab", _STRTAB, names), *sections]
    body = bytearray(64)
    table = [bytes(64)]
    for section in placed:
        body += bytes(-len(body) % 16)
        name_at = names.index(f"\0{section.name}\0".encode()) + 1
        size = len(section.data) if section.bytes_in_memory is None else section.bytes_in_memory
        fields = (name_at, section.kind, 0, 0, len(body), size, section.link, section.info, 16, section.entry_bytes)
        table.append(struct.pack("<IIQQQQIIQQ", *fields))
        body += section.data
    body += bytes(-len(body) % 16)
    os_abi = 0x33 if abi == 7 else 0x41
    header = struct.pack("<4sBBBBB7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, os_abi, abi, 2, 190, 1, 0, 0, len(body), flags,
                         64, 56, 0, 64, len(table), 1)  # fmt: skip
    body[:64] = header
    return bytes(body) + b"".join(table)
