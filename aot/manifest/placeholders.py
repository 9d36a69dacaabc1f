"""Placeholders in a manifest: the places that `nojit init` leaves open, because the kernel's source does not tell what belongs there.

A placeholder is a string that starts with `PLACEHOLDER`. It may stand in the place of any value, and the build refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator

from nojit.aot.manifest.text import spell_key

__all__ = ["PLACEHOLDER", "find_placeholders"]

PLACEHOLDER = "FILL IN: "


def find_placeholders(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield the key path and the text of each placeholder in parsed TOML; `place` is the key path of `value`."""
    if isinstance(value, str) and value.startswith(PLACEHOLDER.strip()):
        yield place, value.removeprefix(PLACEHOLDER.strip()).strip()
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from find_placeholders(inner, f"{place}{spell_key(key)}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from find_placeholders(inner, f"{place}[{number}]")
