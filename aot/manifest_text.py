"""The text of a manifest: which line a key path stands on."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["ManifestText"]

# a line that begins a table
_TABLE = r"\s*\[{1,2}[^\[\],]+\]{1,2}\s*(#.*)?$"


class ManifestText:
    """The text of a manifest, to turn key paths into lines."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = text.split("\n")

    def where(self, key_path: str) -> str:
        """Return ``file:line key_path``, without the line where TOML's spelling hides it."""
        line = self._line(key_path)
        return f"{self.path}:{line} {key_path}" if line else f"{self.path} {key_path}"

    def _line(self, key_path: str) -> int | None:
        start, end, found, header = 0, len(self._lines), None, ""
        for key, index in re.findall(r"([A-Za-z_][\w\-]*)|\[(\d+)\]", key_path):
            if key:
                header = f"{header}.{key}" if header else key
                position = self._find(rf"\s*\[{re.escape(header)}\]", start, end)
                if position is None:
                    # a key stands before the next table begins
                    stop = self._find(_TABLE, start + 1, end)
                    position = self._find(rf"\s*{re.escape(key)}\s*=", start, end if stop is None else stop)
            else:
                entry = rf"\s*\[\[{re.escape(header)}\]\]"
                position = self._find(entry, start, end, int(index))
                following = None if position is None else self._find(entry, position + 1, end)
                end = end if following is None else following
            if position is not None:
                start, found = position, position
        return None if found is None else found + 1

    def _find(self, pattern: str, start: int, end: int, skip: int = 0) -> int | None:
        for number in range(start, end):
            if re.match(pattern, self._lines[number]):
                if not skip:
                    return number
                skip -= 1
        return None
