"""Scanner for the positions of the keys in a TOML document, which `tomllib` does not report. Pure.

The scanner reads only text that `tomllib` has accepted. It therefore only finds where tokens end, and checks nothing.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final, TypeAlias

__all__ = ["KeyPath", "positions"]

KeyPath: TypeAlias = tuple[str | int, ...]
"""Path of a value in a TOML document: a string for a key of a table, an index from 0 for an element of an array."""


_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRING: Final = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|"(?:\\.|[^"\\\n])*"|'''
    r"""'''.*?'{3,5}|'[^'\n]*'""",
    re.DOTALL,
)
# numbers, booleans and dates; a space may separate a date from its time
_SCALAR: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:[^\s,\]}#]*|[^\s,\]}#]+")


def positions(text: str) -> dict[KeyPath, int]:
    """Return the offset, in characters, of each key and each array element in a TOML text; ``()`` is the document.

    For a table, the offset is that of the last key in its header. For an element of an array of tables, it is that of
    the header's opening bracket.

    Args:
        text: a document that `tomllib` accepts.
    """
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.found


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[KeyPath, int] = {(): 0}
        # number of elements in each array of tables so far
        self._entries: dict[KeyPath, int] = {}

    def scan(self) -> None:
        table: KeyPath = ()
        while self._skip():
            table = self._header() if self._next("[") else self._pair(table)

    def _skip(self) -> bool:
        """Skip blanks and comments; return whether text is left after them."""
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < len(self.text)

    def _next(self, symbol: str) -> bool:
        return self.text.startswith(symbol, self.at)

    def _take(self, symbol: str) -> bool:
        """Skip `symbol` if the text continues with it; return whether it did."""
        self._skip()
        taken = self._next(symbol)
        self.at += len(symbol) if taken else 0
        return taken

    def _header(self) -> KeyPath:
        start = self.at
        array = self._take("[[")
        self.at += not array
        keys = self._keys()
        self._take("]]" if array else "]")
        path: KeyPath = ()
        for key, at in keys[:-1]:
            path = (*path, key)
            self.found.setdefault(path, at)
            if path in self._entries:
                path = (*path, self._entries[path] - 1)
        key, key_at = keys[-1]
        path = (*path, key)
        if array:
            self.found.setdefault(path, key_at)
            self._entries[path] = self._entries.get(path, 0) + 1
            path = (*path, self._entries[path] - 1)
            self.found[path] = start
        else:
            # a table's header may follow those of its members
            self.found[path] = key_at
        return path

    def _pair(self, table: KeyPath) -> KeyPath:
        """Read one ``key = value`` pair, and return `table`, the path of the table that encloses the pair."""
        keys = self._keys()
        self._take("=")
        path = table
        for key, at in keys[:-1]:
            path = (*path, key)
            self.found.setdefault(path, at)
        key, at = keys[-1]
        self._value((*path, key), at)
        return table

    def _keys(self) -> list[tuple[str, int]]:
        """Read a key, which may be dotted (``a.b``); return each of its parts with the part's offset in the text."""
        keys = []
        while True:
            self._skip()
            start = self.at
            match = _STRING.match(self.text, start) or _BARE.match(self.text, start)
            self.at = match.end() if match else len(self.text)
            raw = self.text[start : self.at]
            keys.append((str(tomllib.loads(f"key = {raw}")["key"]) if raw[:1] in "\"'" else raw, start))
            if not self._take("."):
                return keys

    def _value(self, path: KeyPath, key: int | None = None) -> None:
        self._skip()
        start = self.at
        if self._take("["):
            number = 0
            while self.at < len(self.text) and not self._take("]"):
                self._value((*path, number))
                self._take(",")
                number += 1
        elif self._take("{"):
            while self.at < len(self.text) and not self._take("}"):
                self._pair(path)
                self._take(",")
        else:
            match = _STRING.match(self.text, start) or _SCALAR.match(self.text, start)
            self.at = match.end() if match else len(self.text)
        self.found[path] = start if key is None else key
