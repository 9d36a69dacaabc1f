"""The text of a manifest: which line a key path stands on."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

__all__ = ["ManifestText"]

# a line that begins a table
_TABLE = r"\s*\[{1,2}[^\[\],]+\]{1,2}\s*(#.*)?$"


class ManifestText:
    """The text of a manifest, to turn key paths into lines."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = text.split("\n")
        # where alone a table can begin; each key that is checked is looked for
        self._bracketed = [number for number, line in enumerate(self._lines) if line.lstrip()[:1] == "["]

    def where(self, key_path: str) -> str:
        """Return ``file:line key_path``, without the line where TOML's spelling hides it."""
        line = self._line(key_path)
        return f"{self.path}:{line} {key_path}" if line else f"{self.path} {key_path}"

    def _line(self, key_path: str) -> int | None:
        start, end, found, header = 0, len(self._lines), None, ""
        for key, index in re.findall(r"([A-Za-z_][\w\-]*)|\[(\d+)\]", key_path):
            if key:
                header = f"{header}.{key}" if header else key
                # of an array of tables the first, unless an index follows
                position = self._find_table(rf"\s*\[\[?{re.escape(header)}\]", start, end)
                if position is None:
                    # a key stands before the next table begins
                    stop = self._find_table(_TABLE, start + 1, end)
                    numbers = range(start, end if stop is None else stop)
                    position = self._find(rf"\s*{re.escape(key)}\s*=", numbers)
            else:
                entry = rf"\s*\[\[{re.escape(header)}\]\]"
                position = self._find_table(entry, start, end, int(index))
                following = None if position is None else self._find_table(entry, position + 1, end)
                end = end if following is None else following
            if position is not None:
                start, found = position, position
        return None if found is None else found + 1

    def _find_table(self, pattern: str, start: int, end: int, skip: int = 0) -> int | None:
        first, last = (bisect_left(self._bracketed, number) for number in (start, end))
        return self._find(pattern, self._bracketed[first:last], skip)

    def _find(self, pattern: str, numbers: Sequence[int], skip: int = 0) -> int | None:
        matches = re.compile(pattern).match
        for number in numbers:
            if matches(self._lines[number]):
                if not skip:
                    return number
                skip -= 1
        return None
