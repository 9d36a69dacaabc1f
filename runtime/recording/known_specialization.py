"""A specialization that a recorded process has met: how often it was launched, and which values its arguments had."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from nojit.runtime.base.strict_json import Json
from nojit.runtime.recording.specialization import Specialization
from nojit.runtime.recording.specialization import digest_of as specialization_digest

__all__ = ["Known"]

_NEVER: Final = sys.maxsize


class Known:
    """A specialization that this process has met.

    Attributes:
        launches: iterator whose next item is the number of this launch. Python's threads cannot tear it.
        due: number of the next launch that is written.
    """

    __slots__ = ("_digest", "_flags", "_places", "_reads", "_specialization", "due", "launches")

    def __init__(self, specialization: Specialization | None = None, places: Sequence[tuple[int, str]] = ()) -> None:
        self._specialization = specialization
        self._digest = "" if specialization is None else specialization_digest(specialization)
        self._places = tuple(places)
        self._flags: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Count from zero, as a forked child does."""
        self.launches = itertools.count(1)
        self.due = 1 if self._digest else _NEVER
        self._reads = 0

    @property
    def digest(self) -> str:
        """Digest of the specialization; empty if the recording cannot hold it."""
        return self._digest

    @property
    def specialization(self) -> Specialization | None:
        """The specialization itself."""
        return self._specialization

    def count(self, number: int) -> int:
        """Return how many launches there were when `launches` gave `number`."""
        return number - self._reads

    def read(self) -> int:
        """Return how many launches there were."""
        number = next(self.launches)
        self._reads += 1
        return number - self._reads

    def flag(self, name: str) -> bool:
        """Set a flag; return whether it is new."""
        new = name not in self._flags
        self._flags.add(name)
        return new

    def flagged(self, name: str) -> bool:
        """Return whether a flag is set."""
        return name in self._flags

    def values(self, args: Sequence[Any]) -> list[Json]:
        """Return the int arguments of a launch by name.

        Args:
            args: arguments for all params, in order.
        """
        found: list[Json] = []
        for place, name in self._places:
            if place < len(args):
                found += ([path, value] for path, value in _ints(name, args[place]))
        return found


def _ints(path: str, value: Any) -> Iterator[tuple[str, int]]:
    if type(value) is int:
        yield path, value
    elif isinstance(value, tuple):
        for place, item in enumerate(value):
            yield from _ints(f"{path}.{place}", item)
