"""A validation error of msgspec in our words: what was expected, what was found, and the whole key path."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from nojit.runtime.errors import did_you_mean

__all__ = ["Mistake", "explain", "shorten"]

Mistake: TypeAlias = tuple[str, str, str]
"""What was expected, what was found, and the key path."""

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
# msgspec says which value it found, not which it takes
_CHOICES = {"schema": (1,), "hints": (1, 16), "bucket": ("quarter_pow2", "sixteenth_pow2", "pow2", "exact")}


def explain(
    error: msgspec.ValidationError,
    data: dict[str, Any],
    convert: Callable[[Any], object],
    spellings: Mapping[str, str],
) -> Mistake:
    """Say what is wrong.

    Args:
        error: what `convert` refused `data` with.
        data: the document.
        convert: reads it.
        spellings: what each pattern that a text has to match asks for, in words.
    """
    text, place = _split(error)
    text = _worded(text, spellings)
    in_key = place.startswith("key` in `")
    steps = _resolve(place.removeprefix("key` in `"), place, data, convert)
    if in_key:
        table = _walk(data, steps)
        key = next((key for key in table if _refused_place(_only(data, steps, key), convert) == place), "")
        return _plain(text), repr(key), f"{_spell(steps)}.{key}"
    if missing := _MISSING.match(text):
        return f"expected a value for {missing[1]!r}", "none", _spell(steps)
    found = _walk(data, steps)
    if text.startswith("Invalid enum value"):
        choices = next((_CHOICES[step] for step in steps if step in _CHOICES), ())
        near = did_you_mean(found, [str(choice) for choice in choices]) if isinstance(found, str) else ""
        return f"expected {' or '.join(map(repr, choices))}", f"{shorten(found)}{near}", _spell(steps)
    return _plain(text.partition(", got")[0]), shorten(found), _spell(steps)


def shorten(value: object) -> str:
    """Write a value for a message, cut where it grows long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _split(error: msgspec.ValidationError) -> tuple[str, str]:
    text, _, place = str(error).rpartition(" - at ") if " - at " in str(error) else (str(error), "", "$")
    return text, place.strip("`")


def _worded(text: str, spellings: Mapping[str, str]) -> str:
    return next(
        (f"expected {words}" for pattern, words in spellings.items() if f" matching regex {pattern!r}" in text), text
    )


def _plain(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")


def _resolve(path: str, place: str, data: dict[str, Any], convert: Callable[[Any], object]) -> list[Any]:
    """Take a key path apart; msgspec writes ``[...]`` for a free key, which is found by leaving out the others."""
    steps = [key or (int(index) if index else ...) for key, index, _ in _STEP.findall(path)]
    for number, step in enumerate(steps):
        if step is ...:
            table = _walk(data, steps[:number])
            refused = (key for key in table if _refused_place(_only(data, steps[:number], key), convert) == place)
            steps[number] = next(refused)
    return steps


def _only(data: dict[str, Any], steps: list[Any], key: str) -> dict[str, Any]:
    reduced = copy.deepcopy(data)
    table = _walk(reduced, steps)
    for other in set(table) - {key}:
        del table[other]
    return reduced


def _refused_place(data: dict[str, Any], convert: Callable[[Any], object]) -> str | None:
    try:
        convert(data)
    except msgspec.ValidationError as error:
        return _split(error)[1]
    return None


def _walk(data: Any, steps: list[Any]) -> Any:
    for step in steps:
        data = data[step]
    return data


def _spell(steps: list[Any]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
