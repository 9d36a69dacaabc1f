"""Text of a manifest. It finds the line and column of a key path."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from pathlib import Path

from nojit.aot.manifest.positions import KeyPath, positions
from nojit.runtime.errors import ManifestError

__all__ = ["ManifestText", "spell_key"]

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_STEP = re.compile(r'\.([A-Za-z0-9_-]+)|\."((?:[^"\\]|\\.)*)"|\[(\d+)\]')


def spell_key(key: str) -> str:
    """Return one key in the form that key paths use, with its dot: ``.params``, quoted if needed: ``."scales.0"``."""
    if _BARE.match(key):
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'."{escaped}"'


class ManifestText:
    """The text of a manifest.

    Args:
        path: path of its file, for messages.
        text: a TOML document.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._text = text

    def mistake(self, what: str, *, got: str = "", at: str) -> ManifestError:
        """Return the error for a mistake at a key path such as ``$.kernel[0].params.n``.

        If the key is missing, the error has the position of the nearest table around it.
        """
        line, column = self._place(at)
        return ManifestError(what, got=got, file=str(self.path), line=line, column=column, key=at)

    def located(self, error: ManifestError) -> ManifestError:
        """Return an error with file, line and column added if it has only a key path; otherwise the error unchanged."""
        if not error.where.startswith("$"):
            return error
        return self.mistake(error.what, got=error.got, at=error.where)

    def where(self, key_path: str) -> str:
        """Return the position of a key path as text: ``file:line:column key_path``."""
        return self.mistake("", at=key_path).where

    @cached_property
    def _offsets(self) -> dict[KeyPath, int]:
        # computed on demand: a correct manifest needs no positions
        return positions(self._text)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self._text))]

    def _place(self, key_path: str) -> tuple[int, int]:
        """Return the line and the column of a key path, both counted from 1."""
        path: KeyPath = tuple(
            int(index) if index else bare or re.sub(r"\\(.)", r"\1", quoted)
            for bare, quoted, index in _STEP.findall(key_path)
        )
        while path not in self._offsets:
            path = path[:-1]
        at = self._offsets[path]
        line = bisect_right(self._line_starts, at)
        return line, at - self._line_starts[line - 1] + 1
