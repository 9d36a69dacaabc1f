"""Machine code of a cubin, without what surrounds it."""

from __future__ import annotations

from nojit.runtime.errors import BundleError

__all__ = ["code_of"]


def code_of(image: bytes) -> dict[bytes, bytes]:
    """Return the sections of a cubin that hold instructions; the whole cubin if its sections cannot be read."""
    from nojit.runtime.bundle import cubin  # noqa: PLC0415 - few commands need it

    try:
        sections = cubin.read_sections(image)
    except BundleError:
        return {b"": image}
    return {name: content for name, content in sections.items() if name.startswith(b".text.")}
