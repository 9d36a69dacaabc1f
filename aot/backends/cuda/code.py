"""Machine code of a cubin, without what surrounds it."""

from __future__ import annotations

from collections import Counter

from nojit.runtime.errors import BundleError

__all__ = ["code_of", "opcodes_of"]

# from 7.0 on, an instruction has 16 bytes, and its lowest 12 bits say what it does
_INSTRUCTION_BYTES = 16
_OPCODE = 0xFFF


def code_of(image: bytes) -> dict[bytes, bytes]:
    """Return the sections of a cubin that hold instructions; the whole cubin if its sections cannot be read."""
    from nojit.runtime.bundle import cubin

    try:
        sections = cubin.read_sections(image)
    except BundleError:
        return {b"": image}
    return {name: content for name, content in sections.items() if name.startswith(b".text.")}


def opcodes_of(image: bytes) -> dict[bytes, Counter[int]]:
    """Return how many instructions of each kind the sections of a cubin hold, in any order and with any registers."""
    return {
        name: Counter(
            int.from_bytes(code[place : place + 2], "little") & _OPCODE
            for place in range(0, len(code), _INSTRUCTION_BYTES)
        )
        for name, code in code_of(image).items()
    }
