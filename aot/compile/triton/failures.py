"""Reader of Triton's compilation errors: it translates their positions to lines of the source file.

Triton counts lines and columns from the start of the function, and repeats an error for each function on the call path.
"""

from __future__ import annotations

import linecache
import re
import textwrap
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

__all__ = ["Account", "Lines", "account_of"]

Lines: TypeAlias = tuple[str, int, int]
"""Position of a function: its file, its first line (from 1), and its number of lines including decorators."""

_DEF = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)


class Account(NamedTuple):
    """A compilation error: a summary, its position, and the full log."""

    what: str
    """Summary of the error in one line."""
    where: str
    """``file:line:column`` in the kernel's source; empty if the error has no position there."""
    log: str


class _Spot(NamedTuple):
    """A position in a source file, with the text of its line."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def excerpt(self) -> str:
        """Text with the position, the source line, and a caret below the column."""
        return f"{self}\n{self.text}\n{' ' * (self.column - 1)}^"


def account_of(error: BaseException, functions: Iterable[Lines]) -> Account:
    """Return the summary, the position and the full log of an error that Triton's compiler raised.

    Args:
        error: the caught error. The log includes the errors that caused it.
        functions: positions of the kernel and of every function that it reaches.
    """
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    known = sorted(functions)
    spots = [_spot_of(each, known) for each in chain]
    said = [(type(each).__name__, _message(each)) for each in chain]
    # the innermost error has the reason; the outer ones only name the call path
    kind, message = next(((kind, words) for kind, words in reversed(said) if words), said[0])
    first = message.partition("\n")[0]
    what = (f"{kind}: {first}" if first else kind)[:200]
    own = [spot for spot in spots if spot is not None]
    parts = [what]
    for spot, (kind, words) in zip(spots, said, strict=True):
        parts += [spot.excerpt] if spot else []
        parts += [f"{kind}: {words}"] if words else []
    return Account(what, str(own[-1]) if own else "", "\n".join(parts))


def _message(error: BaseException) -> str:
    """Return the message of a Triton error without the source lines that Triton quotes in it."""
    return str(getattr(error, "error_message", error) or "").strip()


def _spot_of(error: BaseException, functions: Iterable[Lines]) -> _Spot | None:
    """Return the position of a compilation error in the source file; None for other errors and unknown functions."""
    node, source = getattr(error, "node", None), getattr(error, "src", None)
    line: int | None = getattr(node, "lineno", None)
    if line is None or source is None:
        return None
    for file, first, count in functions:
        raw = linecache.getlines(file)[first - 1 : first - 1 + count]
        text = textwrap.dedent("".join(raw))
        head = _DEF.search(text)
        if head is None or text[head.start() :] != source:
            continue
        at = text[: head.start()].count("\n") + line - 1
        shown = raw[at].rstrip("\n")
        # Python's parser counts bytes of UTF-8, in the text without its indentation
        indent = len(shown) - len(text.splitlines()[at])
        before = shown[indent:].encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore")
        return _Spot(file, first + at, indent + len(before) + 1, shown)
    return None
