"""Format of a cache entry, and the checks that an entry passes before use, in a local folder and in a shared cache. Pure.

An entry starts with lines of text: the format with its version, the key, and the SHA-256 over key and content. The content
follows. A signed entry is an entry below two more lines: a format of its own, and the envelope of the signature.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from nojit.runtime._core import IMAGE_BYTES_MAX

__all__ = [
    "ENTRY_BYTES_MAX",
    "EntryError",
    "entry_key",
    "entry_name",
    "open_entry",
    "seal",
    "split_signed",
    "with_signature",
]

_MAGIC: Final = b"nojit-cache 2\n"
_SIGNED: Final = b"nojit-signed 1\n"
_KEY: Final = re.compile(r"[0-9a-f]{64}\Z")
_NAME: Final = re.compile(r"([0-9a-f]{2})/([0-9a-f]{62})\Z")
# the key and the checksum in hex, each with a line end
_LINES_BYTES: Final = 2 * 65

ENTRY_BYTES_MAX: Final = IMAGE_BYTES_MAX + (1 << 20)
"""Maximum length of an entry: an image, its metadata and a signature."""


class EntryError(Exception):
    """Error: an entry cannot be used. The message gives the reason."""


def entry_name(key: str) -> str:
    """Return the name of a key's entry: the first two digits of the key, a slash, the others.

    Raises:
        ValueError: the key is not a SHA-256 in hex.
    """
    if not _KEY.match(key):
        raise ValueError(f"expected a SHA-256 in hex as key, got {key!r}")
    return f"{key[:2]}/{key[2:]}"


def entry_key(name: str) -> str | None:
    """Return the key of an entry's name; None if the name is not that of an entry."""
    found = _NAME.match(name)
    return found[1] + found[2] if found else None


def seal(key: str, data: bytes) -> bytes:
    """Return the entry that stores `data` under `key`."""
    own = key.encode()
    return b"".join((_MAGIC, own, b"\n", _checksum(own, data), b"\n", data))


def open_entry(key: str, entry: bytes) -> bytes:
    """Return the data of an entry without a signature.

    Raises:
        EntryError: the entry is damaged, has another format, or is the entry of another key.
    """
    if not entry.startswith(_MAGIC):
        raise EntryError("expected an entry of cache format 2")
    own, checksum, data = _split(entry)
    if checksum != _checksum(own, data):
        raise EntryError("damaged: expected content that matches its checksum")
    if own != key.encode():
        # a file renamed to another key has a valid checksum
        raise EntryError(f"expected the entry of this key, got that of {own.decode(errors='replace')!a}")
    return data


def with_signature(entry: bytes, envelope: bytes) -> bytes:
    """Return a signed entry.

    Args:
        entry: the entry.
        envelope: envelope of its signature: one line, with its line end.
    """
    return b"".join((_SIGNED, envelope, entry))


def split_signed(stored: bytes) -> tuple[bytes, bytes]:
    """Return the envelope of a signed entry and the entry below it; the envelope of an unsigned entry is empty."""
    if not stored.startswith(_SIGNED):
        return b"", stored
    end = stored.find(b"\n", len(_SIGNED)) + 1
    return stored[len(_SIGNED) : end], stored[end:] if end else b""


def _split(entry: bytes) -> tuple[bytes, bytes, bytes]:
    """Split the bytes of an entry into key, checksum and content.

    A truncated entry gives wrong parts, which the comparison with the checksum then reveals.
    """
    start = len(_MAGIC)
    lines = entry[start : start + _LINES_BYTES]
    if len(lines) < _LINES_BYTES or lines[64:65] != b"\n" or lines[129:] != b"\n":
        return b"", b"", b""
    return lines[:64], lines[65:129], entry[start + _LINES_BYTES :]


def _checksum(key: bytes, data: bytes) -> bytes:
    checksum = hashlib.sha256(key + b"\n")
    checksum.update(data)
    return checksum.hexdigest().encode()
