"""Lie in the JSON of a bundle: change one node, and have everything around it sealed right."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tests.support.bundles import Parts

__all__ = [
    "Document",
    "Lie",
    "NodePath",
    "canonical",
    "edit_index",
    "edit_raw",
    "edit_table",
    "get",
    "nodes",
    "put",
    "split_table",
]

Document: TypeAlias = dict[str, Any]
Lie: TypeAlias = Callable[[Document], object]
NodePath: TypeAlias = tuple[str | int, ...]


def canonical(value: Any) -> bytes:
    """Encode as the format wants, written here anew so that the runtime's own encoder is not its judge."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    except TypeError:
        return json.dumps(_with_texts(value), sort_keys=True, separators=(",", ":")).encode()


def _with_texts(value: Any) -> Any:
    """Spell keys that are no texts as JSON does: a lie may have put them beside others, with which they do not sort."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): _with_texts(item) for key, item in value.items()}
    return [_with_texts(item) for item in value] if isinstance(value, list | tuple) else value


def edit_raw(parts: Parts, part: str, change: Callable[[bytes], bytes]) -> bytes:
    """Seal a bundle with one part's raw bytes changed."""
    return parts.seal(edit=lambda name, raw: change(raw) if name == part else raw)


def edit_index(parts: Parts, lie: Lie) -> bytes:
    """Seal a bundle with its index changed by `lie`, lengths and digests included."""
    return edit_raw(parts, "index", lambda raw: canonical(_told(json.loads(raw), lie)))


def edit_table(parts: Parts, number: int, lie: Lie) -> bytes:
    """Seal a bundle with the JSON of one table changed by `lie`."""
    return edit_raw(parts, f"table {number}", lambda raw: _with_header(raw, lie))


def _with_header(raw: bytes, lie: Lie) -> bytes:
    header, columns = split_table(raw)
    changed = canonical(_told(json.loads(header), lie))
    return struct.pack("<I", len(changed)) + changed + b" " * (-len(changed) % 4) + columns


def split_table(raw: bytes) -> tuple[bytes, bytes]:
    """Take a raw table apart: its JSON and its columns."""
    (length,) = struct.unpack_from("<I", raw)
    return raw[4 : 4 + length], raw[4 + length + -length % 4 :]


def _told(document: Document, lie: Lie) -> Document:
    lie(document)
    return document


def nodes(value: Any, path: NodePath = ()) -> Iterator[NodePath]:
    """List the path of every node below `value`."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from nodes(child, (*path, key))


def get(value: Any, path: NodePath) -> Any:
    """Return the node at `path`."""
    for key in path:
        value = value[key]
    return value


def put(document: Document, path: NodePath, value: Any) -> None:
    """Replace the node at `path`."""
    get(document, path[:-1])[path[-1]] = value
