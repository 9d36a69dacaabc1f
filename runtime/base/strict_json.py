"""Strict reading of small canonical JSON: exact fields, exact types, capped sizes, one error per broken rule.

nojit reads cache entries and recordings with these. The engine reads bundles, and holds the rules of their names and texts.
"""

from __future__ import annotations

from nojit.runtime.errors import BundleFormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    # the engine reads what a launch waits for
    import json
    from typing import TypeAlias

__all__ = [
    "Json",
    "canonical_json",
    "fields",
    "parse_json",
    "refuse",
    "text",
]

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"


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
    from nojit.runtime import _core  # which imports tables, and tables this

    _core.check_json(raw, where)
    # canonical: no spaces to skip
    value: Json = _decoder().raw_decode(raw.decode("ascii"))[0]
    return value


# made once: each is slow to make with options of its own
_known_encoder: json.JSONEncoder | None = None
_known_decoder: json.JSONDecoder | None = None


def _encoder() -> json.JSONEncoder:
    global _known_encoder  # noqa: PLW0603 - `functools.lru_cache` is slow to import
    if _known_encoder is None:
        import json

        _known_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return _known_encoder


def _decoder() -> json.JSONDecoder:
    global _known_decoder  # noqa: PLW0603 - as above
    if _known_decoder is None:
        import json

        _known_decoder = json.JSONDecoder()
    return _known_decoder


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


def text(value: Json, where: str) -> str:
    """Take a string of at most as many characters as a text of the format has."""
    from nojit.runtime import _core

    if not isinstance(value, str):
        raise refuse("type", "expected a string", got=type(value).__name__, where=where)
    if len(value) > _core.TEXT_CHARS_MAX:
        raise refuse("size", f"expected at most {_core.TEXT_CHARS_MAX} characters", got=len(value), where=where)
    return value
