"""Questions in a manifest: the places that `nojit init` leaves open, because the kernel's source does not tell what belongs there.

A question is a string that starts with `QUESTION`. It may stand in the place of any value, and the build refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator

from nojit.aot.manifest.text import spell_key

__all__ = ["QUESTION", "find_questions"]

QUESTION = "FILL IN: "


def find_questions(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield the key path and the text of each question in parsed TOML; `place` is the key path of `value`."""
    if isinstance(value, str) and value.startswith(QUESTION.strip()):
        yield place, value.removeprefix(QUESTION.strip()).strip()
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from find_questions(inner, f"{place}{spell_key(key)}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from find_questions(inner, f"{place}[{number}]")
