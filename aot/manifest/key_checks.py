"""Check of a manifest's keys: unknown ones ("did you mean"), missing ones, types, lengths. It reports every mistake, whereas `msgspec` stops at the first. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, inspect
from nojit.aot.manifest.mistakes import Mistakes, shorten
from nojit.aot.manifest.text import spell_key
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import key_among
from nojit.runtime.values import identity

__all__ = ["check_keys"]

_WORDS: Final[dict[type[inspect.Type], str]] = {
    inspect.StructType: "a table",
    inspect.DictType: "a table",
    inspect.ListType: "an array",
    inspect.StrType: "a string",
    inspect.IntType: "an int",
    inspect.BoolType: "true or false",
}


def check_keys(
    data: object, struct: type[Struct], place: str, spellings: Mapping[str, str], mistakes: Mistakes
) -> None:
    """Add a mistake for each unknown or missing key, wrong type, and value out of range in parsed TOML.

    Args:
        data: the parsed TOML.
        struct: the expected struct; its annotations are the rules.
        place: the key path of `data`.
        spellings: description of each regular expression that strings must match, for messages.
        mistakes: receives the mistakes; it receives none if `msgspec.convert` accepts the data.
    """
    _Walk(spellings, mistakes).check(_types_of(struct), data, place)


@lru_cache
def _types_of(struct: type[Struct]) -> inspect.Type:
    return inspect.type_info(struct)


class _Walk:
    def __init__(self, spellings: Mapping[str, str], mistakes: Mistakes) -> None:
        self._spellings = spellings
        self._mistakes = mistakes

    def check(self, kind: inspect.Type, value: Any, place: str) -> None:
        """Check a value, and all keys and elements inside it, against the type `kind`.

        `place`: key path in the manifest, for messages.
        """
        match kind:
            case inspect.Metadata():
                self.check(kind.type, value, place)
            case inspect.UnionType():
                self._check_union(kind, value, place)
            case inspect.StructType() if type(value) is dict:
                self._check_struct(kind, value, place)
            case inspect.DictType() if type(value) is dict:
                self._check_length(kind, value, place)
                for key, item in value.items():
                    inside = place + spell_key(key)
                    self.check(kind.key_type, key, inside)
                    self.check(kind.value_type, item, inside)
            case inspect.ListType() if type(value) is list:
                self._check_length(kind, value, place)
                for number, item in enumerate(value):
                    self.check(kind.item_type, item, f"{place}[{number}]")
            case _:
                self._check_leaf(kind, value, place)

    def _check_leaf(self, kind: inspect.Type, value: Any, place: str) -> None:
        match kind:
            case inspect.AnyType():
                pass
            case inspect.StrType() if type(value) is str:
                self._check_string(kind, value, place)
            case inspect.IntType() if type(value) is int:
                if kind.ge is not None and value < kind.ge:
                    self._add(f"an int of at least {kind.ge}", value, place)
                elif kind.le is not None and value > kind.le:
                    self._add(f"an int of at most {kind.le}", value, place)
            case inspect.LiteralType():
                if not any(identity(value) == identity(one) for one in kind.values):
                    words = tuple(one for one in kind.values if isinstance(one, str))
                    near = did_you_mean(value, words) if isinstance(value, str) else ""
                    self._add(_words(kind), value, place, near)
            case inspect.BoolType() if type(value) is bool:
                pass
            case _:
                self._add(_words(kind), value, place)

    def _check_union(self, kind: inspect.UnionType, value: Any, place: str) -> None:
        # TOML has no null, so only the other types of an optional key can occur
        kinds = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        fitting = [
            one for one in kinds if isinstance(one, inspect.StructType | inspect.DictType) == (type(value) is dict)
        ]
        if len(kinds) == 1 or (fitting and (type(value) is dict or type(value) is str)):
            self.check((fitting or kinds)[0], value, place)
        else:
            self._add(" or ".join(map(_words, kinds)), value, place)

    def _check_struct(self, kind: inspect.StructType, value: dict[str, Any], place: str) -> None:
        fields = {field.encode_name: field for field in kind.fields}
        misspelled = []
        for key, item in value.items():
            if key in fields:
                self.check(fields[key].type, item, place + spell_key(key))
            else:
                near = did_you_mean(key, tuple(fields))
                misspelled.append(near)
                what = f"expected {key_among(tuple(fields))}"
                self._mistakes.add(what, got=f"{key!r}{near}", at=place + spell_key(key))
        for key, field in fields.items():
            # a misspelled required key is reported once, not also as missing
            if field.required and key not in value and not any(f"{key!r}" in near for near in misspelled):
                self._mistakes.add(f"expected a value for {key!r}", got="none", at=place)

    def _check_length(self, kind: inspect.DictType | inspect.ListType, value: Any, place: str) -> None:
        least, most = kind.min_length or 0, kind.max_length
        if len(value) < least:
            words = "that is not empty" if least == 1 else f"of at least {least}"
            self._add(f"{_words(kind)} {words}", value, place)
        elif most is not None and len(value) > most:
            self._add(f"{_words(kind)} of at most {most}", value, place)

    def _check_string(self, kind: inspect.StrType, value: str, place: str) -> None:
        if kind.pattern is not None and not re.search(kind.pattern, value):
            self._add(self._spellings[kind.pattern], value, place)
        elif len(value) < (kind.min_length or 0):
            self._add("a string that is not empty", value, place)

    def _add(self, what: str, value: object, place: str, near: str = "") -> None:
        self._mistakes.add(f"expected {what}", got=f"{shorten(value)}{near}", at=place)


def _words(kind: inspect.Type) -> str:
    """Return a description of a type in TOML's terms (such as table and array), for messages."""
    if isinstance(kind, inspect.Metadata):
        return _words(kind.type)
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(map(repr, kind.values))
    return _WORDS[type(kind)]
