"""Strict reading of small canonical JSON: exact fields, exact types, capped sizes, one error per broken rule.

The index and the tables of a bundle are read with these. Nothing here knows what the fields mean.
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
    "are_digests",
    "canonical_json",
    "count",
    "fields",
    "flag",
    "items",
    "line",
    "lines",
    "load_json",
    "name",
    "name_list",
    "object_rows",
    "parse_json",
    "refuse",
    "text",
]

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"

TEXT_CHARS_MAX = 8192
# a few kilobytes of zstd can hold both many times over: what is decoded must stay in proportion to memory
JSON_BYTES_MAX = 2 << 20
JSON_COMMAS_MAX = 1 << 16
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


def load_json(raw: bytes, where: str) -> Json:
    """Decode what `canonical_json` wrote, and nothing else.

    Raises:
        BundleFormatError: as `parse_json`, or not canonical (so also: a duplicate key, spaces).
    """
    value = parse_json(raw, where)
    try:
        canonical = canonical_json(value)
    except RecursionError:
        raise refuse("json-depth", "expected JSON of a modest depth", where=where) from None
    if canonical != raw:
        raise refuse("json-canonical", "expected canonical JSON (sorted unique keys, no spaces)", where=where)
    return value


def parse_json(raw: bytes, where: str) -> Json:
    """Decode JSON whose spelling was or will be checked.

    Raises:
        BundleFormatError: not ASCII JSON, a float, NaN, a lone surrogate, nested too deeply, or too much of it.
    """
    if len(raw) > JSON_BYTES_MAX or raw.count(b",") > JSON_COMMAS_MAX:
        what = f"expected JSON of at most {JSON_BYTES_MAX} bytes and {JSON_COMMAS_MAX} commas"
        raise refuse("size", what, got=f"{len(raw)} bytes, {raw.count(b',')} commas", where=where)
    try:
        value: Json = _decoder().decode(raw.decode("ascii"))
    except RecursionError:
        raise refuse("json-depth", "expected JSON of a modest depth", where=where) from None
    except ValueError as error:
        raise refuse("json", "expected ASCII JSON without floats", got=error, where=where) from None
    if b"\\ud" in raw or b"\\uD" in raw:
        _check_surrogates(value, where)
    return value


def _check_surrogates(value: Json, where: str) -> None:
    import json  # noqa: PLC0415 - as above

    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise refuse("json", "expected surrogates in pairs", where=where) from None


def _no_number(text: str) -> None:
    raise ValueError(f"number {text[:40]} is not an integer")


# made once: each is slow to make with options of its own
@lru_cache(maxsize=1)
def _encoder() -> json.JSONEncoder:
    import json  # noqa: PLC0415 - as above

    return json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@lru_cache(maxsize=1)
def _decoder() -> json.JSONDecoder:
    import json  # noqa: PLC0415 - as above

    return json.JSONDecoder(parse_float=_no_number, parse_constant=_no_number)


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


def line(value: Json, where: str) -> str:
    """Take a short string that is safe to show: no control characters."""
    checked = text(value, where)
    if not checked.isprintable():
        raise refuse("text", "expected printable characters", got=ascii(checked), where=where)
    return checked


def _are_lines(values: Sequence[Any]) -> bool:
    """Say whether all are short strings that are safe to show.

    Raises:
        TypeError: one is no string.
    """
    return "".join(values).isprintable() and max(map(len, values), default=0) <= TEXT_CHARS_MAX


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


def are_digests(values: Sequence[Any]) -> bool:
    """Say whether all are 64 lower-case hex digits.

    Raises:
        TypeError: one is no string.
    """
    return not "".join(values).strip("0123456789abcdef") and {*map(len, values)} <= {64}


def items(value: Json, limit: int, where: str) -> list[Json]:
    """Take an array of at most `limit` items."""
    if not isinstance(value, list):
        raise refuse("type", "expected an array", got=type(value).__name__, where=where)
    if len(value) > limit:
        raise refuse("size", f"expected at most {limit} items", got=len(value), where=where)
    return value
