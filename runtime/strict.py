"""Strict reading of small canonical JSON: exact fields, exact types, capped sizes, one error per broken rule.

The tables of a bundle are read with these. Nothing here knows what the fields mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from nojit.runtime.errors import BundleFormatError

if TYPE_CHECKING:
    # the core reads what a launch waits for
    import json

__all__ = [
    "Json",
    "canonical_json",
    "count",
    "fields",
    "flag",
    "items",
    "line",
    "lines",
    "name",
    "name_list",
    "object_rows",
    "parse_json",
    "refuse",
    "text",
]

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"

TEXT_CHARS_MAX = 8192
POOL_MAX = 32_768
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,199}\Z")
# no name has a line end: as many lines as there are values
_NAMES = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.\-]{0,199}\n)*\Z")


def refuse(rule: str, what: str, *, got: object = "", where: str = "") -> BundleFormatError:
    """Make the error for a broken rule of the format."""
    return BundleFormatError(what, got=str(got), where=where, rule=rule)


def canonical_json(value: Json) -> bytes:
    """Encode with sorted keys and no spaces, ASCII only: one value, one byte string."""
    return _encoder().encode(value).encode("ascii")


def parse_json(raw: bytes, where: str) -> Json:
    """Decode what `canonical_json` wrote, and nothing else.

    Raises:
        BundleFormatError: not ASCII JSON of integers, not canonical, nested too deeply, or too much of it.
    """
    from nojit.runtime import _core  # noqa: PLC0415 - which imports tables, and tables this

    _core.check_json(raw, where)
    value: Json = _decoder().decode(raw.decode("ascii"))
    return value


# made once: each is slow to make with options of its own
@lru_cache(maxsize=1)
def _encoder() -> json.JSONEncoder:
    import json  # noqa: PLC0415 - as above

    return json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@lru_cache(maxsize=1)
def _decoder() -> json.JSONDecoder:
    import json  # noqa: PLC0415 - as above

    return json.JSONDecoder()


def fields(value: Json, names: tuple[str, ...], where: str) -> list[Json]:
    """Take an object apart that must have exactly the fields `names`; their values come in that order."""
    if not isinstance(value, dict):
        raise refuse("type", "expected an object", got=type(value).__name__, where=where)
    if value.keys() != set(names):
        unknown = sorted(value.keys() - set(names))
        missing = sorted(set(names) - value.keys())
        got = "; ".join([f"unknown field {name!r}" for name in unknown] + [f"no field {name!r}" for name in missing])
        raise refuse("fields", f"expected the fields {', '.join(names)}", got=got, where=where)
    return [value[name] for name in names]


def object_rows(value: Json, names: tuple[str, ...], limit: int, where: str) -> list[tuple[Json, ...]]:
    """Take an array of at most `limit` objects apart, each as `fields` does: all at once."""
    listed: list[Any] = items(value, limit, where)
    if set(map(type, listed)) <= {dict} and set(map(frozenset, listed)) <= {frozenset(names)}:
        return list(map(itemgetter(*names), listed))
    return [tuple(fields(item, names, where)) for item in listed]


def flag(value: Json, where: str) -> bool:
    """Take true or false."""
    if not isinstance(value, bool):
        raise refuse("type", "expected true or false", got=type(value).__name__, where=where)
    return value


def text(value: Json, where: str, most: int = TEXT_CHARS_MAX) -> str:
    """Take a string of at most `most` characters."""
    if not isinstance(value, str):
        raise refuse("type", "expected a string", got=type(value).__name__, where=where)
    if len(value) > most:
        raise refuse("size", f"expected at most {most} characters", got=len(value), where=where)
    return value


def _is_printable(text: str) -> bool:
    from nojit.runtime import _core  # noqa: PLC0415 - likewise

    return _core.is_printable(text)


def line(value: Json, where: str) -> str:
    """Take a short string that is safe to show: no control characters."""
    checked = text(value, where)
    if not _is_printable(checked):
        raise refuse("text", "expected printable characters", got=ascii(checked), where=where)
    return checked


def _are_lines(values: Sequence[Any]) -> bool:
    """Say whether all are short strings that are safe to show.

    Raises:
        TypeError: one is no string.
    """
    return _is_printable("".join(values)) and max(map(len, values), default=0) <= TEXT_CHARS_MAX


def lines(values: Sequence[Json], where: str) -> tuple[str, ...]:
    """Take short strings that are safe to show, all at once: most tables are mostly these."""
    whole = tuple([value for value in values if isinstance(value, str)])
    if len(whole) == len(values) and _are_lines(whole):
        return whole
    return tuple(line(value, where) for value in values)


def name(value: Json, where: str) -> str:
    """Take a name: a key for look-up, never a path."""
    checked = text(value, where)
    if not _NAME.match(checked):
        raise refuse(
            "name",
            "expected a name of letters, digits and ._- that starts with a letter or _",
            got=repr(checked),
            where=where,
        )
    return checked


def _are_names(values: Sequence[Any]) -> bool:
    """Say whether all are names.

    Raises:
        TypeError: one is no string.
    """
    text = "\n".join((*values, ""))
    return text.count("\n") == len(values) and _NAMES.match(text) is not None


def name_list(values: Sequence[Json], where: str) -> tuple[str, ...]:
    """Take names, all at once."""
    whole = tuple([value for value in values if isinstance(value, str)])
    if len(whole) == len(values) and _are_names(whole):
        return whole
    return tuple([name(value, where) for value in values])


def count(value: Json, limit: int, where: str, least: int = 0) -> int:
    """Take an integer from `least` to `limit`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise refuse("type", "expected an integer", got=type(value).__name__, where=where)
    if not least <= value <= limit:
        raise refuse("size", f"expected an integer from {least} to {limit}", got=value, where=where)
    return value


def items(value: Json, limit: int, where: str) -> list[Json]:
    """Take an array of at most `limit` items."""
    if not isinstance(value, list):
        raise refuse("type", "expected an array", got=type(value).__name__, where=where)
    if len(value) > limit:
        raise refuse("size", f"expected at most {limit} items", got=len(value), where=where)
    return value
