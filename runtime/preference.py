"""The order in which the configs of a meaning are tried. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

__all__ = ["Preference", "Ranks"]

Preference: TypeAlias = Callable[[int], Sequence[int]]
"""The configs of a meaning by number, the best first; those left out follow in the table's order."""


class Ranks:
    """The place of each config in the order of each meaning.

    Args:
        count: how many configs there are.
        preference: None for the table's order throughout.
    """

    def __init__(self, count: int, preference: Preference | None) -> None:
        self._count = count
        self._preference = preference
        self._known: dict[int, Sequence[int]] = {}

    def of(self, meaning: int) -> Sequence[int]:
        """Return the place of each config, by number."""
        if self._preference is None:
            return range(self._count)
        if meaning not in self._known:
            order = dict.fromkeys([*self._preference(meaning), *range(self._count)])
            places = {config: place for place, config in enumerate(order)}
            self._known[meaning] = [places[config] for config in range(self._count)]
        return self._known[meaning]
