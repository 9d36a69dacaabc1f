"""Replace attributes of other packages' modules and classes, and put the originals back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Patches"]

_ABSENT = object()


class Patches:
    """Replaced attributes, in the order of their replacement."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module, class or object, whether it had one or not."""
        self._replaced.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def answer(self, owner: Any, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Replace functions by name with functions that keep the original's name and docstring.

        A function that the owner lacks stays absent.
        """
        for name, function in functions.items():
            own = getattr(owner, name, None)
            if own is not None:
                self.put(owner, name, _like(own, function))

    def undo(self) -> None:
        """Put every original back, the last replaced first."""
        while self._replaced:
            owner, name, value = self._replaced.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _like(own: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    # a new function for each name: the same answer may stand for several
    @functools.wraps(own)
    def told(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return told
